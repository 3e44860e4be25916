// The one table of a checkpoint's tensors: name, shape and part of the model. The LibTorch model,
// the native runtime, `info` and the checkpoint reader all follow it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model_config.h"

namespace freeformer {

enum class ModelPart { kEmbedding, kAttention, kMlp, kNorm, kHead, kEncoder, kPostSampler };

const char* name(ModelPart part);

struct TensorSpec {
  std::string name;            // Hugging Face's Llama names; the latent's under model.latent
  std::vector<int64_t> shape;  // [out, in] for a linear layer
  ModelPart part = ModelPart::kEmbedding;

  int64_t element_count() const;
};

// In the order of the forward pass. A tied model has no lm_head.weight.
std::vector<TensorSpec> tensor_manifest(const ModelConfig& config);

int64_t parameter_count(const ModelConfig& config);

}  // namespace freeformer
