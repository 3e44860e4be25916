#include "model/free_transformer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/tensor_manifest.h"
#include "expect_error.h"
#include "kernels/parallel.h"
#include "ops/torch_runtime.h"
#include "tensor_matchers.h"
#include "tiny_model.h"

namespace freeformer {
namespace {

Tensor uniforms(int64_t B, int64_t T, uint64_t first_sequence = 0) {
  std::vector<uint64_t> sequences;
  for (int64_t b = 0; b < B; ++b) sequences.push_back(first_sequence + uint64_t(b));
  return ops::latent_uniforms(11, sequences, 0, T, kTinyBits);
}

TEST(FreeTransformer, ParameterNamesAndShapesAreTheManifests) {
  for (const int bits : {0, kTinyBits}) {
    for (const bool tied : {false, true}) {
      ModelConfig config = tiny_config(bits);
      config.tie_word_embeddings = tied;
      const FreeTransformer model(config);
      std::set<std::string> expected;
      for (const TensorSpec& spec : tensor_manifest(config)) {
        expected.insert(spec.name);
        const Tensor* parameter = model->named_parameters().find(spec.name);
        ASSERT_NE(parameter, nullptr) << spec.name;
        EXPECT_EQ(parameter->sizes().vec(), spec.shape) << spec.name;
      }
      EXPECT_EQ(model->named_parameters().size(), expected.size());
    }
  }
}

TEST(FreeTransformer, WithAZeroTableItIsThePlainDecoderBitForBit) {
  FreeTransformer free = tiny_model(tiny_config(kTinyBits)), plain(tiny_config(0));
  {
    const torch::NoGradGuard no_grad;
    free->model->latent->post_sampler->weight.zero_();
    for (auto& parameter : plain->named_parameters()) {
      parameter.value().copy_(free->named_parameters()[parameter.key()]);
    }
  }
  const Batch batch{tiny_tokens(3, 9), {}};
  const auto with = free->forward(batch, LatentSource::posterior(uniforms(3, 9)));
  const auto without = plain->forward(batch, {});
  expect_identical(free->logits(with.hidden_BTD), plain->logits(without.hidden_BTD));
  EXPECT_FALSE(without.codes_BT.defined());
}

TEST(FreeTransformer, AsleepItIsThePlainDecoderWithoutCodesOrGradientForThem) {
  FreeTransformer free = tiny_model(tiny_config(kTinyBits)), plain(tiny_config(0));
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : plain->named_parameters()) {
      parameter.value().copy_(free->named_parameters()[parameter.key()]);
    }
  }
  const Tensor tokens = tiny_tokens(3, 9), targets = tiny_tokens(3, 9, 4);
  const Loss asleep = free->loss({tokens, {}}, targets, LatentSource::asleep());
  const Loss without = plain->loss({tokens, {}}, targets, {});
  expect_identical(asleep.total, without.total);
  EXPECT_EQ(asleep.kl.item<double>(), 0);
  EXPECT_FALSE(asleep.forward.codes_BT.defined());
  asleep.total.backward();
  without.total.backward();
  for (const auto& item : free->named_parameters()) {
    const Tensor* same = plain->named_parameters().find(item.key());
    if (same == nullptr) {
      EXPECT_FALSE(item.value().grad().defined()) << item.key();
    } else {
      expect_identical(item.value().grad(), same->grad());
    }
  }
}

TEST(FreeTransformer, DrawsTheSameBitsAloneAndInABatchAndWithAnyThreads) {
  FreeTransformer model = tiny_model(tiny_config(kTinyBits));
  const Tensor tokens = tiny_tokens(7, 12);
  const int before = kernels::thread_count();
  std::vector<Tensor> codes;
  for (const int threads : {1, 2}) {
    kernels::set_thread_count(threads);
    ops::prepare_torch();
    const auto batch = model->forward({tokens, {}}, LatentSource::posterior(uniforms(7, 12)));
    codes.push_back(batch.codes_BT);
    for (int64_t b = 0; b < 7; ++b) {
      const auto alone = model->forward({tokens.narrow(0, b, 1), {}},
                                        LatentSource::posterior(uniforms(1, 12, uint64_t(b))));
      expect_identical(alone.codes_BT[0], batch.codes_BT[b]);
    }
  }
  kernels::set_thread_count(before);
  ops::prepare_torch();
  expect_identical(codes[0], codes[1]);
  EXPECT_GT(std::get<0>(at::_unique(codes[0])).size(0), 5);  // and they are not all the same
}

TEST(FreeTransformer, ACodeActsFromItsOwnPositionOn) {
  FreeTransformer model = tiny_model(tiny_config(kTinyBits));
  const Batch batch{tiny_tokens(1, 8), {}};
  const Tensor codes = at::zeros({1, 8}, at::kLong);
  Tensor changed = codes.clone();
  changed[0][3] = 17;
  const Tensor a = model->logits(model->forward(batch, LatentSource::given(codes)).hidden_BTD);
  const Tensor b = model->logits(model->forward(batch, LatentSource::given(changed)).hidden_BTD);
  expect_identical(a.narrow(1, 0, 3), b.narrow(1, 0, 3));
  for (int64_t t = 3; t < 8; ++t) EXPECT_FALSE(at::equal(a[0][t], b[0][t])) << t;
}

TEST(FreeTransformer, WithGivenCodesLaterTokensDoNotMatterButTheEncoderReadsThem) {
  FreeTransformer model = tiny_model(tiny_config(kTinyBits));
  Tensor tokens = tiny_tokens(1, 8), changed = tokens.clone();
  changed[0][7] = (changed[0][7].item<int64_t>() + 1) % 23;
  const auto codes = LatentSource::given(at::full({1, 8}, 9, at::kLong));
  const Tensor a = model->forward({tokens, {}}, codes).hidden_BTD;
  const Tensor b = model->forward({changed, {}}, codes).hidden_BTD;
  expect_identical(a.narrow(1, 0, 7), b.narrow(1, 0, 7));
  const auto posterior = LatentSource::posterior(uniforms(1, 8));
  const Tensor bits_a = model->forward({tokens, {}}, posterior).bit_logits_BTZ;
  const Tensor bits_b = model->forward({changed, {}}, posterior).bit_logits_BTZ;
  EXPECT_FALSE(at::equal(bits_a[0][0], bits_b[0][0]));  // z_1 may describe the whole text
}

TEST(FreeTransformer, PositionsGetDifferentBitLogitsFromOneQuery) {
  FreeTransformer model = tiny_model(tiny_config(kTinyBits));
  const Tensor bits =
      model->forward({tiny_tokens(1, 6), {}}, LatentSource::posterior(uniforms(1, 6)))
          .bit_logits_BTZ;
  for (int64_t t = 1; t < 6; ++t) EXPECT_FALSE(at::equal(bits[0][0], bits[0][t]));
}

TEST(FreeTransformer, PriorCodesAreUniformAndGivenCodesAreKept) {
  FreeTransformer model = tiny_model(tiny_config(kTinyBits));
  const Batch batch{tiny_tokens(8, 32), {}};
  const auto prior = model->forward(batch, LatentSource::prior(uniforms(8, 32)));
  EXPECT_FALSE(prior.bit_logits_BTZ.defined());
  const Tensor counts = at::bincount(prior.codes_BT.flatten(), {}, 32);
  EXPECT_EQ(counts.size(0), 32);                // 256 draws from 32 codes
  EXPECT_LT(counts.max().item<int64_t>(), 22);  // 8 expected, standard deviation 2.8
  const Tensor codes = at::full({8, 32}, 21, at::kLong);
  expect_identical(model->forward(batch, LatentSource::given(codes)).codes_BT, codes);
}

TEST(FreeTransformer, UniformsOfOneHalfGiveTheMostLikelyCodes) {
  FreeTransformer model = tiny_model(tiny_config(kTinyBits));
  const auto result = model->forward({tiny_tokens(2, 6), {}},
                                     LatentSource::posterior(at::full({2, 6, kTinyBits}, 0.5f)));
  const Tensor powers = at::tensor({1, 2, 4, 8, 16}, at::kLong);
  expect_identical(result.codes_BT, (result.bit_logits_BTZ.gt(0).to(at::kLong) * powers).sum(-1));
}

TEST(FreeTransformer, DocumentsInOneWindowDoNotSeeEachOther) {
  FreeTransformer model = tiny_model(tiny_config(kTinyBits));
  const Tensor documents = at::tensor({0, 0, 0, 0, 1, 1, 1, 2, 2, 2}, at::kLong).unsqueeze(0);
  const auto source = LatentSource::posterior(uniforms(1, 10));
  const Tensor tokens = tiny_tokens(1, 10);
  const auto before = model->forward({tokens, documents}, source);
  for (const auto& [changed_begin, changed_size] :
       {std::pair<int64_t, int64_t>{0, 4}, {4, 3}, {7, 3}}) {
    Tensor changed = tokens.clone();
    changed.narrow(1, changed_begin, changed_size).add_(5).remainder_(23);
    const auto after = model->forward({changed, documents}, source);
    for (int64_t t = 0; t < 10; ++t) {
      const bool same_document = t >= changed_begin && t < changed_begin + changed_size;
      EXPECT_EQ(at::equal(before.hidden_BTD[0][t], after.hidden_BTD[0][t]), !same_document) << t;
      EXPECT_EQ(at::equal(before.bit_logits_BTZ[0][t], after.bit_logits_BTZ[0][t]), !same_document)
          << t;
      if (!same_document) expect_identical(before.codes_BT[0][t], after.codes_BT[0][t]);
    }
  }
}

TEST(FreeTransformer, ADocumentInAWindowIsTheDocumentAlone) {
  FreeTransformer model = tiny_model(tiny_config(kTinyBits));
  const Tensor documents = at::tensor({0, 0, 0, 0, 1, 1, 1, 1, 1}, at::kLong).unsqueeze(0);
  const Tensor tokens = tiny_tokens(1, 9), codes = at::full({1, 9}, 3, at::kLong);
  const auto packed =
      model->forward({tokens, documents}, LatentSource::posterior_with_codes(codes));
  const auto alone = model->forward({tokens.narrow(1, 4, 5), {}},
                                    LatentSource::posterior_with_codes(codes.narrow(1, 4, 5)));
  EXPECT_LT(relative_error(packed.hidden_BTD.narrow(1, 4, 5), alone.hidden_BTD), 1e-6);
  EXPECT_LT(relative_error(packed.bit_logits_BTZ.narrow(1, 4, 5), alone.bit_logits_BTZ), 1e-6);
}

TEST(FreeTransformer, ATiedReadOutIsTheEmbedding) {
  ModelConfig config = tiny_config(0);
  config.tie_word_embeddings = true;
  FreeTransformer model = tiny_model(config);
  const Tensor hidden = random_tensor({1, 2, 12}, 1);
  EXPECT_LT(relative_error(model->logits(hidden),
                           at::matmul(hidden, model->model->embed_tokens->weight.t())),
            1e-6);
}

// Gradients of the whole model by finite differences in fp64, for a few elements of every tensor.
// `loss` must be differentiable as it is computed: codes fixed, or a table of zeros.
void expect_parameter_gradients_match(FreeTransformer& model, const std::function<Tensor()>& loss,
                                      const std::function<bool(const std::string&)>& wanted) {
  model->zero_grad();
  loss().backward();
  for (auto& item : model->named_parameters()) {
    if (!wanted(item.key())) continue;
    Tensor parameter = item.value();
    ASSERT_TRUE(parameter.grad().defined()) << item.key();
    const Tensor gradient =
        (parameter.grad().is_sparse() ? parameter.grad().to_dense() : parameter.grad()).flatten();
    const torch::NoGradGuard no_grad;
    Tensor flat = parameter.view(-1);
    for (int64_t i = 0; i < flat.size(0); i += std::max<int64_t>(1, flat.size(0) / 5)) {
      constexpr double kStep = 1e-5;
      const double before = flat[i].item<double>();
      flat[i].fill_(before + kStep);
      const double up = loss().item<double>();
      flat[i].fill_(before - kStep);
      const double down = loss().item<double>();
      flat[i].fill_(before);
      EXPECT_NEAR(gradient[i].item<double>(), (up - down) / (2 * kStep), 1e-7)
          << item.key() << "[" << i << "]";
    }
  }
}

TEST(FreeTransformer, DecoderGradientsMatchFiniteDifferencesUnderGivenCodes) {
  FreeTransformer model = tiny_model(tiny_config(kTinyBits));
  model->to(at::kDouble);
  const Tensor tokens = tiny_tokens(2, 7), codes = tiny_tokens(2, 6, 8);
  const Batch batch{tokens.narrow(1, 0, 6), {}};
  expect_parameter_gradients_match(
      model,
      [&] { return model->loss(batch, tokens.narrow(1, 1, 6), LatentSource::given(codes)).total; },
      [](const std::string& name) {
        return name.find(".latent.") == name.npos || name.find("post_sampler") != name.npos;
      });
}

TEST(FreeTransformer, EncoderGradientsOfTheKlMatchFiniteDifferences) {
  FreeTransformer model = tiny_model(tiny_config(kTinyBits));
  model->to(at::kDouble);
  model->model->latent->post_sampler->weight.detach().zero_();
  const Tensor tokens = tiny_tokens(2, 7);
  const Batch batch{tokens.narrow(1, 0, 6), {}};
  const auto source = LatentSource::posterior(uniforms(2, 6));
  expect_parameter_gradients_match(
      model, [&] { return model->loss(batch, tokens.narrow(1, 1, 6), source).total; },
      [](const std::string& name) { return name.find("post_sampler") == name.npos; });
}

TEST(Loss, IsCrossEntropyPlusTheHingedKl) {
  FreeTransformer model = tiny_model(tiny_config(kTinyBits));
  const Tensor tokens = tiny_tokens(2, 7);
  const Batch batch{tokens.narrow(1, 0, 6), {}};
  const auto source = LatentSource::posterior(uniforms(2, 6));
  const Loss loss = model->loss(batch, tokens.narrow(1, 1, 6), source);
  const double kappa = 0.25 * std::log(2.0);
  EXPECT_NEAR(loss.total.item<double>(),
              loss.cross_entropy.item<double>() + loss.kl_penalty.item<double>(), 1e-6);
  EXPECT_NEAR(loss.cross_entropy.item<double>(), loss.nll_BT.mean().item<double>(), 1e-6);
  EXPECT_NEAR(loss.kl.item<double>(), loss.kl_BT.mean().item<double>(), 1e-6);
  EXPECT_NEAR(loss.kl_penalty.item<double>(),
              (loss.kl_BT - kappa).clamp_min(0).mean().item<double>(), 1e-6);
  EXPECT_GT(loss.kl_penalty.item<double>(), 0);
  // The hinge is per token: with κ between the tokens' KLs some count and some do not.
  const double between = loss.kl_BT.median().item<double>() / std::log(2.0);
  const Loss half = model->loss(batch, tokens.narrow(1, 1, 6), source, KlPrice{between});
  EXPECT_GT(half.kl_penalty.item<double>(), 0);
  EXPECT_LT(half.kl_penalty.item<double>(), loss.kl_penalty.item<double>());
  // Below κ the latent costs nothing.
  EXPECT_EQ(
      model->loss(batch, tokens.narrow(1, 1, 6), source, KlPrice{5.0}).kl_penalty.item<double>(),
      0);
}

TEST(Loss, IgnoredTargetsDoNotCountButTheirTokensPayForTheirCodes) {
  FreeTransformer model = tiny_model(tiny_config(kTinyBits));
  const Tensor tokens = tiny_tokens(1, 7);
  const Batch batch{tokens.narrow(1, 0, 6), {}};
  const auto source = LatentSource::posterior(uniforms(1, 6));
  Tensor targets = tokens.narrow(1, 1, 6).clone();
  const Loss all = model->loss(batch, targets, source);
  targets.narrow(1, 0, 4).fill_(ops::kIgnoredTarget);  // a prompt
  const Loss some = model->loss(batch, targets, source);
  EXPECT_NEAR(some.cross_entropy.item<double>(), all.nll_BT.narrow(1, 4, 2).mean().item<double>(),
              1e-6);
  // The bound on the answer's likelihood: all codes are paid, per target of the answer.
  EXPECT_NEAR(some.kl.item<double>(), all.kl_BT.sum().item<double>() / 2, 1e-5);
}

TEST(Loss, PaddingPaysNothing) {
  FreeTransformer model = tiny_model(tiny_config(kTinyBits));
  const Tensor tokens = tiny_tokens(1, 7);
  const Tensor documents = at::tensor({0, 0, 0, 0, -1, -1}, at::kLong).unsqueeze(0);
  Tensor targets = tokens.narrow(1, 1, 6).clone();
  targets.narrow(1, 4, 2).fill_(ops::kIgnoredTarget);
  const Loss loss = model->loss({tokens.narrow(1, 0, 6), documents}, targets,
                                LatentSource::posterior(uniforms(1, 6)));
  EXPECT_EQ(loss.kl_BT.narrow(1, 4, 2).abs().sum().item<double>(), 0);
  const Loss alone = model->loss({tokens.narrow(1, 0, 4), {}}, targets.narrow(1, 0, 4),
                                 LatentSource::posterior(uniforms(1, 4)));
  EXPECT_NEAR(loss.total.item<double>(), alone.total.item<double>(), 1e-6);
}

TEST(FreeTransformer, CodesOutsideTheTableAreRefused) {
  FreeTransformer model = tiny_model(tiny_config(kTinyBits));
  const Batch batch{tiny_tokens(1, 4), {}};
  for (const int64_t code : {-1, 32}) {
    EXPECT_FREEFORMER_ERROR(
        ErrorCode::kInvalidArgument, "expected 0 to 31",
        model->forward(batch, LatentSource::given(at::full({1, 4}, code, at::kLong))));
  }
}

TEST(Loss, OfThePlainDecoderIsItsCrossEntropy) {
  FreeTransformer model = tiny_model(tiny_config(0));
  const Tensor tokens = tiny_tokens(2, 7);
  const Loss loss = model->loss({tokens.narrow(1, 0, 6), {}}, tokens.narrow(1, 1, 6), {});
  EXPECT_EQ(loss.total.item<float>(), loss.cross_entropy.item<float>());
  EXPECT_FALSE(loss.kl_BT.defined());
}

TEST(FreeTransformer, AFewStepsOfPlainDescentLowerTheLoss) {
  FreeTransformer model = tiny_model(tiny_config(kTinyBits));
  const Tensor tokens = tiny_tokens(4, 9);
  const Batch batch{tokens.narrow(1, 0, 8), {}};
  const auto step = [&](double rate) {
    model->zero_grad();
    const Loss loss =
        model->loss(batch, tokens.narrow(1, 1, 8), LatentSource::posterior(uniforms(4, 8)));
    loss.total.backward();
    const torch::NoGradGuard no_grad;
    for (Tensor& parameter : model->parameters()) parameter.add_(parameter.grad(), -rate);
    return loss.total.item<double>();
  };
  const double first = step(0.05);
  double last = first;
  for (int i = 0; i < 30; ++i) last = step(0.05);
  EXPECT_LT(last, 0.8 * first);
}

}  // namespace
}  // namespace freeformer
