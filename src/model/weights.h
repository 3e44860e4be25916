// Weights in and out of a model, by the tensor manifest.
#pragma once

#include <cstdint>

#include "core/checkpoint.h"
#include "model/free_transformer.h"

namespace freeformer {

// Matrices, ζ and the latent's table ~ N(0, initializer_range²), norms 1. Depends on the seed
// alone, not on device, dtype or LibTorch's version.
void initialize(FreeTransformer& model, uint64_t seed);

// Copies every tensor, converted to the parameter's dtype and moved to its device.
void load_weights(FreeTransformer& model, const Checkpoint& checkpoint);

// A copy of a stored tensor on the CPU, in its stored dtype.
Tensor to_tensor(const TensorInfo& info, std::span<const std::byte> data);

// Writes config.json and model.safetensors; each file appears whole or not at all.
void save_weights(const FreeTransformer& model, const std::filesystem::path& folder);

}  // namespace freeformer
