#include "core/tensor_manifest.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"
#include "small_config.h"

namespace freeformer {
namespace {

using Shape = std::vector<int64_t>;
using Row = std::tuple<std::string, Shape, ModelPart>;

std::vector<Row> rows(const ModelConfig& config) {
  std::vector<Row> table;
  for (const TensorSpec& spec : tensor_manifest(config)) {
    table.emplace_back(spec.name, spec.shape, spec.part);
  }
  return table;
}

ModelConfig paper_1_5b(int latent_bits) {
  ModelConfig config;
  config.vocab_size = 131072;
  config.hidden_size = 1536;
  config.intermediate_size = 8960;
  config.num_hidden_layers = 28;
  config.num_attention_heads = 12;
  config.num_key_value_heads = 2;
  config.head_dim = 128;
  config.tie_word_embeddings = true;
  if (latent_bits > 0) config.latent = {LatentKind::kBinary, latent_bits, 0.5};
  return config;
}

ModelConfig paper_8b(int latent_bits) {
  ModelConfig config;
  config.vocab_size = 131072;
  config.hidden_size = 4096;
  config.intermediate_size = 14336;
  config.num_hidden_layers = 32;
  config.num_attention_heads = 32;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  if (latent_bits > 0) config.latent = {LatentKind::kBinary, latent_bits, 0.5};
  return config;
}

// q and o, k and v, gate and up and down, two norms.
int64_t block_parameters(const ModelConfig& c) {
  return 2 * c.hidden_size * c.num_attention_heads * c.head_dim +
         2 * c.hidden_size * c.num_key_value_heads * c.head_dim +
         3 * c.hidden_size * c.intermediate_size + 2 * c.hidden_size;
}

int64_t plain_parameters(const ModelConfig& c) {
  return (c.tie_word_embeddings ? 1 : 2) * c.vocab_size * c.hidden_size +
         c.num_hidden_layers * block_parameters(c) + c.hidden_size;
}

// The encoder's block, its query and its norm, the read-out of Z rows and the table of 2^Z.
int64_t latent_parameters(const ModelConfig& c) {
  return block_parameters(c) + (2 + c.latent.bits + (int64_t{1} << c.latent.bits)) * c.hidden_size;
}

TEST(TensorManifest, APlainModelHasExactlyLlamasTensors) {
  ModelConfig config = small_config(0);
  config.num_hidden_layers = 1;
  EXPECT_EQ(rows(config),
            (std::vector<Row>{
                {"model.embed_tokens.weight", {11, 8}, ModelPart::kEmbedding},
                {"model.layers.0.input_layernorm.weight", {8}, ModelPart::kNorm},
                {"model.layers.0.self_attn.q_proj.weight", {12, 8}, ModelPart::kAttention},
                {"model.layers.0.self_attn.k_proj.weight", {6, 8}, ModelPart::kAttention},
                {"model.layers.0.self_attn.v_proj.weight", {6, 8}, ModelPart::kAttention},
                {"model.layers.0.self_attn.o_proj.weight", {8, 12}, ModelPart::kAttention},
                {"model.layers.0.post_attention_layernorm.weight", {8}, ModelPart::kNorm},
                {"model.layers.0.mlp.gate_proj.weight", {10, 8}, ModelPart::kMlp},
                {"model.layers.0.mlp.up_proj.weight", {10, 8}, ModelPart::kMlp},
                {"model.layers.0.mlp.down_proj.weight", {8, 10}, ModelPart::kMlp},
                {"model.norm.weight", {8}, ModelPart::kNorm},
                {"lm_head.weight", {11, 8}, ModelPart::kHead},
            }));
}

TEST(TensorManifest, AFreeTransformerHasItsLatentBeforeTheMiddleBlock) {
  EXPECT_EQ(rows(small_config(3)),
            (std::vector<Row>{
                {"model.embed_tokens.weight", {11, 8}, ModelPart::kEmbedding},
                {"model.layers.0.input_layernorm.weight", {8}, ModelPart::kNorm},
                {"model.layers.0.self_attn.q_proj.weight", {12, 8}, ModelPart::kAttention},
                {"model.layers.0.self_attn.k_proj.weight", {6, 8}, ModelPart::kAttention},
                {"model.layers.0.self_attn.v_proj.weight", {6, 8}, ModelPart::kAttention},
                {"model.layers.0.self_attn.o_proj.weight", {8, 12}, ModelPart::kAttention},
                {"model.layers.0.post_attention_layernorm.weight", {8}, ModelPart::kNorm},
                {"model.layers.0.mlp.gate_proj.weight", {10, 8}, ModelPart::kMlp},
                {"model.layers.0.mlp.up_proj.weight", {10, 8}, ModelPart::kMlp},
                {"model.layers.0.mlp.down_proj.weight", {8, 10}, ModelPart::kMlp},
                {"model.latent.query", {8}, ModelPart::kEncoder},
                {"model.latent.encoder.input_layernorm.weight", {8}, ModelPart::kEncoder},
                {"model.latent.encoder.self_attn.q_proj.weight", {12, 8}, ModelPart::kEncoder},
                {"model.latent.encoder.self_attn.k_proj.weight", {6, 8}, ModelPart::kEncoder},
                {"model.latent.encoder.self_attn.v_proj.weight", {6, 8}, ModelPart::kEncoder},
                {"model.latent.encoder.self_attn.o_proj.weight", {8, 12}, ModelPart::kEncoder},
                {"model.latent.encoder.post_attention_layernorm.weight", {8}, ModelPart::kEncoder},
                {"model.latent.encoder.mlp.gate_proj.weight", {10, 8}, ModelPart::kEncoder},
                {"model.latent.encoder.mlp.up_proj.weight", {10, 8}, ModelPart::kEncoder},
                {"model.latent.encoder.mlp.down_proj.weight", {8, 10}, ModelPart::kEncoder},
                {"model.latent.encoder_norm.weight", {8}, ModelPart::kEncoder},
                {"model.latent.readout.weight", {3, 8}, ModelPart::kEncoder},
                {"model.latent.post_sampler.weight", {8, 8}, ModelPart::kPostSampler},
                {"model.layers.1.input_layernorm.weight", {8}, ModelPart::kNorm},
                {"model.layers.1.self_attn.q_proj.weight", {12, 8}, ModelPart::kAttention},
                {"model.layers.1.self_attn.k_proj.weight", {6, 8}, ModelPart::kAttention},
                {"model.layers.1.self_attn.v_proj.weight", {6, 8}, ModelPart::kAttention},
                {"model.layers.1.self_attn.o_proj.weight", {8, 12}, ModelPart::kAttention},
                {"model.layers.1.post_attention_layernorm.weight", {8}, ModelPart::kNorm},
                {"model.layers.1.mlp.gate_proj.weight", {10, 8}, ModelPart::kMlp},
                {"model.layers.1.mlp.up_proj.weight", {10, 8}, ModelPart::kMlp},
                {"model.layers.1.mlp.down_proj.weight", {8, 10}, ModelPart::kMlp},
                {"model.norm.weight", {8}, ModelPart::kNorm},
                {"lm_head.weight", {11, 8}, ModelPart::kHead},
            }));
}

TEST(TensorManifest, TheLatentOnlyAddsTensors) {
  std::vector<Row> free = rows(small_config(3));
  std::erase_if(free, [](const Row& row) { return std::get<0>(row).starts_with("model.latent."); });
  EXPECT_EQ(free, rows(small_config(0)));
}

TEST(TensorManifest, TheTableHasARowPerCode) {
  for (const int bits : {1, 4, 16, kMaxLatentBits}) {
    for (const TensorSpec& spec : tensor_manifest(small_config(bits))) {
      if (spec.part == ModelPart::kPostSampler) {
        EXPECT_EQ(spec.shape, (Shape{int64_t{1} << bits, 8}));
        EXPECT_EQ(spec.element_count(), (int64_t{1} << bits) * 8);
      }
    }
  }
}

TEST(TensorManifest, ATiedModelHasNoHead) {
  ModelConfig config = small_config(0);
  const auto untied = rows(config);
  config.tie_word_embeddings = true;
  auto tied = rows(config);
  tied.emplace_back("lm_head.weight", Shape{11, 8}, ModelPart::kHead);
  EXPECT_EQ(tied, untied);
}

TEST(TensorManifest, NoNameOccursTwice) {
  std::set<std::string> names;
  const auto table = tensor_manifest(paper_8b(16));
  for (const TensorSpec& spec : table) names.insert(spec.name);
  EXPECT_EQ(names.size(), table.size());
}

TEST(ParameterCount, IsThatOfTheModelsAsPublished) {
  ModelConfig llama_3_8b = paper_8b(0);
  llama_3_8b.vocab_size = 128256;
  EXPECT_EQ(parameter_count(llama_3_8b), 8'030'261'248);
  ModelConfig llama_2_7b = paper_8b(0);
  llama_2_7b.vocab_size = 32000;
  llama_2_7b.intermediate_size = 11008;
  llama_2_7b.num_key_value_heads = 32;
  EXPECT_EQ(parameter_count(llama_2_7b), 6'738'415'616);
}

TEST(ParameterCount, FollowsTheFormulaAtThePapersSizes) {
  for (const ModelConfig& plain : {paper_1_5b(0), paper_8b(0)}) {
    EXPECT_EQ(parameter_count(plain), plain_parameters(plain));
  }
  for (const ModelConfig& free : {paper_1_5b(16), paper_8b(16)}) {
    EXPECT_EQ(parameter_count(free), plain_parameters(free) + latent_parameters(free));
  }
}

TEST(ParameterCount, FitsAtTheLargestSizesThatAreValid) {
  ModelConfig config = paper_8b(kMaxLatentBits);
  config.vocab_size = config.intermediate_size = 1 << 24;
  config.hidden_size = 1 << 20;
  config.num_hidden_layers = 4096;
  config.num_attention_heads = config.num_key_value_heads = 256;
  config.head_dim = 65536;
  ASSERT_NO_THROW(validate(config, "config.json"));
  EXPECT_EQ(parameter_count(config), plain_parameters(config) + latent_parameters(config));
  // Each of them is the largest: a limit that is raised must be raised here too.
  for (int64_t ModelConfig::*field : {&ModelConfig::vocab_size, &ModelConfig::intermediate_size,
                                      &ModelConfig::hidden_size, &ModelConfig::num_hidden_layers,
                                      &ModelConfig::num_attention_heads, &ModelConfig::head_dim}) {
    ModelConfig larger = config;
    larger.*field += 2;
    EXPECT_THROW(validate(larger, "config.json"), Error);
  }
}

TEST(ModelPart, EachHasItsOwnName) {
  std::set<std::string> names;
  for (const ModelPart part :
       {ModelPart::kEmbedding, ModelPart::kAttention, ModelPart::kMlp, ModelPart::kNorm,
        ModelPart::kHead, ModelPart::kEncoder, ModelPart::kPostSampler}) {
    names.insert(name(part));
  }
  EXPECT_EQ(names.size(), 7u);
  EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace freeformer
