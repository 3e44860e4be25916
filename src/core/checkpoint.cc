#include "core/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "core/tensor_manifest.h"

namespace freeformer {
namespace {

bool is_weight_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

// Old exports store RoPE's frequencies, a function of the config, beside the weights.
bool is_harmless_extra(std::string_view name) {
  return name.ends_with(".self_attn.rotary_emb.inv_freq");
}

// The shards' file names, from the index's weight_map.
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  const Json json = parse_json(read_text_file(path), path.string(), ErrorCode::kBadCheckpoint);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object()) {
    reject_file(path, "has no \"weight_map\" object");
  }
  std::map<std::string, std::string> shard_of;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) {
      reject_file(path, "\"weight_map\": '{}' is {}, expected a file name", tensor,
                  describe_type(file));
    }
    const auto& file_name = file.get_ref<const std::string&>();
    const bool is_plain_name = std::all_of(file_name.begin(), file_name.end(),
                                           [](char c) { return c != '/' && (c < 0 || c >= ' '); });
    if (file_name.empty() || !is_plain_name || file_name == "." || file_name == "..") {
      reject_file(path, "\"weight_map\": '{}' names '{}', expected a file in the same folder",
                  tensor, file_name);
    }
    shard_of[tensor] = file_name;
  }
  return shard_of;
}

}  // namespace

Checkpoint::Checkpoint(const std::filesystem::path& folder) : folder_(folder) {
  std::error_code ignored;  // a name too long is not a folder either
  if (!std::filesystem::is_directory(folder, ignored)) {
    fail(ErrorCode::kIo, "{}: not a folder; expected a checkpoint with config.json and weights",
         folder.string());
  }
  config_ = read_model_config(folder / "config.json");
  open_shards();
  check_against_manifest();
}

void Checkpoint::open_shards() {
  const auto single = folder_ / "model.safetensors";
  const auto index = folder_ / "model.safetensors.index.json";
  std::error_code ignored;  // what cannot be seen cannot be opened, which says why
  if (std::filesystem::exists(single, ignored)) {
    shards_.emplace_back(single);
    for (const TensorInfo& tensor : shards_[0].tensors()) shard_of_[tensor.name] = 0;
    return;
  }
  if (!std::filesystem::exists(index, ignored)) {
    reject_file(folder_, "no weights: expected model.safetensors or model.safetensors.index.json");
  }
  const auto file_of = read_index(index);
  std::map<std::string, size_t> opened;
  for (const auto& [tensor, file] : file_of) {
    const auto [entry, is_new] = opened.try_emplace(file, shards_.size());
    if (is_new) shards_.emplace_back(folder_ / file);
    if (shards_[entry->second].find(tensor) == nullptr) {
      reject_file(folder_ / file, "has no tensor '{}', which the index says it holds", tensor);
    }
    shard_of_[tensor] = entry->second;
  }
  for (const SafetensorsFile& shard : shards_) {
    for (const TensorInfo& tensor : shard.tensors()) {
      const auto named = shard_of_.find(tensor.name);
      if (named == shard_of_.end()) {
        reject_file(shard.path(), "holds '{}', which the index does not name", tensor.name);
      }
      if (&shards_[named->second] != &shard) {
        reject_file(shard.path(), "holds '{}', which the index says is in {}", tensor.name,
                    shards_[named->second].path().filename().string());
      }
    }
  }
}

void Checkpoint::check_against_manifest() const {
  std::set<std::string, std::less<>> expected;
  for (const TensorSpec& spec : tensor_manifest(config_)) {
    const auto found = shard_of_.find(spec.name);
    if (found == shard_of_.end()) {
      reject_file(folder_, "has no tensor '{}' of shape {}, which config.json promises", spec.name,
                  describe_shape(spec.shape));
    }
    const SafetensorsFile& shard = shards_[found->second];
    const TensorInfo& info = *shard.find(spec.name);
    if (info.shape != spec.shape) {
      reject_file(shard.path(), "tensor '{}' has shape {}, expected {} by config.json", spec.name,
                  describe_shape(info.shape), describe_shape(spec.shape));
    }
    if (!is_weight_dtype(info.dtype)) {
      reject_file(shard.path(), "tensor '{}' is {}, expected F32, BF16 or F16", spec.name,
                  name(info.dtype));
    }
    expected.insert(spec.name);
  }
  for (const auto& [tensor_name, shard] : shard_of_) {
    if (expected.contains(tensor_name) || is_harmless_extra(tensor_name)) continue;
    // Some exports of a tied model store the embedding twice. The same bytes are harmless.
    if (tensor_name == "lm_head.weight" && config_.tie_word_embeddings) {
      const auto head = tensor(tensor_name).data;
      const auto embedding = tensor("model.embed_tokens.weight").data;
      if (std::ranges::equal(head, embedding)) continue;
      reject_file(
          shards_[shard].path(),
          "'lm_head.weight' differs from the embedding, but config.json says they are tied");
    }
    reject_file(shards_[shard].path(), "unexpected tensor '{}' for this config.json", tensor_name);
  }
}

Checkpoint::Tensor Checkpoint::tensor(std::string_view name) const {
  const auto found = shard_of_.find(name);
  FF_CHECK(found != shard_of_.end());
  const SafetensorsFile& shard = shards_[found->second];
  const TensorInfo* info = shard.find(name);
  return {info, shard.data(*info)};
}

uint64_t Checkpoint::total_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, shard] : shard_of_) {
    const TensorInfo& info = *shards_[shard].find(name);
    bytes += info.end - info.begin;
  }
  return bytes;
}

void write_checkpoint(const std::filesystem::path& folder, const ModelConfig& config,
                      std::vector<TensorToWrite> tensors, uint64_t shard_bytes) {
  std::filesystem::create_directories(folder);
  // In the order given, which is the forward pass's: a reader of one shard gets whole layers.
  std::vector<std::vector<TensorToWrite>> shards(1);
  uint64_t total = 0, in_shard = 0;
  for (TensorToWrite& tensor : tensors) {
    if (in_shard > 0 && in_shard + tensor.data.size() > shard_bytes) {
      shards.emplace_back();
      in_shard = 0;
    }
    in_shard += tensor.data.size();
    total += tensor.data.size();
    shards.back().push_back(std::move(tensor));
  }
  if (shards.size() == 1) {
    write_safetensors(folder / "model.safetensors", std::move(shards[0]));
  } else {
    OrderedJson index;
    index["metadata"]["total_size"] = total;
    for (size_t i = 0; i < shards.size(); ++i) {
      const auto file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
      for (const TensorToWrite& tensor : shards[i]) index["weight_map"][tensor.name] = file;
      write_safetensors(folder / file, std::move(shards[i]));
    }
    write_file_atomically(folder / "model.safetensors.index.json", to_text(index, 2) + "\n");
  }
  write_file_atomically(folder / "config.json", write_model_config(config));
}

}  // namespace freeformer
