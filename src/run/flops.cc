#include "run/flops.h"

#include "core/tensor_manifest.h"

namespace freeformer {

double training_flops_per_token(const ModelConfig& config, int64_t T, int64_t gradient_group) {
  const auto D = double(config.hidden_size), V = double(config.vocab_size);
  const double attention = double(config.num_attention_heads * config.head_dim * T);
  double weights = config.tie_word_embeddings ? V * D : 0;  // the embedding read out again
  for (const TensorSpec& spec : tensor_manifest(config)) {
    const bool is_table =
        spec.part == ModelPart::kEmbedding || spec.part == ModelPart::kPostSampler;
    if (spec.shape.size() == 2 && !is_table) weights += double(spec.element_count());
  }
  double flops = 6 * weights + 6 * double(config.num_hidden_layers) * attention;
  if (config.latent.present()) {
    flops += 12 * attention + 2 * D * double(config.code_count()) / double(gradient_group);
  }
  return flops;
}

}  // namespace freeformer
