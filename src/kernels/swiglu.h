// SwiGLU, element by element, with σ(g) = 1 / (1 + e^-g):
//
//   y = g σ up      dg = dy up σ (1 + g (1-σ))      dup = dy g σ
//
// T is float or BFloat16; arithmetic is in fp32, and results are rounded once. They do not depend
// on the number of threads.
#pragma once

#include <cstdint>

#include "core/bfloat16.h"

namespace freeformer::kernels {

// y may be one of the inputs.
template <typename T>
void swiglu(const T* gate, const T* up, int64_t count, T* y);

// dgate and dup may be any of the inputs, but not the same.
template <typename T>
void swiglu_backward(const T* gate, const T* up, const T* dy, int64_t count, T* dgate, T* dup);

}  // namespace freeformer::kernels
