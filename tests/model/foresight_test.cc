#include "model/foresight.h"

#include <gtest/gtest.h>

#include <limits>

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

// Token 0, and now and then, at random, token 1 or 2.
Tensor rarely_something(int64_t B, int64_t T) {
  const Tensor tokens_BT = tiny_tokens(B, T);
  return at::where(tokens_BT.lt(2), tokens_BT + 1, at::zeros_like(tokens_BT));
}

// A decoder that has learned of such tokens that 0 is likely.
FreeTransformer model_with_expectations(int bits) {
  FreeTransformer model = tiny_model(config_with(bits));
  const torch::NoGradGuard no_grad;
  const Tensor hidden_D = model->forward({rarely_something(64, 24), {}}, LatentSource::asleep())
                              .hidden_BTD.mean(at::IntArrayRef{0, 1});
  Tensor head_VD = model->lm_head->weight;
  head_VD.mul_(0.01);
  head_VD[0].copy_(hidden_D * (5 / hidden_D.dot(hidden_D)));
  return model;
}

TEST(LookAhead, EvenBitsSayThatThereIsNewsAndOddBitsWhich) {
  FreeTransformer model = model_with_expectations(4);
  const Tensor tokens = rarely_something(64, 24);
  ahead(model, {tokens, {}});
  const Tensor logits_BTZ = logits_of(model, tokens).narrow(1, 0, 23).to(at::kDouble);
  const Tensor next_BT = tokens.narrow(1, 1, 23);
  const auto mean = [&](int64_t next, int64_t bit) {
    return logits_BTZ.select(2, bit).index({next_BT.eq(next)}).mean().item<double>();
  };
  for (const int64_t bit : {0, 2}) {
    EXPECT_NEAR(mean(1, bit), 2, 0.4);
    EXPECT_NEAR(mean(2, bit), 2, 0.4);
    EXPECT_LT(std::abs(mean(0, bit)), 0.4);
  }
  for (const int64_t bit : {1, 3}) {
    EXPECT_NEAR(std::abs(mean(1, bit)), 2, 0.4);
    EXPECT_NEAR(mean(2, bit), -mean(1, bit), 0.4);
    EXPECT_LT(std::abs(mean(0, bit)), 0.4);
  }
}

// What comes every other time surprises this decoder no less than it did; what it expects does not.
TEST(LookAhead, ADecoderThatExpectsWhatComesHasOtherNews) {
  FreeTransformer expects = model_with_expectations(1), knows_nothing = tiny_model(config_with(1));
  const Tensor tokens = rarely_something(64, 24);
  const auto share_of_rare = [&](FreeTransformer& model) {
    ahead(model, {tokens, {}});
    const Tensor logits_BT = logits_of(model, tokens).select(2, 0).narrow(1, 0, 23).square();
    const Tensor rare_BT = tokens.narrow(1, 1, 23).gt(0).to(at::kFloat);
    return ((logits_BT * rare_BT).sum() / logits_BT.sum()).item<double>();
  };
  EXPECT_GT(share_of_rare(expects), 0.8);
  EXPECT_LT(share_of_rare(knows_nothing), 0.7);
}

TEST(LookAhead, EveryFourBitsHaveAKindOfNewsOfTheirOwn) {
  FreeTransformer model = tiny_model(config_with(10));
  ahead(model, {tiny_tokens(64, 24), {}});
  const Tensor weight = model->model->latent->readout->weight.detach();
  expect_identical(weight.narrow(0, 0, 2), weight.narrow(0, 2, 2));
  expect_identical(weight.narrow(0, 4, 2), weight.narrow(0, 6, 2));
  const auto cosine = [&](int64_t a, int64_t b) {
    return std::abs(
        (weight[a].dot(weight[b]) / (weight[a].norm() * weight[b].norm())).item<float>());
  };
  for (const auto& [a, b] : {std::pair{1, 5}, std::pair{1, 9}, std::pair{5, 9}}) {
    EXPECT_LT(cosine(a, b), 0.7) << a << " " << b;
  }
}

// What is rare alike has no sides: there is nothing for a "which" to say.
TEST(LookAhead, OneSurpriseAloneIsToldByItsFirstBit) {
  FreeTransformer model = model_with_expectations(4);
  const Tensor drawn = model->model->latent->readout->weight.detach().clone();
  const Tensor tokens = at::tensor({0, 0, 1}, at::kLong).expand({128, 3}).contiguous();
  ahead(model, {tokens, {}});
  const Tensor logits_BT = logits_of(model, tokens).select(2, 0);
  EXPECT_LT(logits_BT.select(1, 0).mean().item<double>(), -0.5);
  EXPECT_GT(logits_BT.select(1, 1).mean().item<double>(), 0.5);
  expect_identical(model->model->latent->readout->weight.detach().narrow(0, 1, 3),
                   drawn.narrow(0, 1, 3));
}

TEST(LookAhead, OneRareTokenDoesNotMakeBitsThatShoutAtOthers) {
  FreeTransformer model = tiny_model(config_with(4));
  Tensor tokens = at::zeros({64, 24}, at::kLong);
  tokens[5][12] = 3;
  ahead(model, {tokens, {}});
  EXPECT_LT(rms(logits_of(model, tiny_tokens(16, 24))), 20);
}

TEST(LookAhead, DocumentsOfOnePredictionEachHaveNoNewsInThem) {
  FreeTransformer model = tiny_model(config_with(4));
  const Tensor drawn = model->model->latent->readout->weight.detach().clone();
  Tensor documents = at::arange(12).unsqueeze(1).expand({12, 2}).reshape({1, 24}).clone();
  documents = at::where(at::arange(24).remainder(2).eq(1), at::full_like(documents, -1), documents);
  ahead(model, {tiny_tokens(16, 24), documents.expand({16, 24}).contiguous()});
  expect_identical(model->model->latent->readout->weight.detach(), drawn);
}

TEST(LookAhead, PaddingAloneChangesNothing) {
  FreeTransformer model = tiny_model(config_with(4));
  EXPECT_TRUE(ahead(model, {tiny_tokens(4, 24), at::full({4, 24}, -1, at::kLong)}).empty());
}

TEST(LookAhead, ADecoderThatIsInfinitelySurprisedKeepsItsReadout) {
  FreeTransformer model = tiny_model(config_with(4));
  const Tensor drawn = model->model->latent->readout->weight.detach().clone();
  {
    const torch::NoGradGuard no_grad;
    model->lm_head->weight.fill_(std::numeric_limits<float>::infinity());
  }
  ahead(model, {tiny_tokens(16, 24), {}});
  expect_identical(model->model->latent->readout->weight.detach(), drawn);
}

TEST(LookAhead, BitsLeanNowhereOnAverageAndAreNeverLoud) {
  for (const int bits : {1, 4, 16}) {
    FreeTransformer model = tiny_model(config_with(bits));
    const Tensor tokens = tiny_tokens(32, 24);
    ahead(model, {tokens, {}});
    const Tensor logits = logits_of(model, tokens);
    for (int64_t bit = 0; bit < bits; ++bit) {
      EXPECT_LT(rms(logits.select(2, bit)), 1.001) << bits;
      EXPECT_GT(rms(logits.select(2, bit)), 0.3) << bits;
    }
    EXPECT_LT(logits.mean(at::IntArrayRef{0, 1}).abs().max().item<double>(), 1e-3) << bits;
    EXPECT_LT(rms(logits_of(model, tiny_tokens(32, 24, 11))), 1.5) << bits;
  }
}

TEST(LookAhead, WhatFollowsInAnotherDocumentIsNoNews) {
  const Tensor tokens = tiny_tokens(16, 24);
  Tensor documents = at::zeros({16, 24}, at::kLong);
  documents.narrow(1, 12, 12).fill_(1);
  FreeTransformer model = tiny_model(config_with(4));
  const auto packed = ahead(model, {tokens, documents});
  FreeTransformer apart = tiny_model(config_with(4));
  const auto rows =
      ahead(apart, {at::cat({tokens.narrow(1, 0, 12), tokens.narrow(1, 12, 12)}), {}});
  for (const auto& [name, weight] : packed) {
    EXPECT_LT(relative_error(weight, rows.at(name)), 1e-3) << name;
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
TEST(LookAhead, FewKindsOfNewsMakeNoLargeWeights) {
  FreeTransformer model = tiny_model(config_with(16));
  const Tensor tokens = tiny_tokens(64, 24).remainder(2);
  ahead(model, {tokens, {}});
  EXPECT_LT(model->model->latent->readout->weight.abs().max().item<double>(), 10);
  EXPECT_LT(rms(logits_of(model, tokens)), 1.001);
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

}  // namespace
}  // namespace freeformer
