// RMSNorm over the rows of x, forward and backward:
//
//   r = 1 / sqrt(mean(x²) + eps)      y = x w r
//   dx = r (w dy - x r² mean(w dy x))      dw = Σ_m dy x r
//
// T is float or BFloat16; all arithmetic is in fp32, and y and dx are rounded once. Results do not
// depend on the number of threads.
#pragma once

#include <cstdint>

#include "core/bfloat16.h"

namespace freeformer::kernels {

// inverse_rms_M receives r, for the backward pass; nullptr: not wanted. y may be x.
template <typename T>
void rms_norm(const T* x_MD, const T* weight_D, int64_t M, int64_t D, float eps, T* y_MD,
              float* inverse_rms_M);

// dx and dweight are overwritten; nullptr: not wanted. dx may be dy.
template <typename T>
void rms_norm_backward(const T* x_MD, const T* weight_D, const float* inverse_rms_M, const T* dy_MD,
                       int64_t M, int64_t D, T* dx_MD, float* dweight_D);

}  // namespace freeformer::kernels
