// Checkpoint folders: the golden ones, small ones written here, and ones with something wrong.
#include "core/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/tensor_manifest.h"
#include "expect_error.h"
#include "small_config.h"
#include "temporary_folder.h"

namespace freeformer {
namespace {

namespace fs = std::filesystem;

ModelConfig tied_config() {
  ModelConfig config = small_config(3);
  config.tie_word_embeddings = true;
  return config;
}

struct Weight {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

Weight make_weight(const std::string& name, DType dtype, std::vector<int64_t> shape) {
  int64_t bits = bit_size(dtype);
  for (const int64_t size : shape) bits *= size;
  Weight weight{name, dtype, std::move(shape), {}};
  for (int64_t i = 0; i < bits / 8; ++i) weight.bytes.push_back(std::byte(name.size() + size_t(i)));
  return weight;
}

// A checkpoint to be spoilt before it is written.
struct CheckpointToWrite {
  explicit CheckpointToWrite(const ModelConfig& model = small_config(3)) : config(model) {
    for (const TensorSpec& spec : tensor_manifest(config)) {
      weights.push_back(make_weight(spec.name, DType::kF32, spec.shape));
    }
  }

  Weight& weight(const std::string& name) {
    return *std::find_if(weights.begin(), weights.end(),
                         [&](const Weight& weight) { return weight.name == name; });
  }

  void write_config() const {
    std::ofstream(folder.path() / "config.json") << write_model_config(config);
  }

  void write_weights(const std::string& file, size_t begin, size_t end) const {
    std::vector<TensorToWrite> list;
    for (size_t i = begin; i < end; ++i) {
      list.push_back({weights[i].name, weights[i].dtype, weights[i].shape, weights[i].bytes});
    }
    write_safetensors(folder.path() / file, list);
  }

  void write_single() const {
    write_config();
    write_weights("model.safetensors", 0, weights.size());
  }

  // Half of the weights in each of two shards. Returns the index for the caller to write.
  Json write_shards() const {
    write_config();
    const size_t half = weights.size() / 2;
    write_weights(kFirst, 0, half);
    write_weights(kSecond, half, weights.size());
    Json index;
    for (size_t i = 0; i < weights.size(); ++i) {
      index["weight_map"][weights[i].name] = i < half ? kFirst : kSecond;
    }
    index["metadata"]["total_size"] = 1;
    return index;
  }

  void write_index(const Json& index) const {
    std::ofstream(folder.path() / "model.safetensors.index.json") << index;
  }

  static constexpr const char* kFirst = "model-00001-of-00002.safetensors";
  static constexpr const char* kSecond = "model-00002-of-00002.safetensors";

  ModelConfig config;
  std::vector<Weight> weights;
  TemporaryFolder folder;
};

void expect_refused(const CheckpointToWrite& written, const std::string& words) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, words, Checkpoint(written.folder.path()));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, written.folder.path().string(),
                          Checkpoint(written.folder.path()));
}

void expect_holds(const Checkpoint& checkpoint, const CheckpointToWrite& written) {
  EXPECT_EQ(checkpoint.config(), written.config);
  for (const Weight& weight : written.weights) {
    const Checkpoint::Tensor tensor = checkpoint.tensor(weight.name);
    EXPECT_EQ(tensor.info->name, weight.name);
    EXPECT_EQ(tensor.info->dtype, weight.dtype);
    EXPECT_EQ(tensor.info->shape, weight.shape);
    EXPECT_TRUE(std::ranges::equal(tensor.data, weight.bytes)) << weight.name;
  }
}

TEST(Checkpoint, OpensTheGoldenCases) {
  for (const char* name : {"baseline-untied", "free-h10-untied", "free-h6-tied"}) {
    const fs::path folder = fs::path(FREEFORMER_GOLDEN_DIR) / name;
    const Checkpoint checkpoint(folder);
    EXPECT_EQ(checkpoint.folder(), folder);
    EXPECT_EQ(checkpoint.config(), read_model_config(folder / "config.json"));
    EXPECT_EQ(checkpoint.total_bytes(), uint64_t(4 * parameter_count(checkpoint.config())));
    for (const TensorSpec& spec : tensor_manifest(checkpoint.config())) {
      const Checkpoint::Tensor tensor = checkpoint.tensor(spec.name);
      EXPECT_EQ(tensor.info->shape, spec.shape) << spec.name;
      EXPECT_EQ(tensor.data.size(), size_t(4 * spec.element_count())) << spec.name;
    }
  }
}

TEST(Checkpoint, OpensASingleFile) {
  const CheckpointToWrite written;
  written.write_single();
  expect_holds(Checkpoint(written.folder.path()), written);
}

TEST(Checkpoint, OpensShards) {
  const CheckpointToWrite written;
  written.write_index(written.write_shards());
  const Checkpoint checkpoint(written.folder.path());
  expect_holds(checkpoint, written);
  EXPECT_EQ(checkpoint.total_bytes(), uint64_t(4 * parameter_count(written.config)));
}

TEST(Checkpoint, AcceptsEachFloatingPointWeight) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    CheckpointToWrite written;
    for (Weight& weight : written.weights) {
      weight = make_weight(weight.name, dtype, weight.shape);
    }
    written.write_single();
    const Checkpoint checkpoint(written.folder.path());
    expect_holds(checkpoint, written);
    EXPECT_EQ(checkpoint.total_bytes(),
              uint64_t(bit_size(dtype) / 8 * parameter_count(written.config)));
  }
}

TEST(Checkpoint, StaysValidWhenItsFileIsReplaced) {
  CheckpointToWrite written;
  written.write_single();
  const Checkpoint checkpoint(written.folder.path());
  write_safetensors(written.folder.path() / "model.safetensors", {});
  expect_holds(checkpoint, written);
}

TEST(Checkpoint, RefusesToGiveATensorItDoesNotHave) {
  const CheckpointToWrite written;
  written.write_single();
  const Checkpoint checkpoint(written.folder.path());
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "at core/checkpoint.cc:",
                          checkpoint.tensor("model.layers.2.mlp.up_proj.weight"));
}

// --- Files that are not there

TEST(Checkpoint, RefusesAMissingFolder) {
  const TemporaryFolder folder;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "none: not a folder; expected a checkpoint with config",
                          Checkpoint(folder.path() / "none"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "xxx",  // too long a name, and too long a message
                          Checkpoint(folder.path() / std::string(5000, 'x')));
}

TEST(Checkpoint, RefusesAFileForAFolder) {
  const CheckpointToWrite written;
  written.write_single();
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "config.json: not a folder",
                          Checkpoint(written.folder.path() / "config.json"));
}

TEST(Checkpoint, RefusesAFolderWithoutConfig) {
  const TemporaryFolder folder;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "config.json: cannot open: No such file",
                          Checkpoint(folder.path()));
}

TEST(Checkpoint, RefusesAFolderWithoutWeights) {
  const CheckpointToWrite written;
  written.write_config();
  expect_refused(written, "no weights: expected model.safetensors or model.safetensors.index.json");
}

TEST(Checkpoint, RefusesWeightsCutShort) {
  const CheckpointToWrite written;
  written.write_single();
  const fs::path file = written.folder.path() / "model.safetensors";
  fs::resize_file(file, fs::file_size(file) - 1);
  expect_refused(written, "model.safetensors: truncated: the tensors take");
}

// --- Tensors that are not what the config promises

TEST(Checkpoint, RefusesAMissingTensor) {
  CheckpointToWrite written;
  std::erase_if(written.weights,
                [](const Weight& weight) { return weight.name == "model.latent.readout.weight"; });
  written.write_single();
  expect_refused(written,
                 "has no tensor 'model.latent.readout.weight' of shape [3, 8], which config.json "
                 "promises");
}

TEST(Checkpoint, RefusesAWrongShape) {
  CheckpointToWrite written;
  written.weight("model.layers.1.self_attn.q_proj.weight").shape = {8, 12};
  written.write_single();
  expect_refused(written,
                 "tensor 'model.layers.1.self_attn.q_proj.weight' has shape [8, 12], expected "
                 "[12, 8] by config.json");
}

TEST(Checkpoint, RefusesTheRightSizeInAnotherRank) {
  CheckpointToWrite written;
  written.weight("model.norm.weight").shape = {1, 8};
  written.write_single();
  expect_refused(written, "tensor 'model.norm.weight' has shape [1, 8], expected [8]");
}

TEST(Checkpoint, RefusesDtypesThatAreNoWeights) {
  for (const DType dtype : {DType::kI32, DType::kF64, DType::kU8, DType::kF8E4M3}) {
    CheckpointToWrite written;
    Weight& weight = written.weight("model.norm.weight");
    weight = make_weight(weight.name, dtype, weight.shape);
    written.write_single();
    expect_refused(written, "tensor 'model.norm.weight' is " + std::string(name(dtype)) +
                                ", expected F32, BF16 or F16");
  }
}

TEST(Checkpoint, RefusesAnUnexpectedTensor) {
  CheckpointToWrite written;
  written.weights.push_back(make_weight("model.layers.0.self_attn.q_proj.bias", DType::kF32, {12}));
  written.write_single();
  expect_refused(written, "unexpected tensor 'model.layers.0.self_attn.q_proj.bias'");
}

TEST(Checkpoint, RefusesTheLatentOfAFreeTransformerInAPlainModel) {
  CheckpointToWrite written;
  written.config.latent = {};
  written.write_single();
  expect_refused(written, "unexpected tensor 'model.latent.");
}

TEST(Checkpoint, IgnoresRotaryFrequencies) {
  CheckpointToWrite written;
  const char* extra = "model.layers.0.self_attn.rotary_emb.inv_freq";
  written.weights.push_back(make_weight(extra, DType::kF32, {3}));
  written.write_single();
  EXPECT_NO_THROW(Checkpoint(written.folder.path()));
}

TEST(Checkpoint, ATiedModelMayStoreTheSameHead) {
  CheckpointToWrite written(tied_config());
  Weight head = written.weight("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  written.weights.push_back(head);
  written.write_single();
  expect_holds(Checkpoint(written.folder.path()), written);
}

TEST(Checkpoint, ATiedModelMayNotStoreAnotherHead) {
  CheckpointToWrite written(tied_config());
  Weight head = written.weight("model.embed_tokens.weight");
  head.name = "lm_head.weight";
  head.bytes.back() ^= std::byte{1};
  written.weights.push_back(head);
  written.write_single();
  expect_refused(written,
                 "'lm_head.weight' differs from the embedding, but config.json says they are tied");
}

TEST(Checkpoint, AnUntiedModelNeedsItsHead) {
  CheckpointToWrite written(tied_config());
  written.config.tie_word_embeddings = false;
  written.write_single();
  expect_refused(written, "has no tensor 'lm_head.weight' of shape [11, 8]");
}

// --- The index of shards

TEST(CheckpointIndex, RefusesAFileOutsideTheFolder) {
  for (const char* file :
       {"../x", "/etc/x", "a/../../x", "sub/model.safetensors", "..", ".", "", "./x"}) {
    const CheckpointToWrite written;
    Json index = written.write_shards();
    index["weight_map"]["model.norm.weight"] = file;
    written.write_index(index);
    expect_refused(written, "'model.norm.weight' names '" + std::string(file) +
                                "', expected a file in the same folder");
  }
}

TEST(CheckpointIndex, RefusesAMissingShard) {
  const CheckpointToWrite written;
  written.write_index(written.write_shards());
  fs::remove(written.folder.path() / CheckpointToWrite::kSecond);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo,
                          std::string(CheckpointToWrite::kSecond) + ": cannot open: No such file",
                          Checkpoint(written.folder.path()));
}

TEST(CheckpointIndex, RefusesATensorThatIsNotInItsShard) {
  const CheckpointToWrite written;
  Json index = written.write_shards();
  index["weight_map"]["model.norm.weight"] = CheckpointToWrite::kFirst;
  written.write_index(index);
  expect_refused(written, std::string(CheckpointToWrite::kFirst) +
                              ": has no tensor 'model.norm.weight', which the index says it holds");
}

TEST(CheckpointIndex, RefusesAShardsTensorThatItDoesNotName) {
  const CheckpointToWrite written;
  Json index = written.write_shards();
  index["weight_map"].erase("model.norm.weight");
  written.write_index(index);
  expect_refused(written, std::string(CheckpointToWrite::kSecond) +
                              ": holds 'model.norm.weight', which the index does not name");
}

TEST(CheckpointIndex, RefusesATensorThatTwoShardsHold) {
  const CheckpointToWrite written;
  written.write_index(written.write_shards());
  // Everything again in the second shard: which copy counts would depend on the reader.
  written.write_weights(CheckpointToWrite::kSecond, 0, written.weights.size());
  expect_refused(written, std::string("which the index says is in ") + CheckpointToWrite::kFirst);
}

TEST(CheckpointIndex, RefusesAFileNameWithANul) {
  const CheckpointToWrite written;
  Json index = written.write_shards();
  index["weight_map"]["model.norm.weight"] =
      std::string(CheckpointToWrite::kSecond) + std::string(1, '\0') + "x";
  written.write_index(index);
  expect_refused(written, "expected a file in the same folder");
}

TEST(CheckpointIndex, RefusesAMapThatIsNone) {
  const CheckpointToWrite written;
  const Json index = written.write_shards();
  for (const Json& bad :
       {Json(), Json::array(), Json::object(), Json(3), Json{{"metadata", index["metadata"]}},
        Json{{"weight_map", "a"}}, Json{{"weight_map", Json::array()}}}) {
    written.write_index(bad);
    expect_refused(written, "model.safetensors.index.json: has no \"weight_map\" object");
  }
}

TEST(CheckpointIndex, RefusesAMapWithoutATensor) {
  const CheckpointToWrite written;
  written.write_shards();
  written.write_index({{"weight_map", Json::object()}});
  expect_refused(written, "has no tensor 'model.embed_tokens.weight'");
}

TEST(CheckpointIndex, RefusesAnEntryThatIsNoFileName) {
  const CheckpointToWrite written;
  Json index = written.write_shards();
  index["weight_map"]["model.norm.weight"] = 2;
  written.write_index(index);
  expect_refused(written,
                 "\"weight_map\": 'model.norm.weight' is a whole number, expected a file name");
}

TEST(CheckpointIndex, RefusesTextThatIsNotJson) {
  const CheckpointToWrite written;
  written.write_shards();
  std::ofstream(written.folder.path() / "model.safetensors.index.json") << "weight_map";
  expect_refused(written, "model.safetensors.index.json is not JSON");
}

TEST(CheckpointIndex, RefusesATensorNamedTwice) {
  const CheckpointToWrite written;
  written.write_shards();
  std::ofstream(written.folder.path() / "model.safetensors.index.json")
      << R"({"weight_map": {"a": "x", "a": "y"}})";
  expect_refused(written, "model.safetensors.index.json has the key 'a' twice");
}

// --- Writing

std::vector<TensorToWrite> tensors_of(const CheckpointToWrite& written) {
  std::vector<TensorToWrite> tensors;
  for (const Weight& weight : written.weights) {
    tensors.push_back({weight.name, weight.dtype, weight.shape, weight.bytes});
  }
  return tensors;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

uint64_t total_bytes(const CheckpointToWrite& written) {
  uint64_t total = 0;
  for (const Weight& weight : written.weights) total += weight.bytes.size();
  return total;
}

TEST(WriteCheckpoint, WritesOneFileUpToTheLimit) {
  for (const ModelConfig& config : {small_config(0), small_config(3), tied_config()}) {
    const CheckpointToWrite written(config);
    const fs::path folder = written.folder.path() / "deep" / "er";
    write_checkpoint(folder, config, tensors_of(written), total_bytes(written));
    EXPECT_EQ(names_in(folder), (std::vector<std::string>{"config.json", "model.safetensors"}));
    expect_holds(Checkpoint(folder), written);
  }
}

TEST(WriteCheckpoint, WritesShardsWithAnIndexOverTheLimit) {
  for (const uint64_t limit : {1000, 2000, 5000}) {
    const CheckpointToWrite written;
    const fs::path folder = written.folder.path();
    write_checkpoint(folder, written.config, tensors_of(written), limit);
    expect_holds(Checkpoint(folder), written);

    const Json index = Json::parse(std::ifstream(folder / "model.safetensors.index.json"));
    EXPECT_EQ(index["metadata"]["total_size"], total_bytes(written));
    EXPECT_EQ(index["weight_map"].size(), written.weights.size());
    for (const Weight& weight : written.weights) {
      EXPECT_TRUE(index["weight_map"].contains(weight.name)) << weight.name;
    }
    size_t found = 0;  // tensors of all shards
    for (const std::string& name : names_in(folder)) {
      if (!name.ends_with(".safetensors")) continue;
      const SafetensorsFile shard(folder / name);
      uint64_t bytes = 0;
      for (const TensorInfo& tensor : shard.tensors()) {
        bytes += tensor.end - tensor.begin;
        ++found;
        EXPECT_EQ(index["weight_map"][tensor.name], name);
      }
      EXPECT_LE(bytes, limit) << name;
    }
    EXPECT_EQ(found, written.weights.size());
  }
}

TEST(WriteCheckpoint, OneByteOverTheLimitMakesTwoShards) {
  const CheckpointToWrite written;
  write_checkpoint(written.folder.path(), written.config, tensors_of(written),
                   total_bytes(written) - 1);
  EXPECT_EQ(names_in(written.folder.path()),
            (std::vector<std::string>{"config.json", CheckpointToWrite::kFirst,
                                      CheckpointToWrite::kSecond, "model.safetensors.index.json"}));
  expect_holds(Checkpoint(written.folder.path()), written);
}

TEST(WriteCheckpoint, GivesATensorOverTheLimitItsOwnShard) {
  const CheckpointToWrite written;
  const fs::path folder = written.folder.path();
  const uint64_t limit = 300;  // norms have 32 bytes, matrices up to 384
  write_checkpoint(folder, written.config, tensors_of(written), limit);
  expect_holds(Checkpoint(folder), written);
  size_t oversized = 0;
  for (const std::string& name : names_in(folder)) {
    if (!name.ends_with(".safetensors")) continue;
    const SafetensorsFile shard(folder / name);
    ASSERT_FALSE(shard.tensors().empty()) << name;
    uint64_t bytes = 0;
    for (const TensorInfo& tensor : shard.tensors()) bytes += tensor.end - tensor.begin;
    if (bytes <= limit) continue;
    EXPECT_EQ(shard.tensors().size(), 1u) << name;
    ++oversized;
  }
  EXPECT_GT(oversized, 0u);
}

TEST(WriteCheckpoint, ATensorAShardIsTheMost) {
  const CheckpointToWrite written;
  write_checkpoint(written.folder.path(), written.config, tensors_of(written), 1);
  EXPECT_EQ(names_in(written.folder.path()).size(), written.weights.size() + 2);
  expect_holds(Checkpoint(written.folder.path()), written);
}

}  // namespace
}  // namespace freeformer
