// Small models for tests.
#pragma once

#include "model/free_transformer.h"
#include "model/weights.h"
#include "ops/binary_mapper.h"

namespace freeformer {

inline constexpr int kTinyBits = 5;

inline ModelConfig tiny_config(int bits) {
  ModelConfig config;
  config.vocab_size = 23;
  config.hidden_size = 12;
  config.intermediate_size = 20;
  config.num_hidden_layers = 4;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 6;  // not hidden_size / heads
  config.max_position_embeddings = 32;
  config.initializer_range = 0.3;  // large enough for every path to matter
  if (bits > 0) config.latent = {LatentKind::kBinary, bits, 0.25};
  return config;
}

inline FreeTransformer tiny_model(const ModelConfig& config, uint64_t seed = 1) {
  FreeTransformer model(config);
  initialize(model, seed);
  return model;
}

inline Tensor tiny_tokens(int64_t B, int64_t T, uint64_t seed = 3) {
  return at::randint(23, {B, T}, at::detail::createCPUGenerator(seed), at::kLong);
}

}  // namespace freeformer
