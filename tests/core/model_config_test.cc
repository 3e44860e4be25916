// config.json: what real files say is understood, what would be another model is refused.
#include "core/model_config.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/philox.h"
#include "expect_error.h"
#include "temporary_folder.h"

namespace freeformer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "folder/config.json";

ModelConfig parse(const std::string& text) { return parse_model_config(text, kWhere); }
ModelConfig parse(const Json& json) { return parse(json.dump()); }

Json plain_json() {
  return {{"model_type", "llama"},    {"vocab_size", 100},        {"hidden_size", 24},
          {"intermediate_size", 40},  {"num_hidden_layers", 4},   {"num_attention_heads", 6},
          {"num_key_value_heads", 2}, {"torch_dtype", "bfloat16"}};
}

Json free_json() {
  Json json = plain_json();
  json["model_type"] = "free_transformer";
  json["latent"] = {{"kind", "binary"}, {"bits", 8}, {"kappa_bits", 0.25}};
  return json;
}

Json changed(Json json, const std::string& key, Json value) {
  json[key] = std::move(value);
  return json;
}

Json plain_with(const std::string& key, Json value) {
  return changed(plain_json(), key, std::move(value));
}

Json plain_without(const std::string& key) {
  Json json = plain_json();
  json.erase(key);
  return json;
}

Json free_with_latent(const std::string& key, Json value) {
  Json json = free_json();
  json["latent"][key] = std::move(value);
  return json;
}

// --- Files as they are found

TEST(ModelConfig, ReadsTheGoldenPlainModel) {
  const auto config =
      read_model_config(fs::path(FREEFORMER_GOLDEN_DIR) / "baseline-untied" / "config.json");
  ModelConfig expected;
  expected.vocab_size = 61;
  expected.hidden_size = 32;
  expected.intermediate_size = 72;
  expected.num_hidden_layers = 3;
  expected.num_attention_heads = 4;
  expected.num_key_value_heads = 4;
  expected.head_dim = 8;
  expected.max_position_embeddings = 64;
  EXPECT_EQ(config, expected);
}

TEST(ModelConfig, ReadsTheGoldenFreeTransformers) {
  auto config =
      read_model_config(fs::path(FREEFORMER_GOLDEN_DIR) / "free-h10-untied" / "config.json");
  ModelConfig expected;
  expected.vocab_size = 97;
  expected.hidden_size = 48;
  expected.intermediate_size = 80;
  expected.num_hidden_layers = 6;
  expected.num_attention_heads = 6;
  expected.num_key_value_heads = 1;
  expected.head_dim = 8;
  expected.max_position_embeddings = 64;
  expected.rope_theta = 500000.0;
  expected.latent = {LatentKind::kBinary, 10, 1.0};
  EXPECT_EQ(config, expected);
  EXPECT_EQ(config.middle_layer(), 3);
  EXPECT_EQ(config.code_count(), 1024);

  config = read_model_config(fs::path(FREEFORMER_GOLDEN_DIR) / "free-h6-tied" / "config.json");
  EXPECT_EQ(config.latent, (LatentConfig{LatentKind::kBinary, 6, 0.5}));
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.num_key_value_heads, 2);
}

TEST(ModelConfig, ReadsAHuggingFaceLlama) {
  const ModelConfig config = parse(std::string(R"({
    "_name_or_path": "meta-llama/Meta-Llama-3-8B",
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": false,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "mlp_bias": false,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pad_token_id": null,
    "pretraining_tp": 1,
    "quantization_config": null,
    "rms_norm_eps": 1e-05,
    "rope_scaling": null,
    "rope_theta": 500000.0,
    "sliding_window": null,
    "tie_word_embeddings": false,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.0.dev0",
    "use_cache": true,
    "vocab_size": 128256
  })"));
  ModelConfig expected;
  expected.vocab_size = 128256;
  expected.hidden_size = 4096;
  expected.intermediate_size = 14336;
  expected.num_hidden_layers = 32;
  expected.num_attention_heads = 32;
  expected.num_key_value_heads = 8;
  expected.head_dim = 128;
  expected.max_position_embeddings = 8192;
  expected.rope_theta = 500000.0;
  expected.torch_dtype = "bfloat16";
  expected.bos_token_id = 128000;
  expected.eos_token_id = {128001};
  EXPECT_EQ(config, expected);
  EXPECT_FALSE(config.latent.present());
  EXPECT_EQ(config.code_count(), 0);
}

TEST(ModelConfig, ReadsTheKeysOfTransformers5) {
  Json json = plain_without("torch_dtype");
  json["dtype"] = "float16";
  json["rope_parameters"] = {{"rope_theta", 250000.0}, {"rope_type", "default"}};
  const ModelConfig config = parse(json);
  EXPECT_EQ(config.torch_dtype, "float16");
  EXPECT_EQ(config.rope_theta, 250000.0);
}

TEST(ModelConfig, RopeScalingOfTheDefaultTypeIsNone) {
  EXPECT_EQ(parse(plain_with("rope_scaling", {{"rope_type", "default"}})), parse(plain_json()));
  EXPECT_EQ(parse(plain_with("rope_scaling", {{"type", "default"}})), parse(plain_json()));
}

TEST(ModelConfig, FillsInDefaults) {
  const ModelConfig config = parse(Json{{"model_type", "llama"},
                                        {"vocab_size", 100},
                                        {"hidden_size", 24},
                                        {"intermediate_size", 40},
                                        {"num_hidden_layers", 4},
                                        {"num_attention_heads", 6},
                                        {"num_key_value_heads", {}},
                                        {"head_dim", {}}});  // null is absent
  EXPECT_EQ(config.num_key_value_heads, 6);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.max_position_embeddings, 2048);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_EQ(config.initializer_range, 0.02);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.torch_dtype, "float32");
  EXPECT_EQ(config.bos_token_id, std::nullopt);
  EXPECT_TRUE(config.eos_token_id.empty());
  EXPECT_EQ(config.latent, LatentConfig{});
}

TEST(ModelConfig, HeadDimNeedNotBeTheQuotient) {
  EXPECT_EQ(parse(plain_with("head_dim", 10)).head_dim, 10);
  Json json = plain_with("hidden_size", 25);  // no multiple of the heads
  json["head_dim"] = 4;
  EXPECT_EQ(parse(json).head_dim, 4);
}

TEST(ModelConfig, EosIsANumberOrAList) {
  EXPECT_EQ(parse(plain_with("eos_token_id", 2)).eos_token_id, (std::vector<int64_t>{2}));
  EXPECT_EQ(parse(plain_with("eos_token_id", {7, 0, 99})).eos_token_id,
            (std::vector<int64_t>{7, 0, 99}));
  EXPECT_TRUE(parse(plain_with("eos_token_id", Json::array())).eos_token_id.empty());
  EXPECT_TRUE(parse(plain_with("eos_token_id", nullptr)).eos_token_id.empty());
}

TEST(ModelConfig, UnknownKeysAreIgnored) {
  Json json = plain_with("use_cache", true);
  json["auto_map"] = {{"x", {1, 2}}};
  EXPECT_EQ(parse(json), parse(plain_json()));
}

TEST(ModelConfig, SpellingsOfTheOnlyMathematicsAreAccepted) {
  EXPECT_EQ(parse(plain_with("hidden_act", "swish")), parse(plain_json()));
  EXPECT_EQ(parse(plain_with("partial_rotary_factor", 1.0)), parse(plain_json()));
  Json json = free_json();
  json["latent"].update({{"encoder", "shared"}, {"inject", "middle_kv"}, {"scope", "token"}});
  EXPECT_EQ(parse(json), parse(free_json()));
}

TEST(ModelConfig, ALatentOfKindNoneIsAPlainModel) {
  EXPECT_EQ(parse(plain_with("latent", {{"kind", "none"}})), parse(plain_json()));
  EXPECT_EQ(parse(plain_with("latent", {{"kind", "none"}, {"bits", 0}})), parse(plain_json()));
  EXPECT_EQ(parse(plain_with("latent", nullptr)), parse(plain_json()));
}

TEST(ModelConfig, BitsAndKappaMayBeAtTheirLimits) {
  EXPECT_EQ(parse(free_with_latent("bits", 1)).code_count(), 2);
  EXPECT_EQ(parse(free_with_latent("bits", 20)).code_count(), 1 << 20);
  EXPECT_EQ(parse(free_with_latent("kappa_bits", 0)).latent.kappa_bits, 0.0);
  Json json = free_json();
  json["latent"].erase("kappa_bits");
  EXPECT_EQ(parse(json).latent.kappa_bits, 0.5);
}

TEST(ModelConfig, SizesMayBeAtTheirLimits) {
  EXPECT_EQ(parse(plain_with("vocab_size", 1 << 24)).vocab_size, 1 << 24);
  EXPECT_EQ(parse(plain_with("num_hidden_layers", 4096)).num_hidden_layers, 4096);
  Json json = plain_with("num_hidden_layers", 1);  // odd is fine without a latent
  EXPECT_EQ(parse(json).num_hidden_layers, 1);
}

// --- Refusals

struct Mistake {
  std::string name;
  std::string text;
  std::string words;

  Mistake(std::string case_name, std::string json_text, std::string expected_words)
      : name(std::move(case_name)), text(std::move(json_text)), words(std::move(expected_words)) {}
  Mistake(std::string case_name, const Json& json, std::string expected_words)
      : Mistake(std::move(case_name), json.dump(), std::move(expected_words)) {}
};

std::ostream& operator<<(std::ostream& out, const Mistake& mistake) {
  return out << mistake.text.substr(0, 400);
}

const std::vector<Mistake>& mistakes() {
  using Text = std::string;
  static const std::vector<Mistake> all = {
      // The text.
      {"Empty", Text(""), "is not JSON"},
      {"NotJson", Text("hidden_size = 4"), "is not JSON"},
      {"CutShort", Text(R"({"model_type": "llama")"), "unexpected end of input"},
      {"NotUtf8", Text("{\"model_type\": \"\xFF\"}"), "is not UTF-8"},
      {"Array", Text("[]"), "holds an array, expected an object"},
      {"Number", Text("7"), "holds a whole number, expected an object"},
      {"DuplicateKey", Text(R"({"model_type": "llama", "model_type": "llama"})"),
       "has the key 'model_type' twice"},
      {"DuplicateLatentKey",
       Text(R"({"model_type": "free_transformer", "latent": {"bits": 4, "bits": 5}})"),
       "has the key 'bits' twice"},
      {"NumberOverflow", Text(R"({"rope_theta": 1e999})"), "number overflow parsing '1e999'"},
      {"Nan", Text(R"({"rope_theta": NaN})"), "is not JSON"},

      // The kind of model.
      {"OtherModelType", plain_with("model_type", "mistral"),
       R"("model_type" is "mistral", expected "llama" or "free_transformer")"},
      {"NoModelType", plain_without("model_type"), R"("model_type" is "", expected)"},
      {"ModelTypeIsANumber", plain_with("model_type", 3),
       R"("model_type" is a whole number (3), expected a string)"},
      {"LlamaWithALatent", changed(free_json(), "model_type", "llama"),
       R"("model_type" is "llama" with a "latent", expected "free_transformer")"},
      {"FreeTransformerWithoutALatent", plain_with("model_type", "free_transformer"),
       R"("model_type" is "free_transformer" without a "latent", expected "llama")"},
      {"FreeTransformerWithALatentOfNone", changed(free_json(), "latent", Json{{"kind", "none"}}),
       R"("model_type" is "free_transformer" without a "latent", expected "llama")"},

      // Keys that must be there.
      {"NoVocabSize", plain_without("vocab_size"), R"("vocab_size" is missing)"},
      {"NoHiddenSize", plain_without("hidden_size"), R"("hidden_size" is missing)"},
      {"NoIntermediateSize", plain_without("intermediate_size"),
       R"("intermediate_size" is missing)"},
      {"NoLayers", plain_without("num_hidden_layers"), R"("num_hidden_layers" is missing)"},
      {"NoHeads", plain_without("num_attention_heads"), R"("num_attention_heads" is missing)"},
      {"NullVocabSize", plain_with("vocab_size", nullptr), R"("vocab_size" is missing)"},

      // Types.
      {"SizeInAString", plain_with("hidden_size", "24"),
       R"("hidden_size" is a string ("24"), expected a whole number)"},
      {"FractionalSize", plain_with("hidden_size", 24.5),
       R"("hidden_size" is a fractional or oversized number (24.5), expected a whole number)"},
      {"SizeIsABoolean", plain_with("num_hidden_layers", true),
       R"("num_hidden_layers" is a boolean (true), expected a whole number)"},
      {"SizeIsAnArray", plain_with("vocab_size", {1, 2}), R"("vocab_size" is an array ([1,2]))"},
      {"EpsInAString", plain_with("rms_norm_eps", "1e-5"),
       R"("rms_norm_eps" is a string ("1e-5"), expected a number)"},
      {"TieIsANumber", plain_with("tie_word_embeddings", 1),
       R"("tie_word_embeddings" is a whole number (1), expected true or false)"},
      {"DtypeIsANumber", plain_with("torch_dtype", 16), R"("torch_dtype" is a whole number (16))"},
      {"BosIsAList", plain_with("bos_token_id", {1}), R"("bos_token_id" is an array ([1]))"},
      {"EosIsAString", plain_with("eos_token_id", "</s>"),
       R"("eos_token_id" is a string ("</s>"), expected whole numbers)"},
      {"EosListHoldsAString", plain_with("eos_token_id", {1, "2"}),
       R"("eos_token_id" is an array ([1,"2"]), expected whole numbers)"},
      {"LatentIsANumber", changed(free_json(), "latent", 8),
       R"("latent" is a whole number, expected an object)"},
      {"LatentIsAnArray", changed(free_json(), "latent", Json::array()),
       R"("latent" is an array, expected an object)"},
      {"BitsInAString", free_with_latent("bits", "8"),
       R"("latent.bits" is a string ("8"), expected a whole number)"},
      {"FractionalBits", free_with_latent("bits", 8.0),
       R"("latent.bits" is a fractional or oversized number (8.0), expected a whole number)"},
      {"KappaInAString", free_with_latent("kappa_bits", "0.5"),
       R"("latent.kappa_bits" is a string ("0.5"), expected a number)"},

      // Sizes out of range.
      {"ZeroSize", plain_with("vocab_size", 0), R"("vocab_size" is 0, expected 1 to 16777216)"},
      {"NegativeSize", plain_with("intermediate_size", -40),
       R"("intermediate_size" is -40, expected 1 to 16777216)"},
      {"VocabularyOverTheLimit", plain_with("vocab_size", (1 << 24) + 1),
       R"("vocab_size" is 16777217, expected 1 to 16777216)"},
      {"HeadDimOverTheLimit", plain_with("head_dim", 65538),
       R"("head_dim" is 65538, expected 1 to 65536)"},
      {"WidthOverTheLimit", plain_with("hidden_size", (1 << 20) + 2),
       R"("hidden_size" is 1048578, expected 1 to 1048576)"},
      {"HeadsTimesHeadDimOverTheLimit",
       changed(plain_with("num_attention_heads", 60000), "head_dim", 2000),
       R"("num_attention_heads" 60000 times "head_dim" 2000 is over 16777216)"},
      {"LayersOverTheLimit", plain_with("num_hidden_layers", 4098),
       R"("num_hidden_layers" is 4098, expected 1 to 4096)"},
      {"SizeOf2To63", plain_with("vocab_size", uint64_t{1} << 63),
       R"("vocab_size" is a whole number (9223372036854775808), expected a whole number below 2^63)"},
      {"SizeOf2To64", plain_with("vocab_size", Json::parse("18446744073709551616")),
       R"("vocab_size" is a fractional or oversized number)"},
      {"ZeroLayers", plain_with("num_hidden_layers", 0),
       R"("num_hidden_layers" is 0, expected 1 to)"},
      {"ZeroHeads", plain_with("num_attention_heads", 0),
       R"("num_attention_heads" is 0, expected 1 to)"},
      {"NegativeHeads", plain_with("num_attention_heads", -6),
       R"("num_attention_heads" is -6, expected 1 to)"},
      {"ZeroKeyValueHeads", plain_with("num_key_value_heads", 0),
       R"("num_key_value_heads" is 0, expected 1 to)"},
      {"ZeroHeadDim", plain_with("head_dim", 0), R"("head_dim" is 0, expected 1 to)"},
      {"ZeroPositions", plain_with("max_position_embeddings", 0),
       R"("max_position_embeddings" is 0, expected 1 to)"},
      {"ZeroEps", plain_with("rms_norm_eps", 0), R"("rms_norm_eps" is 0, expected a positive)"},
      {"NegativeTheta", plain_with("rope_theta", -1.5),
       R"("rope_theta" is -1.5, expected a positive number)"},
      {"ZeroInitializerRange", plain_with("initializer_range", 0.0),
       R"("initializer_range" is 0, expected a positive number)"},
      {"NegativeThetaInRopeParameters", plain_with("rope_parameters", {{"rope_theta", -2}}),
       R"("rope_theta" is -2, expected)"},

      // Sizes that do not fit each other.
      {"HeadsDoNotDivide", plain_with("num_key_value_heads", 4),
       R"("num_attention_heads" 6 does not divide by "num_key_value_heads" 4)"},
      {"WidthDoesNotDivide", plain_with("hidden_size", 25),
       R"("hidden_size" 25 does not divide by "num_attention_heads" 6: give "head_dim")"},
      {"OddHeadDim", plain_with("head_dim", 5), R"("head_dim" is 5, expected an even number)"},
      {"OddQuotient", plain_with("hidden_size", 18), R"("head_dim" is 3, expected an even number)"},
      {"OddLayersWithALatent", changed(free_json(), "num_hidden_layers", 5),
       R"("num_hidden_layers" is 5, expected an even number)"},
      {"OtherDtype", plain_with("torch_dtype", "int8"),
       R"("torch_dtype" is "int8", expected float32, bfloat16 or float16)"},
      {"BosOutsideTheVocabulary", plain_with("bos_token_id", 100),
       R"("bos_token_id" is 100, expected 0 to 99)"},
      {"NegativeBos", plain_with("bos_token_id", -1), R"("bos_token_id" is -1, expected 0 to 99)"},
      {"HugeBos", plain_with("bos_token_id", UINT64_MAX),
       R"("bos_token_id" is a whole number (18446744073709551615), expected a whole number below 2^63)"},
      {"EosOutsideTheVocabulary", plain_with("eos_token_id", {2, 100}),
       R"("eos_token_id" is 100, expected 0 to 99)"},
      {"EosOf2To63", plain_with("eos_token_id", uint64_t{1} << 63),
       R"("eos_token_id" is a whole number (9223372036854775808), expected whole numbers)"},
      {"NullInEos", plain_with("eos_token_id", Json::array({1, nullptr})),
       R"("eos_token_id" is an array ([1,null]), expected whole numbers)"},

      // The latent.
      {"NoBits", free_with_latent("bits", 0), R"("latent.bits" is 0, expected 1 to 20)"},
      {"TooManyBits", free_with_latent("bits", 21), R"("latent.bits" is 21, expected 1 to 20)"},
      {"NegativeBits", free_with_latent("bits", -1), R"("latent.bits" is -1, expected 1 to 20)"},
      {"BitsModulo2To32", free_with_latent("bits", (int64_t{1} << 32) + 8),
       R"("latent.bits" is 4294967304, expected 1 to 20)"},
      {"NegativeKappa", free_with_latent("kappa_bits", -0.5),
       R"("latent.kappa_bits" is -0.5, expected 0 or more)"},
      {"OtherKind", free_with_latent("kind", "gaussian"),
       R"("latent.kind" is "gaussian", expected "none" or "binary")"},
      {"BitsWithKindNone", plain_with("latent", {{"kind", "none"}, {"bits", 4}}),
       R"("latent.bits" has no effect with kind "none")"},
      {"BitsWithoutAKind", plain_with("latent", {{"bits", 4}}),
       R"("latent.bits" has no effect with kind "none")"},
      {"KappaWithKindNone", plain_with("latent", {{"kind", "none"}, {"kappa_bits", 0.5}}),
       R"("latent.kappa_bits" has no effect with kind "none")"},
      {"OtherEncoder", free_with_latent("encoder", "separate"),
       R"("latent.encoder" is "separate", expected "shared")"},
      {"OtherInjection", free_with_latent("inject", "input"),
       R"("latent.inject" is "input", expected "middle_kv")"},
      {"OtherScope", free_with_latent("scope", "sequence"),
       R"("latent.scope" is "sequence", expected "token")"},
      {"MisspeltLatentKey", free_with_latent("kapa_bits", 1),
       R"(unknown key "latent.kapa_bits"; did you mean "kappa_bits"?)"},
      {"StrangeLatentKey", free_with_latent("temperature", 1),
       R"(unknown key "latent.temperature")"},

      // Other mathematics.
      {"OtherActivation", plain_with("hidden_act", "gelu"),
       R"("hidden_act" is "gelu", expected "silu")"},
      {"AttentionBias", plain_with("attention_bias", true),
       R"("attention_bias" is true, expected false)"},
      {"MlpBias", plain_with("mlp_bias", true), R"("mlp_bias" is true, expected false)"},
      {"AttentionBiasIsAString", plain_with("attention_bias", "false"),
       R"("attention_bias" is a string ("false"), expected true or false)"},
      {"PartialRotary", plain_with("partial_rotary_factor", 0.5),
       R"("partial_rotary_factor" is 0.5, expected 1)"},
      {"PartialRotaryInRopeParameters",
       plain_with("rope_parameters", {{"partial_rotary_factor", 0.25}}),
       R"("rope_parameters.partial_rotary_factor" is 0.25, expected 1)"},
      {"RopeParametersPerKindOfLayer",
       plain_with("rope_parameters", {{"full_attention", {{"rope_theta", 1e6}}}}),
       R"("rope_parameters.full_attention" is an object, expected one setting for all layers)"},
      {"RopeScalingOfLlama3",
       plain_with("rope_scaling", {{"factor", 8.0},
                                   {"low_freq_factor", 1.0},
                                   {"high_freq_factor", 4.0},
                                   {"original_max_position_embeddings", 8192},
                                   {"rope_type", "llama3"}}),
       R"("rope_scaling" of type "llama3", expected "default")"},
      {"RopeScalingOfTheOldForm", plain_with("rope_scaling", {{"type", "linear"}, {"factor", 2.0}}),
       R"("rope_scaling" of type "linear", expected "default")"},
      {"RopeParametersOfYarn",
       plain_with("rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 1e6}}),
       R"("rope_parameters" of type "yarn", expected "default")"},
      {"RopeScalingIsANumber", plain_with("rope_scaling", 2.0),
       R"("rope_scaling" is a fractional or oversized number (2.0), expected an object)"},
      {"RopeThetaInAString", plain_with("rope_parameters", {{"rope_theta", "10000"}}),
       R"("rope_parameters.rope_theta" is a string ("10000"), expected a number)"},
      {"SlidingWindow", plain_with("sliding_window", 4096),
       R"("sliding_window" is a whole number, expected it to be absent or null)"},
      {"Quantization", plain_with("quantization_config", {{"quant_method", "gptq"}}),
       R"("quantization_config" is an object, expected it to be absent or null)"},
  };
  return all;
}

class ModelConfigRefuses : public testing::TestWithParam<Mistake> {};

TEST_P(ModelConfigRefuses, TheText) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, GetParam().words, parse(GetParam().text));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, kWhere, parse(GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(EachMistake, ModelConfigRefuses, testing::ValuesIn(mistakes()),
                         [](const auto& mistake) { return mistake.param.name; });

TEST(ModelConfig, TheTextsThatMistakesAreMadeInAreValid) {
  EXPECT_NO_THROW(parse(plain_json()));
  EXPECT_NO_THROW(parse(free_json()));
}

TEST(ModelConfig, ALongValueIsShownInPart) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "(\"" + std::string(39, 'x') + "), expected",
                          parse(plain_with("vocab_size", std::string(100'000, 'x'))));
  // In ASCII, so that the cut does not split a character.
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, R"(("\u00e9\u00e9\u00e9)",
                          parse(plain_with("vocab_size", "ééééééééé")));
}

TEST(ReadModelConfig, NamesTheFile) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "config.json";
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, path.string() + ": cannot open", read_model_config(path));
  std::ofstream(path) << plain_with("vocab_size", 0);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, path.string() + ": \"vocab_size\" is 0",
                          read_model_config(path));
  std::ofstream(path) << plain_json();
  EXPECT_EQ(read_model_config(path), parse(plain_json()));
}

TEST(ReadModelConfig, RefusesAFileTooLargeToBeAConfig) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "config.json") << std::string((1 << 20) + 1, ' ');
  EXPECT_FREEFORMER_ERROR(ErrorCode::kCapacity, "1048577 bytes, expected at most 1048576",
                          read_model_config(folder.path() / "config.json"));
}

// validate() also guards configs that never were text.
TEST(Validate, RefusesWhatJsonCannotSay) {
  const double bad[] = {std::numeric_limits<double>::quiet_NaN(),
                        std::numeric_limits<double>::infinity()};
  for (const double value : bad) {
    for (double ModelConfig::*field :
         {&ModelConfig::rms_norm_eps, &ModelConfig::rope_theta, &ModelConfig::initializer_range}) {
      ModelConfig config = parse(free_json());
      config.*field = value;
      EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "expected a positive number",
                              validate(config, kWhere));
    }
    ModelConfig config = parse(free_json());
    config.latent.kappa_bits = value;
    EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "\"latent.kappa_bits\" is",
                            validate(config, kWhere));
  }
  ModelConfig config = parse(free_json());
  config.latent.bits = 21;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "\"latent.bits\" is 21",
                          validate(config, kWhere));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "\"vocab_size\" is 0",
                          validate(ModelConfig{}, kWhere));
  config = parse(plain_json());
  config.latent.bits = 3;  // would be lost by writing it
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "\"latent\" has settings, expected none",
                          validate(config, kWhere));
}

// --- Writing

TEST(WriteModelConfig, TellsHuggingFaceWhatItIs) {
  const Json plain = Json::parse(write_model_config(parse(plain_json())));
  EXPECT_EQ(plain["architectures"], Json::array({"LlamaForCausalLM"}));
  EXPECT_EQ(plain["model_type"], "llama");
  EXPECT_EQ(plain["hidden_act"], "silu");
  EXPECT_EQ(plain["attention_bias"], false);
  EXPECT_EQ(plain["num_key_value_heads"], 2);
  EXPECT_EQ(plain["torch_dtype"], "bfloat16");
  EXPECT_FALSE(plain.contains("latent"));
  EXPECT_FALSE(plain.contains("bos_token_id"));

  const Json free = Json::parse(write_model_config(parse(free_json())));
  EXPECT_EQ(free["architectures"], Json::array({"FreeTransformerForCausalLM"}));
  EXPECT_EQ(free["model_type"], "free_transformer");
  EXPECT_EQ(free["latent"], free_json()["latent"]);
}

TEST(WriteModelConfig, IsTextThatPeopleRead) {
  const std::string text = write_model_config(parse(plain_json()));
  EXPECT_TRUE(text.starts_with("{\n  \"architectures\"")) << text;
  EXPECT_TRUE(text.ends_with("}\n")) << text;
}

// Random numbers with a name for each use, so that a failing config can be made again.
class RandomConfigs {
 public:
  explicit RandomConfigs(uint64_t config) : config_(config) {}

  ModelConfig next() {
    ModelConfig config;
    config.vocab_size = between(1, 1 << 24);
    config.hidden_size = between(1, 1 << 20);
    config.intermediate_size = between(1, 1 << 24);
    config.num_hidden_layers = between(1, 500) * 2;
    config.num_key_value_heads = between(1, 100);
    config.num_attention_heads = config.num_key_value_heads * between(1, 100);
    config.head_dim = between(1, 500) * 2;
    config.max_position_embeddings = between(1, 1 << 24);
    config.rms_norm_eps = positive();
    config.rope_theta = positive();
    config.initializer_range = positive();
    config.tie_word_embeddings = between(0, 1) == 1;
    const char* dtypes[] = {"float32", "bfloat16", "float16"};
    config.torch_dtype = dtypes[between(0, 2)];
    if (between(0, 1) == 1) config.bos_token_id = between(0, config.vocab_size - 1);
    for (int64_t i = between(0, 3); i > 0; --i) {
      config.eos_token_id.push_back(between(0, config.vocab_size - 1));
    }
    if (between(0, 1) == 1) {
      config.latent = {LatentKind::kBinary, int(between(1, kMaxLatentBits)), positive()};
      if (between(0, 9) == 0) config.latent.kappa_bits = 0;
    } else {
      config.num_hidden_layers += between(0, 1);
    }
    return config;
  }

 private:
  uint64_t bits() {
    const PhiloxBlock block = RandomSource(7, RandomStream::kData).block(config_, draw_++, 0);
    return uint64_t{block[0]} << 32 | block[1];
  }
  int64_t between(int64_t low, int64_t high) {
    return low + int64_t(bits() % uint64_t(high - low + 1));
  }
  // Any positive double: all 2^62 of them, subnormal ones included.
  double positive() {
    while (true) {
      const auto value = std::abs(std::bit_cast<double>(bits()));
      if (std::isfinite(value) && value > 0) return value;
    }
  }

  uint64_t config_;
  uint32_t draw_ = 0;
};

TEST(WriteModelConfig, ParseGivesBackWhatWasWritten) {
  for (uint64_t i = 0; i < 2000; ++i) {
    const ModelConfig config = RandomConfigs(i).next();
    ASSERT_NO_THROW(validate(config, kWhere));
    const std::string text = write_model_config(config);
    ASSERT_EQ(parse(text), config) << text;
  }
}

}  // namespace
}  // namespace freeformer
