// A checkpoint folder in Hugging Face layout: config.json and model.safetensors (or shards with
// model.safetensors.index.json). Opening it proves that every tensor the
// config promises is there with its shape, and that nothing else is.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model_config.h"
#include "core/safetensors.h"

namespace freeformer {

class Checkpoint {
 public:
  explicit Checkpoint(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const ModelConfig& config() const { return config_; }

  struct Tensor {
    const TensorInfo* info;
    std::span<const std::byte> data;  // mapped; lives as long as the Checkpoint
  };
  // `name` is one of tensor_manifest(config()).
  Tensor tensor(std::string_view name) const;

  uint64_t total_bytes() const;  // of all weights

 private:
  void open_shards();
  void check_against_manifest() const;

  std::filesystem::path folder_;
  ModelConfig config_;
  std::vector<SafetensorsFile> shards_;
  std::map<std::string, size_t, std::less<>> shard_of_;  // tensor name -> index into shards_
};

// Writes config.json and the weights: model.safetensors, or shards with an index where they are
// over `shard_bytes` (Hugging Face's limit). Each file appears whole or not at all.
void write_checkpoint(const std::filesystem::path& folder, const ModelConfig& config,
                      std::vector<TensorToWrite> tensors, uint64_t shard_bytes = 5'000'000'000);

}  // namespace freeformer
