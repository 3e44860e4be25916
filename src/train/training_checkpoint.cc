#include "train/training_checkpoint.h"

#include <cmath>
#include <map>

#include "core/checkpoint.h"
#include "core/error.h"
#include "model/weights.h"
#include "run/run_folder.h"

namespace freeformer {
namespace {

constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "trainer_state.json";

OrderedJson to_json(const TrainerState& state) {
  OrderedJson json;
  json["step"] = state.step;
  json["tokens"] = state.tokens;
  json["next_row"] = state.next_row;
  json["data"] = state.data;
  json["evaluated_step"] = state.evaluated_step;
  json["best_bound"] = std::isnan(state.best_bound) ? OrderedJson() : OrderedJson(state.best_bound);
  json["best_step"] = state.best_step;
  json["wake_step"] = state.wake_step;
  json["pending"] = state.pending;
  return json;
}

TrainerState read_state(const std::filesystem::path& path) {
  const std::string text = read_text_file(path);
  parse_json(text, path.string(), ErrorCode::kBadCheckpoint);  // strict
  const OrderedJson json = OrderedJson::parse(text);
  try {
    TrainerState state;
    state.step = json.at("step").get<int64_t>();
    state.tokens = json.at("tokens").get<int64_t>();
    state.next_row = json.at("next_row").get<uint64_t>();
    state.data = json.at("data").get<std::string>();
    state.evaluated_step = json.at("evaluated_step").get<int64_t>();
    if (!json.at("best_bound").is_null()) state.best_bound = json["best_bound"].get<double>();
    state.best_step = json.at("best_step").get<int64_t>();
    state.wake_step = json.value("wake_step", int64_t{0});
    state.pending = json.at("pending");
    return state;
  } catch (const OrderedJson::exception& error) {
    reject_file(path.string(), "{}", error.what());
  }
}

// The first key of the two models' config.json that differs and matters.
void require_same_shape(const ModelConfig& found, const ModelConfig& expected,
                        const std::filesystem::path& where) {
  const Json a = Json::parse(write_model_config(found));
  const Json b = Json::parse(write_model_config(expected));
  for (const auto& [key, value] : b.items()) {
    Json other = a.contains(key) ? a[key] : Json(), own = value;
    if (key == "torch_dtype" || key == "initializer_range" || key == "architectures") continue;
    if (key == "latent" && other.is_object()) {
      other.erase("kappa_bits");  // a matter of training, not of shape
      own.erase("kappa_bits");
    }
    if (other != own) {
      reject_file(where.string(),
                  "a checkpoint of another shape: \"{}\" is {}, the settings say {}", key,
                  other.dump(), own.dump());
    }
  }
  if (a.contains("latent") && !b.contains("latent")) {
    reject_file(where.string(),
                "a checkpoint of another shape: it has a latent, the settings say latent.bits = 0");
  }
}

}  // namespace

void write_training_checkpoint(const std::filesystem::path& folder, const ModelConfig& config,
                               const AdamW& optimizer, const TrainerState& state,
                               const Tokenizer* tokenizer, const std::string& settings) {
  save_weights(config, optimizer.masters(), folder);
  std::vector<Tensor> kept;
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, tensor] : optimizer.state()) {
    kept.push_back(tensor.cpu().contiguous());
    tensors.push_back(to_write(name, kept.back()));
  }
  write_safetensors(folder / kOptimizer, std::move(tensors));
  if (tokenizer != nullptr) write_file_atomically(folder / "tokenizer.json", tokenizer->to_json());
  write_file_atomically(folder / "config.toml", settings);
  write_file_atomically(folder / kState, to_text(to_json(state), 2) + "\n");
}

TrainerState read_training_checkpoint(const std::filesystem::path& folder,
                                      const ModelConfig& config, AdamW& optimizer) {
  verify_checksums(folder);
  const Checkpoint checkpoint(folder);
  require_same_shape(checkpoint.config(), config, folder);
  const TrainerState state = read_state(folder / kState);
  const torch::NoGradGuard no_grad;
  for (auto& [name, master] : optimizer.masters()) {
    const auto [info, data] = checkpoint.tensor(name);
    Tensor(master).copy_(to_tensor(*info, data));
  }
  optimizer.refresh_model();
  const SafetensorsFile file(folder / kOptimizer);
  std::map<std::string, Tensor> tensors;
  for (const TensorInfo& info : file.tensors()) {
    tensors[info.name] = to_tensor(info, file.data(info));
  }
  optimizer.load_state(tensors, (folder / kOptimizer).string());
  return state;
}

}  // namespace freeformer
