// A small model whose sizes all differ, so that a shape cannot be right by accident.
#pragma once

#include "core/model_config.h"

namespace freeformer {

// A query's size is 12, a key's 6. Plain with 0 bits.
inline ModelConfig small_config(int latent_bits) {
  ModelConfig config;
  config.vocab_size = 11;
  config.hidden_size = 8;
  config.intermediate_size = 10;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 1;
  config.head_dim = 6;
  if (latent_bits > 0) config.latent = {LatentKind::kBinary, latent_bits, 0.5};
  return config;
}

}  // namespace freeformer
