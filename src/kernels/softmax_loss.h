// Cross-entropy and its gradient by the logits, for a block of rows:
//
//   nll = log Σ_v exp(logit_v) - logit_target      d nll / d logit = softmax - onehot(target)
//
// A row is read once for its sum, and once more where the gradient is wanted. Arithmetic is in
// fp32, sums of blocks and the logarithm in fp64. Results do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "core/bfloat16.h"

namespace freeformer::kernels {

// A row with this target has loss 0 and gradient 0, whatever its logits.
inline constexpr int64_t kIgnoredTarget = -100;

// Rows of logits and gradient begin every logits_stride and gradient_stride elements. T is float or
// BFloat16. The gradient in float may take the logits' place. A NaN or +inf among a row's logits,
// or nothing but -inf, makes its loss and its gradient NaN.
template <typename T>
void softmax_loss(const float* logits_MV, int64_t logits_stride, const int64_t* targets_M,
                  int64_t M, int64_t V, float* nll_M, T* gradient_MV, int64_t gradient_stride);

// The loss alone.
void softmax_loss(const float* logits_MV, int64_t logits_stride, const int64_t* targets_M,
                  int64_t M, int64_t V, float* nll_M);

}  // namespace freeformer::kernels
