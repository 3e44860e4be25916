#include "model/foresight.h"

#include <gtest/gtest.h>

#include "kernels/parallel.h"
#include "ops/torch_runtime.h"
#include "tensor_matchers.h"
#include "tiny_model.h"

namespace freeformer {
namespace {

std::map<std::string, Tensor> ahead(FreeTransformer& model, const Batch& batch) {
  return look_ahead(model, std::vector{batch});
}

// Wide enough that a constant can be found in the tokens.
ModelConfig config_with(int bits, int64_t heads = 4, int64_t key_value_heads = 2) {
  ModelConfig config = tiny_config(bits);
  config.hidden_size = 64;
  config.intermediate_size = 96;
  config.num_attention_heads = heads;
  config.num_key_value_heads = key_value_heads;
  config.head_dim = 16;
  config.rope_theta = 100;
  config.initializer_range = 0.1;
  return config;
}

Tensor logits_of(FreeTransformer& model, const Tensor& tokens_BT) {
  return model->encode({tokens_BT, {}});
}

double rms(const Tensor& x) { return x.to(at::kDouble).square().mean().sqrt().item<double>(); }

// How much the bits of the token at `reader` change with the token at `changed`.
double influence(FreeTransformer& model, int64_t reader, int64_t changed) {
  const Tensor tokens = tiny_tokens(64, 24, 9);
  Tensor other = tokens.clone();
  other.select(1, changed).copy_((tokens.select(1, changed) + 7) % 23);
  const Tensor difference = logits_of(model, other) - logits_of(model, tokens);
  return rms(difference.select(1, reader));
}

TEST(LookAhead, BitsAnswerToTheNextTokenMoreThanToAnyOtherAhead) {
  for (const auto& [heads, key_value_heads] : {std::pair{4, 2}, std::pair{2, 2}, std::pair{4, 1}}) {
    FreeTransformer model = tiny_model(config_with(4, heads, key_value_heads));
    ahead(model, {tiny_tokens(32, 24), {}});
    for (const int64_t reader : {3, 10, 17}) {
      const double next = influence(model, reader, reader + 1);
      EXPECT_GT(next, 0.5) << reader;  // beside logits of 1
      EXPECT_LT(influence(model, reader, reader + 2), 0.8 * next) << reader;
      for (const int64_t places : {3, 4, 5}) {
        EXPECT_LT(influence(model, reader, reader + places), 0.4 * next) << reader << " " << places;
      }
    }
  }
}

// An encoder with random weights answers to near and far alike: the test above can fail.
TEST(LookAhead, AnEncoderWithRandomWeightsDoesNot) {
  FreeTransformer model = tiny_model(config_with(4));
  EXPECT_GT(influence(model, 10, 15), 0.4 * influence(model, 10, 11));
}

// The share of the bits' variance that no linear function of x at the same token explains.
double share_of_news(FreeTransformer& model, const Tensor& tokens_BT) {
  const torch::NoGradGuard no_grad;
  const Tensor logits_MZ = logits_of(model, tokens_BT).flatten(0, 1).to(at::kDouble);
  const Tensor x_MD =
      model->model->latent->encoder->input_layernorm(model->first_half({tokens_BT, {}}).x_BTD)
          .flatten(0, 1)
          .to(at::kDouble);
  const Tensor known_ME = at::cat({x_MD, at::ones({x_MD.size(0), 1}, x_MD.options())}, 1);
  const Tensor gram = known_ME.t().matmul(known_ME) + 1e-6 * at::eye(known_ME.size(1), at::kDouble);
  const Tensor guess_MZ = known_ME.matmul(at::linalg_solve(gram, known_ME.t().matmul(logits_MZ)));
  return ((logits_MZ - guess_MZ).square().sum() / (logits_MZ - logits_MZ.mean(0)).square().sum())
      .item<double>();
}

TEST(LookAhead, BitsSayWhatTheDecoderCannotKnowAtTheSameToken) {
  const Tensor tokens = tiny_tokens(64, 24), others = tiny_tokens(64, 24, 8);
  FreeTransformer model = tiny_model(config_with(4));
  ahead(model, {tokens, {}});
  const double chosen = share_of_news(model, others);
  // The same sight with the read-out as it was drawn.
  model->model->latent->readout->weight =
      initial_weight(model->config(), "model.latent.readout.weight", 1);
  const double drawn = share_of_news(model, others);
  EXPECT_GT(chosen, 1.15 * drawn) << chosen << " " << drawn;
}

TEST(LookAhead, BitsLeanNowhereOnAverageAndAreFirmWhereThereIsNews) {
  for (const int bits : {1, 4, 16}) {
    FreeTransformer model = tiny_model(config_with(bits));
    const Tensor tokens = tiny_tokens(32, 24);
    ahead(model, {tokens, {}});
    const Tensor logits = logits_of(model, tokens);
    EXPECT_NEAR(rms(logits), 1, 1e-3) << bits;
    EXPECT_LT(logits.mean(at::IntArrayRef{0, 1}).abs().max().item<double>(), 1e-3) << bits;
  }
}

TEST(LookAhead, CodesAreAsLoudAsWhatTheyAreAddedTo) {
  FreeTransformer model = tiny_model(config_with(4));
  const Batch batch{tiny_tokens(32, 24), {}};
  ahead(model, batch);
  EXPECT_NEAR(rms(model->model->latent->post_sampler->weight) / rms(model->first_half(batch).x_BTD),
              1, 1e-4);
}

TEST(LookAhead, ReturnsWhatItGaveTheModelAndNothingElseMoves) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    FreeTransformer model = tiny_model(config_with(4));
    model->to(dtype);
    std::map<std::string, Tensor> before;
    for (const auto& item : model->named_parameters()) {
      before[item.key()] = item.value().detach().clone();
    }
    const auto weights = ahead(model, {tiny_tokens(32, 24), {}});
    EXPECT_EQ(weights.size(), 4u);
    for (const auto& item : model->named_parameters()) {
      const auto given = weights.find(item.key());
      if (given == weights.end()) {
        expect_identical(item.value().detach(), before[item.key()]);
        continue;
      }
      EXPECT_EQ(given->second.scalar_type(), at::kFloat);
      expect_identical(item.value().detach(), given->second.to(dtype));
      EXPECT_FALSE(at::equal(item.value(), before[item.key()])) << item.key();
    }
  }
}

TEST(LookAhead, DependsOnNoNumberOfThreads) {
  const int before = kernels::thread_count();
  std::vector<std::map<std::string, Tensor>> found;
  for (const int threads : {1, 2}) {
    kernels::set_thread_count(threads);
    ops::prepare_torch();
    FreeTransformer model = tiny_model(config_with(4));
    found.push_back(ahead(model, {tiny_tokens(64, 32), {}}));
    EXPECT_EQ(at::get_num_threads(), threads);
  }
  kernels::set_thread_count(before);
  ops::prepare_torch();
  for (const auto& [name, weight] : found[0]) expect_identical(weight, found[1].at(name));
}

TEST(LookAhead, PaddingIsNotAsked) {
  const Tensor tokens = tiny_tokens(16, 24);
  const Tensor documents = at::zeros({16, 24}, at::kLong);
  documents.narrow(1, 20, 4).fill_(-1);
  Tensor other = tokens.clone();
  other.narrow(1, 20, 4).fill_(5);
  FreeTransformer one = tiny_model(config_with(4)), two = tiny_model(config_with(4));
  const auto a = ahead(one, {tokens, documents}), b = ahead(two, {other, documents});
  for (const auto& [name, weight] : a) expect_identical(weight, b.at(name));
}

TEST(LookAhead, RowsWithoutNewsLeaveTheReadoutAsItWasDrawn) {
  for (const Tensor& tokens :
       {tiny_tokens(3, 1), at::full({3, 1}, 7, at::kLong), at::full({4, 9}, 7, at::kLong)}) {
    FreeTransformer model = tiny_model(config_with(4));
    const Tensor drawn = model->model->latent->readout->weight.detach().clone();
    for (const auto& [name, weight] : ahead(model, {tokens, {}})) {
      EXPECT_LT(weight.abs().max().item<double>(), 100) << name;
    }
    expect_identical(model->model->latent->readout->weight.detach(), drawn);
  }
}

// Two symbols have few kinds of news; scaled up, the rest would be rounding.
TEST(LookAhead, BitsWithoutNewsStayAsTheyWereDrawn) {
  ModelConfig config = config_with(16);
  FreeTransformer model = tiny_model(config);
  const Tensor drawn = model->model->latent->readout->weight.detach().clone();
  ahead(model, {tiny_tokens(64, 24).remainder(2), {}});
  const Tensor weight = model->model->latent->readout->weight;
  EXPECT_FALSE(at::equal(weight[0], drawn[0]));
  EXPECT_TRUE(at::equal(weight[15], drawn[15]));
  EXPECT_LT(weight.abs().max().item<double>(), 100);
}

TEST(LookAhead, BatchesAreOneAndItStopsWhenItHasEnough) {
  const Tensor tokens = tiny_tokens(400, 24);
  const auto weights = [&](std::vector<int64_t> rows) {
    FreeTransformer model = tiny_model(config_with(4));
    std::vector<Batch> batches;
    int64_t begin = 0;
    for (const int64_t count : rows) {
      batches.push_back({tokens.narrow(0, begin, count), {}});
      begin += count;
    }
    return look_ahead(model, batches).at("model.latent.readout.weight");
  };
  EXPECT_LT(relative_error(weights({50, 50}), weights({100})), 1e-4);
  expect_identical(weights({200, 100}), weights({200}));  // 4,096 tokens and more
  EXPECT_GT(relative_error(weights({100, 100}), weights({100})), 1e-3);
}

// Every bit has its own direction; there are no more of them than D.
TEST(LookAhead, MoreBitsThanDimensionsKeepWhatWasDrawnForTheRest) {
  ModelConfig config = config_with(10);
  config.hidden_size = 8;
  FreeTransformer model = tiny_model(config);
  const Tensor before = model->model->latent->readout->weight.detach().clone();
  ahead(model, {tiny_tokens(32, 24), {}});
  const Tensor after = model->model->latent->readout->weight;
  for (int64_t bit = 0; bit < 10; ++bit) {
    EXPECT_EQ(at::equal(before[bit], after[bit]), bit >= 8) << bit;
  }
}

}  // namespace
}  // namespace freeformer
