#include "core/tensor_manifest.h"

namespace freeformer {
namespace {

// One transformer block under `prefix`. The whole of the encoder's block counts as the encoder.
void add_block(const ModelConfig& config, const std::string& prefix, bool encoder,
               std::vector<TensorSpec>& table) {
  const int64_t D = config.hidden_size, F = config.intermediate_size;
  const int64_t q_size = config.num_attention_heads * config.head_dim;
  const int64_t kv_size = config.num_key_value_heads * config.head_dim;
  const auto add = [&](const char* name, std::vector<int64_t> shape, ModelPart part) {
    table.push_back(
        {prefix + name + ".weight", std::move(shape), encoder ? ModelPart::kEncoder : part});
  };
  add("input_layernorm", {D}, ModelPart::kNorm);
  add("self_attn.q_proj", {q_size, D}, ModelPart::kAttention);
  add("self_attn.k_proj", {kv_size, D}, ModelPart::kAttention);
  add("self_attn.v_proj", {kv_size, D}, ModelPart::kAttention);
  add("self_attn.o_proj", {D, q_size}, ModelPart::kAttention);
  add("post_attention_layernorm", {D}, ModelPart::kNorm);
  add("mlp.gate_proj", {F, D}, ModelPart::kMlp);
  add("mlp.up_proj", {F, D}, ModelPart::kMlp);
  add("mlp.down_proj", {D, F}, ModelPart::kMlp);
}

void add_latent(const ModelConfig& config, std::vector<TensorSpec>& table) {
  const int64_t D = config.hidden_size;
  table.push_back({"model.latent.query", {D}, ModelPart::kEncoder});
  add_block(config, "model.latent.encoder.", true, table);
  table.push_back({"model.latent.encoder_norm.weight", {D}, ModelPart::kEncoder});
  table.push_back({"model.latent.readout.weight", {config.latent.bits, D}, ModelPart::kEncoder});
  table.push_back(
      {"model.latent.post_sampler.weight", {config.code_count(), D}, ModelPart::kPostSampler});
}

}  // namespace

const char* name(ModelPart part) {
  switch (part) {
    case ModelPart::kEmbedding:
      return "embedding";
    case ModelPart::kAttention:
      return "attention";
    case ModelPart::kMlp:
      return "mlp";
    case ModelPart::kNorm:
      return "norms";
    case ModelPart::kHead:
      return "read-out";
    case ModelPart::kEncoder:
      return "latent encoder";
    case ModelPart::kPostSampler:
      return "latent table";
  }
  return "unknown";
}

int64_t TensorSpec::element_count() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

std::vector<TensorSpec> tensor_manifest(const ModelConfig& config) {
  const int64_t V = config.vocab_size, D = config.hidden_size;
  std::vector<TensorSpec> table;
  table.push_back({"model.embed_tokens.weight", {V, D}, ModelPart::kEmbedding});
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.latent.present() && layer == config.middle_layer()) add_latent(config, table);
    add_block(config, "model.layers." + std::to_string(layer) + ".", false, table);
  }
  table.push_back({"model.norm.weight", {D}, ModelPart::kNorm});
  if (!config.tie_word_embeddings) {
    table.push_back({"lm_head.weight", {V, D}, ModelPart::kHead});
  }
  return table;
}

int64_t parameter_count(const ModelConfig& config) {
  int64_t count = 0;
  for (const TensorSpec& tensor : tensor_manifest(config)) count += tensor.element_count();
  return count;
}

}  // namespace freeformer
