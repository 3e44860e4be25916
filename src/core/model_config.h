// What the weights mean: the model's shape, read from and written to a Hugging Face config.json.
// How a run goes (optimiser, schedule, data) is not here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/shape.h"

namespace freeformer {

enum class LatentKind { kNone, kBinary };

// The latent path of the Free Transformer (the paper's § 3). With kNone the model is a
// plain Llama decoder and its checkpoint a plain Llama checkpoint.
struct LatentConfig {
  LatentKind kind = LatentKind::kNone;
  int bits = 0;             // Z: bits per token; codes C = 2^Z
  double kappa_bits = 0.5;  // κ: free bits per token

  bool present() const { return kind != LatentKind::kNone; }
  bool operator==(const LatentConfig&) const = default;
};

struct ModelConfig {
  int64_t vocab_size = 0;           // V
  int64_t hidden_size = 0;          // D
  int64_t intermediate_size = 0;    // F
  int64_t num_hidden_layers = 0;    // L
  int64_t num_attention_heads = 0;  // N
  int64_t num_key_value_heads = 0;  // K, divides N
  int64_t head_dim = 0;             // H, even; need not be D / N
  int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000.0;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  std::string torch_dtype = "float32";  // of the stored weights: float32, bfloat16 or float16
  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_id;  // any of these ends a text
  LatentConfig latent;

  // The block that takes the codes (0-based), and the number of blocks the encoder shares.
  int64_t middle_layer() const { return num_hidden_layers / 2; }
  int64_t code_count() const { return latent.present() ? freeformer::code_count(latent.bits) : 0; }

  bool operator==(const ModelConfig&) const = default;
};

// Throws kInvalidConfig; `where` names the file. Keys that Freeformer does not know are ignored, as
// every reader of config.json does, unless they change the mathematics (biases, RoPE scaling,
// another activation, …): those are refused.
ModelConfig parse_model_config(const std::string& json_text, const std::string& where);
ModelConfig read_model_config(const std::filesystem::path& path);

// The text of config.json. parse(write(c)) == c.
std::string write_model_config(const ModelConfig& config);

// Every constraint between the fields; parse_model_config has called it.
void validate(const ModelConfig& config, const std::string& where);

}  // namespace freeformer
