// Weights in and out of a model, by the tensor manifest.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/checkpoint.h"
#include "model/free_transformer.h"

namespace freeformer {

inline constexpr const char* kReadoutWeight = "model.latent.readout.weight";
inline constexpr const char* kTableWeight = "model.latent.post_sampler.weight";

// How the table W of codes begins.
enum class TableInit {
  kRandom,  // every row ~ N(0, initializer_range²), like every other matrix
  kBits,    // row c is Σ_h ±v_h / sqrt(Z): one vector per bit, its sign the bit. Same variance.
};

// Matrices, ζ and the latent's table ~ N(0, initializer_range²), norms 1. Depends on the seed
// alone, not on device, dtype or LibTorch's version.
void initialize(FreeTransformer& model, uint64_t seed, TableInit table = TableInit::kRandom);
// One of them, fp32 on the CPU.
Tensor initial_weight(const ModelConfig& config, const std::string& name, uint64_t seed,
                      TableInit table = TableInit::kRandom);

// Copies every tensor, converted to the parameter's dtype and moved to its device.
void load_weights(FreeTransformer& model, const Checkpoint& checkpoint);

// A copy of a stored tensor on the CPU, in its stored dtype.
Tensor to_tensor(const TensorInfo& info, std::span<const std::byte> data);

// A tensor's bytes for writing; it must be on the CPU, contiguous, and outlive the result.
TensorToWrite to_write(const std::string& name, const Tensor& tensor);

// Writes config.json and the weights; each file appears whole or not at all.
void save_weights(const FreeTransformer& model, const std::filesystem::path& folder);
// The same with other values for the parameters: fp32 masters of a bf16 model.
void save_weights(const ModelConfig& config, const std::map<std::string, Tensor>& parameters,
                  const std::filesystem::path& folder);

}  // namespace freeformer
