#include "core/model_config.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/suggest.h"

namespace freeformer {
namespace {

constexpr const char* kPlainArchitecture = "LlamaForCausalLM";
constexpr const char* kFreeArchitecture = "FreeTransformerForCausalLM";
constexpr const char* kPlainModelType = "llama";
constexpr const char* kFreeModelType = "free_transformer";

template <typename... Args>
[[noreturn]] void reject_config(const std::string& where, fmt::format_string<Args...> format,
                                Args&&... args) {
  fail(ErrorCode::kInvalidConfig, "{}: {}", where,
       fmt::format(format, std::forward<Args>(args)...));
}

// The one list of plain fields: reading, writing and the round-trip test follow it.
template <typename Config, typename Visitor>
void visit_fields(Config& config, Visitor&& visit) {
  visit("vocab_size", config.vocab_size);
  visit("hidden_size", config.hidden_size);
  visit("intermediate_size", config.intermediate_size);
  visit("num_hidden_layers", config.num_hidden_layers);
  visit("num_attention_heads", config.num_attention_heads);
  visit("num_key_value_heads", config.num_key_value_heads);
  visit("head_dim", config.head_dim);
  visit("max_position_embeddings", config.max_position_embeddings);
  visit("rms_norm_eps", config.rms_norm_eps);
  visit("rope_theta", config.rope_theta);
  visit("initializer_range", config.initializer_range);
  visit("tie_word_embeddings", config.tie_word_embeddings);
  visit("torch_dtype", config.torch_dtype);
}

bool fits_int64(const Json& value) {
  if (!value.is_number_integer()) return false;
  return !value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t(INT64_MAX);
}

struct Reader {
  const Json& json;
  const std::string& where;
  std::string prefix;  // "latent." inside the latent object

  const Json* find(const char* key) const {
    const auto found = json.find(key);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  }

  [[noreturn]] void wrong_type(const char* key, const char* expected, const Json& value) const {
    reject_config(where, "\"{}{}\" is {} ({}), expected {}", prefix, key, describe_type(value),
                  value.dump(-1, ' ', /*ensure_ascii=*/true).substr(0, 40), expected);
  }

  void operator()(const char* key, int64_t& field) const {
    if (const Json* value = find(key)) {
      if (!fits_int64(*value)) wrong_type(key, "a whole number below 2^63", *value);
      field = value->get<int64_t>();
    }
  }
  void operator()(const char* key, double& field) const {
    if (const Json* value = find(key)) {
      if (!value->is_number()) wrong_type(key, "a number", *value);
      field = value->get<double>();
    }
  }
  void operator()(const char* key, bool& field) const {
    if (const Json* value = find(key)) {
      if (!value->is_boolean()) wrong_type(key, "true or false", *value);
      field = value->get<bool>();
    }
  }
  void operator()(const char* key, std::string& field) const {
    if (const Json* value = find(key)) {
      if (!value->is_string()) wrong_type(key, "a string", *value);
      field = value->get<std::string>();
    }
  }
};

LatentConfig parse_latent(const Json& json, const std::string& where) {
  if (!json.is_object()) {
    reject_config(where, "\"latent\" is {}, expected an object", describe_type(json));
  }
  // Unlike the outer object this one is ours: a key that means nothing is a mistake. The last three
  // are the axes on which other systems differ from the paper; only the paper's values exist.
  static const std::vector<std::string> known = {"kind",    "bits",   "kappa_bits",
                                                 "encoder", "inject", "scope"};
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      reject_config(where, "unknown key \"latent.{}\"{}", key, suggest(key, known));
    }
  }
  const Reader read{json, where, "latent."};
  LatentConfig latent;
  std::string kind = "none", encoder = "shared", inject = "middle_kv", scope = "token";
  int64_t bits = 0;
  read("kind", kind);
  read("bits", bits);
  read("kappa_bits", latent.kappa_bits);
  read("encoder", encoder);
  read("inject", inject);
  read("scope", scope);
  const auto only = [&](const char* key, const std::string& value, const char* supported) {
    if (value != supported) {
      reject_config(where, "\"latent.{}\" is \"{}\", expected \"{}\"", key, value, supported);
    }
  };
  if (kind == "none") {
    for (const auto& [key, value] : json.items()) {
      if (key == "kind" || (key == "bits" && bits == 0)) continue;
      reject_config(where, "\"latent.{}\" has no effect with kind \"none\"", key);
    }
    return {};
  }
  if (kind != "binary") {
    reject_config(where, "\"latent.kind\" is \"{}\", expected \"none\" or \"binary\"", kind);
  }
  only("encoder", encoder, "shared");
  only("inject", inject, "middle_kv");
  only("scope", scope, "token");
  if (bits < 1 || bits > kMaxLatentBits) {
    reject_config(where, "\"latent.bits\" is {}, expected 1 to {}", bits, kMaxLatentBits);
  }
  latent.kind = LatentKind::kBinary;
  latent.bits = int(bits);
  return latent;
}

void refuse_partial_rotary(const Reader& read) {
  double rotary_part = 1.0;
  read("partial_rotary_factor", rotary_part);
  if (rotary_part != 1.0) {
    reject_config(read.where, "\"{}partial_rotary_factor\" is {}, expected 1", read.prefix,
                  rotary_part);
  }
}

// Keys of other Llama-like models that would change the mathematics: only these values do not.
void refuse_other_mathematics(const Reader& read) {
  std::string activation = "silu";
  read("hidden_act", activation);
  if (activation != "silu" && activation != "swish") {
    reject_config(read.where, "\"hidden_act\" is \"{}\", expected \"silu\"", activation);
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    bool bias = false;
    read(key, bias);
    if (bias) reject_config(read.where, "\"{}\" is true, expected false: no layer has a bias", key);
  }
  refuse_partial_rotary(read);
  for (const char* key : {"sliding_window", "quantization_config"}) {
    if (const Json* value = read.find(key)) {
      reject_config(read.where, "\"{}\" is {}, expected it to be absent or null", key,
                    describe_type(*value));
    }
  }
}

// RoPE's settings: flat keys of old files, "rope_parameters" of new ones. No scaling.
void read_rope(const Reader& read, ModelConfig& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* value = read.find(key);
    if (value == nullptr) continue;
    if (!value->is_object()) read.wrong_type(key, "an object", *value);
    const Reader inner{*value, read.where, std::string(key) + "."};
    std::string type = "default";
    inner("type", type);
    inner("rope_type", type);
    if (type != "default") {
      reject_config(read.where,
                    "\"{}\" of type \"{}\", expected \"default\": RoPE is not rescaled here", key,
                    type);
    }
    // Per-layer-type settings are objects in here: another model's mathematics.
    for (const auto& [name, setting] : value->items()) {
      if (setting.is_object()) {
        reject_config(read.where, "\"{}.{}\" is an object, expected one setting for all layers",
                      key, name);
      }
    }
    inner("rope_theta", config.rope_theta);
    refuse_partial_rotary(inner);
  }
}

void read_token_ids(const Reader& read, ModelConfig& config) {
  if (read.find("bos_token_id") != nullptr) read("bos_token_id", config.bos_token_id.emplace());
  const Json* eos = read.find("eos_token_id");
  if (eos == nullptr) return;
  for (const Json& id : eos->is_array() ? *eos : Json::array({*eos})) {
    if (!fits_int64(id)) read.wrong_type("eos_token_id", "whole numbers", *eos);
    config.eos_token_id.push_back(id.get<int64_t>());
  }
}

}  // namespace

ModelConfig parse_model_config(const std::string& json_text, const std::string& where) {
  const Json json = parse_json(json_text, where, ErrorCode::kInvalidConfig);
  if (!json.is_object()) reject_config(where, "holds {}, expected an object", describe_type(json));
  const Reader read{json, where, ""};

  std::string model_type;
  read("model_type", model_type);
  if (model_type != kPlainModelType && model_type != kFreeModelType) {
    reject_config(where, "\"model_type\" is \"{}\", expected \"{}\" or \"{}\"", model_type,
                  kPlainModelType, kFreeModelType);
  }
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads"}) {
    if (read.find(key) == nullptr) reject_config(where, "\"{}\" is missing", key);
  }
  ModelConfig config;
  visit_fields(config, read);
  read("dtype", config.torch_dtype);  // the name since transformers 5
  read_rope(read, config);
  read_token_ids(read, config);
  refuse_other_mathematics(read);
  if (read.find("num_key_value_heads") == nullptr) {
    config.num_key_value_heads = config.num_attention_heads;
  }
  if (read.find("head_dim") == nullptr && config.num_attention_heads > 0) {
    if (config.hidden_size % config.num_attention_heads != 0) {
      reject_config(where,
                    "\"hidden_size\" {} does not divide by \"num_attention_heads\" {}: give "
                    "\"head_dim\"",
                    config.hidden_size, config.num_attention_heads);
    }
    config.head_dim = config.hidden_size / config.num_attention_heads;
  }
  if (const Json* latent = read.find("latent")) config.latent = parse_latent(*latent, where);
  if (config.latent.present() != (model_type == kFreeModelType)) {
    reject_config(where, "\"model_type\" is \"{}\" {} a \"latent\", expected \"{}\"", model_type,
                  config.latent.present() ? "with" : "without",
                  config.latent.present() ? kFreeModelType : kPlainModelType);
  }
  validate(config, where);
  return config;
}

ModelConfig read_model_config(const std::filesystem::path& path) {
  return parse_model_config(read_text_file(path, size_t{1} << 20), path.string());
}

std::string write_model_config(const ModelConfig& config) {
  const bool latent = config.latent.present();
  OrderedJson json;
  json["architectures"] = {latent ? kFreeArchitecture : kPlainArchitecture};
  json["model_type"] = latent ? kFreeModelType : kPlainModelType;
  visit_fields(config, [&](const char* key, const auto& field) { json[key] = field; });
  json["hidden_act"] = "silu";
  json["attention_bias"] = false;
  json["mlp_bias"] = false;
  if (config.bos_token_id) json["bos_token_id"] = *config.bos_token_id;
  if (config.eos_token_id.size() == 1) json["eos_token_id"] = config.eos_token_id[0];
  if (config.eos_token_id.size() > 1) json["eos_token_id"] = config.eos_token_id;
  if (latent) {
    json["latent"] = {
        {"kind", "binary"}, {"bits", config.latent.bits}, {"kappa_bits", config.latent.kappa_bits}};
  }
  return json.dump(2) + "\n";
}

void validate(const ModelConfig& config, const std::string& where) {
  // Sizes far beyond any model, but whose products still fit 64 bits.
  visit_fields(config, [&](const std::string_view key, const auto& field) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, int64_t>) {
      const int64_t most =
          key == "num_hidden_layers" ? 4096
          : key == "num_attention_heads" || key == "num_key_value_heads" || key == "head_dim"
              ? 65536
          : key == "hidden_size" ? 1 << 20
                                 : 1 << 24;
      if (field < 1 || field > most) {
        reject_config(where, "\"{}\" is {}, expected 1 to {}", key, field, most);
      }
    } else if constexpr (std::is_same_v<std::decay_t<decltype(field)>, double>) {
      if (!std::isfinite(field) || field <= 0) {
        reject_config(where, "\"{}\" is {}, expected a positive number", key, field);
      }
    }
  });
  if (config.num_attention_heads * config.head_dim > 1 << 24) {
    reject_config(where, "\"num_attention_heads\" {} times \"head_dim\" {} is over {}",
                  config.num_attention_heads, config.head_dim, 1 << 24);
  }
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    reject_config(where, "\"num_attention_heads\" {} does not divide by \"num_key_value_heads\" {}",
                  config.num_attention_heads, config.num_key_value_heads);
  }
  if (config.head_dim % 2 != 0) {
    reject_config(where, "\"head_dim\" is {}, expected an even number: RoPE turns pairs",
                  config.head_dim);
  }
  static const std::vector<std::string> dtypes = {"float32", "bfloat16", "float16"};
  if (std::find(dtypes.begin(), dtypes.end(), config.torch_dtype) == dtypes.end()) {
    reject_config(where, "\"torch_dtype\" is \"{}\", expected float32, bfloat16 or float16",
                  config.torch_dtype);
  }
  const auto check_token = [&](const char* key, int64_t id) {
    if (id < 0 || id >= config.vocab_size) {
      reject_config(where, "\"{}\" is {}, expected 0 to {} (\"vocab_size\" - 1)", key, id,
                    config.vocab_size - 1);
    }
  };
  if (config.bos_token_id) check_token("bos_token_id", *config.bos_token_id);
  for (const int64_t id : config.eos_token_id) check_token("eos_token_id", id);
  if (!config.latent.present()) {
    if (config.latent != LatentConfig()) {
      reject_config(where, "\"latent\" has settings, expected none without a kind");
    }
    return;
  }
  if (config.latent.bits < 1 || config.latent.bits > kMaxLatentBits) {
    reject_config(where, "\"latent.bits\" is {}, expected 1 to {}", config.latent.bits,
                  kMaxLatentBits);
  }
  if (!std::isfinite(config.latent.kappa_bits) || config.latent.kappa_bits < 0) {
    reject_config(where, "\"latent.kappa_bits\" is {}, expected 0 or more",
                  config.latent.kappa_bits);
  }
  if (config.num_hidden_layers % 2 != 0) {
    reject_config(where,
                  "\"num_hidden_layers\" is {}, expected an even number: the codes enter at the "
                  "middle block",
                  config.num_hidden_layers);
  }
}

}  // namespace freeformer
