// The arithmetic of training, counted: multiplications and additions of the matrix products that
// one token needs in a forward and a backward pass.
//
//   6 · (weights of all matrices that multiply: blocks, encoder, read-outs)
//   + 6 · L · N·H · T     causal attention: scores and sums, half of T on average, three passes
//   + 12 · N·H · T        the encoder's attention, which is not causal
//   + 2 · D · 2^Z / g     the gradient of the latent's logits, from one token in g (exact: 1)
#pragma once

#include "core/model_config.h"

namespace freeformer {

double training_flops_per_token(const ModelConfig& config, int64_t T, int64_t gradient_group = 1);

}  // namespace freeformer
