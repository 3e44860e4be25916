// AdamW (Loshchilov & Hutter) in one pass over all tensors at once, and the gradients' norm: many
// small tensors cost one parallel region. Results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "core/bfloat16.h"

namespace freeformer::kernels {

// One tensor of a step, [count] each, and its constants.
struct AdamWTensor {
  float* master;
  float* m;
  float* v;
  const float* gradient;
  BFloat16* rounded = nullptr;  // receives the new master in bf16; nullptr: none wanted
  int64_t count = 0;
  float learning_rate = 0.0f;
  float decay = 0.0f;  // λ; 0 where weights do not decay
  float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;
  float rest1 = 0.1f,
        rest2 = 0.05f;  // 1 - β1, 1 - β2, of the exact β: 1 - float(0.999) is 7e-6 off
  float correction1 = 1.0f, correction2 = 1.0f;  // 1 - β1^t, 1 - β2^t
  float gradient_scale = 1.0f;                   // clipping
};

// With g the scaled gradient and η the learning rate, in fp32:
//   m = β1 m + (1-β1) g      v = β2 v + (1-β2) g²
//   w = w (1 - η λ) - η (m / correction1) / (sqrt(v / correction2) + ε)
void adamw_update(std::span<const AdamWTensor> tensors);

// Σ x² over everything, in fp64.
double sum_of_squares(std::span<const std::span<const float>> tensors);

}  // namespace freeformer::kernels
