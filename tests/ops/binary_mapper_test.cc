#include "ops/binary_mapper.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <numeric>

#include "core/shape.h"
#include "kernels/parallel.h"
#include "tensor_matchers.h"

namespace freeformer::ops {
namespace {

// Equation 8 as it is written: the one-hot of z plus G - stop_gradient(G), times the table.
Tensor dense_straight_through(const Tensor& bit_logits_BTZ, const Tensor& codes_BT,
                              const Tensor& table_CD) {
  const int64_t Z = bit_logits_BTZ.size(-1), C = table_CD.size(0);
  const Tensor codes_C = at::arange(C, codes_BT.options());
  const Tensor u_CZ = codes_C.unsqueeze(1)
                          .bitwise_right_shift(at::arange(Z, codes_BT.options()))
                          .bitwise_and(1)
                          .to(bit_logits_BTZ.scalar_type());
  const Tensor log_G = at::matmul(at::log_sigmoid(bit_logits_BTZ), u_CZ.t()) +
                       at::matmul(at::log_sigmoid(-bit_logits_BTZ), (1 - u_CZ).t());
  const Tensor G_BTC = log_G.exp();
  const Tensor Y_BTC = at::one_hot(codes_BT, C).to(G_BTC.scalar_type());
  return at::matmul(Y_BTC + G_BTC - G_BTC.detach(), table_CD);
}

struct Gradients {
  Tensor out, d_logits, d_table;
};

using MapperFunction = std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>;

Tensor exact(const Tensor& logits, const Tensor& codes, const Tensor& table) {
  return binary_mapper(logits, codes, table);
}

Gradients run(const MapperFunction& mapper, const Tensor& logits, const Tensor& codes,
              const Tensor& table) {
  const Tensor l = logits.clone().requires_grad_(), w = table.clone().requires_grad_();
  const Tensor out = mapper(l, codes, w);
  (out * random_tensor(out.sizes(), 9, out.scalar_type())).sum().backward();
  return {out.detach(), l.grad(), w.grad()};
}

class BinaryMapperBits : public testing::TestWithParam<int> {};

TEST_P(BinaryMapperBits, MatchesTheDenseOracleFromFlatToSaturated) {
  const int Z = GetParam();
  for (const double scale : {0.01, 1.0, 10.0}) {  // of a normal: the last saturates to 30
    const Tensor logits = (random_tensor({3, 5, Z}, 1, at::kDouble) * scale).clamp(-30, 30);
    const Tensor table = random_tensor({code_count(Z), 6}, 2, at::kDouble);
    const Tensor codes = sample_codes(logits, at::rand({3, 5, Z}));
    const Gradients expected = run(dense_straight_through, logits, codes, table);
    const Gradients in_fp32 = run(exact, logits.to(at::kFloat), codes, table.to(at::kFloat));
    const Gradients in_fp64 = run(exact, logits, codes, table);
    for (const auto& [found, tolerance] : {std::pair(in_fp32, 1e-5), std::pair(in_fp64, 1e-12)}) {
      EXPECT_LT(relative_error(found.out, expected.out), tolerance);
      EXPECT_LT(relative_error(found.d_logits, expected.d_logits), tolerance) << scale;
      EXPECT_LT(relative_error(found.d_table, expected.d_table), tolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bits, BinaryMapperBits, testing::Range(1, 11));

TEST(BinaryMapper, TheAtenVersionFoldsSeveralTiles) {
  const Tensor logits = random_tensor({7, 12}, 1), grad = random_tensor({7, 5}, 3);
  const Tensor table = random_tensor({4096, 5}, 2);
  const Tensor fused = binary_mapper_backward_logits(logits, table, grad, true);
  const Tensor aten = binary_mapper_backward_logits(logits.to(at::kDouble), table.to(at::kDouble),
                                                    grad.to(at::kDouble), false);
  EXPECT_LT(relative_error(fused, aten), 1e-5);
}

TEST(BinaryMapper, WithATableInBf16OnlyTheRoundingDiffers) {
  const Tensor logits = random_tensor({4, 9, 8}, 1);
  const Tensor table = random_tensor({256, 16}, 2).to(at::kBFloat16);
  const Tensor codes = sample_codes(logits, at::rand({4, 9, 8}));
  const Gradients found = run(exact, logits, codes, table);
  const Gradients expected = run(exact, logits, codes, table.to(at::kFloat));
  expect_identical(found.out.to(at::kFloat), expected.out);
  EXPECT_EQ(found.d_table.scalar_type(), at::kBFloat16);
  EXPECT_LT(relative_error(found.d_logits, expected.d_logits), 1e-2);
  EXPECT_LT(relative_error(found.d_table, expected.d_table.to_dense()), 1e-2);
}

TEST(BinaryMapper, TheTablesGradientHoldsOnlyTheRowsThatWereDrawn) {
  const Tensor table = random_tensor({1 << 12, 4}, 1).requires_grad_();
  const Tensor codes = at::tensor({5, 9, 5, 4095}, at::kLong).view({2, 2});
  for (int step = 1; step <= 2; ++step) {  // gradients accumulate sparse, too
    binary_mapper({}, codes, table).sum().backward();
    ASSERT_TRUE(table.grad().is_sparse());
    const Tensor gradient = table.grad().coalesce();
    expect_identical(gradient.indices()[0], at::tensor({5, 9, 4095}, at::kLong));
    expect_identical(gradient.values().select(1, 0), at::tensor({2.0f, 1.0f, 1.0f}) * step);
  }
}

int64_t peak_memory_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
  }
  return 0;
}

TEST(BinaryMapper, NothingOfSizeTokensTimesCodesIsStored) {
  // 4096 tokens x 65,536 codes in fp32 would be 1 GiB.
  const Tensor logits = random_tensor({1, 4096, 16}, 1).requires_grad_();
  const Tensor table = random_tensor({1 << 16, 8}, 2).requires_grad_();
  const Tensor codes = sample_codes(logits.detach(), at::rand({1, 4096, 16}));
  const int64_t before = peak_memory_kib();
  ASSERT_GT(before, 0);
  binary_mapper(logits, codes, table).square().sum().backward();
  EXPECT_LT(peak_memory_kib() - before, 64 << 10);
}

TEST(BinaryMapper, TheGradientsOfAllSamplesAverageToTheExactOne) {
  constexpr int Z = 4;
  constexpr int64_t B = 2, T = 8, kGroup = 4;
  const Tensor logits = random_tensor({B, T, Z}, 1, at::kFloat);
  const Tensor table = random_tensor({code_count(Z), 6}, 2, at::kFloat);
  const Tensor codes = sample_codes(logits, at::rand({B, T, Z}));
  const Gradients whole = run(exact, logits, codes, table);
  Tensor mean = at::zeros_like(logits);
  for (int64_t place = 0; place < kGroup; ++place) {
    const GradientSample sample{at::arange(place, B * T, kGroup), double(kGroup)};
    const Gradients part = run([&](const Tensor& l, const Tensor& z,
                                   const Tensor& w) { return binary_mapper(l, z, w, sample); },
                               logits, codes, table);
    EXPECT_TRUE(at::equal(part.out, whole.out));
    EXPECT_LT(relative_error(part.d_table, whole.d_table), 1e-6);
    EXPECT_EQ(part.d_logits.abs().sum(-1).count_nonzero().item<int64_t>(), B * T / kGroup);
    mean += part.d_logits / kGroup;
  }
  EXPECT_LT(relative_error(mean, whole.d_logits), 1e-6);
}

TEST(BinaryMapper, ASampleOfNobodyHasNoGradientNotAll) {
  const Tensor logits = at::randn({1, 2, 3}), codes = at::zeros({1, 2}, at::kLong);
  const Tensor table = at::randn({8, 5});
  const GradientSample nobody{at::empty({0}, at::kLong), 4};
  const Tensor leaf = logits.clone().requires_grad_();
  binary_mapper(leaf, codes, table, nobody).sum().backward();
  EXPECT_EQ(leaf.grad().abs().sum().item<double>(), 0);
}

TEST(SampleTokens, TakesOneTokenOfEachGroupAllAlikeOften) {
  constexpr int64_t T = 10, kGroup = 4;  // the last group has two tokens
  std::vector<uint64_t> sequences(4000);
  std::iota(sequences.begin(), sequences.end(), 7);
  const GradientSample sample = sample_tokens(3, sequences, T, kGroup);
  EXPECT_EQ(sample.scale, 4);
  const Tensor counts = at::bincount(sample.tokens.remainder(T), {}, T);
  for (int64_t t = 0; t < T; ++t) {
    EXPECT_NEAR(counts[t].item<double>() / 4000, 0.25, 0.035) << t;  // five standard errors
  }
  const Tensor groups =
      sample.tokens.floor_divide(T) * 3 + sample.tokens.remainder(T).floor_divide(4);
  EXPECT_EQ(std::get<0>(at::_unique(groups)).numel(), sample.tokens.numel()) << "two of one group";
  // A function of (seed, sequence, position) alone.
  const GradientSample alone = sample_tokens(3, {9}, T, kGroup);
  const Tensor in_batch = sample.tokens.masked_select(sample.tokens.floor_divide(T).eq(2)) - 2 * T;
  EXPECT_TRUE(at::equal(alone.tokens, in_batch));
  EXPECT_FALSE(at::equal(sample_tokens(4, sequences, T, kGroup).tokens, sample.tokens));
  EXPECT_FALSE(sample_tokens(3, sequences, T, 1).tokens.defined()) << "all tokens";
}

TEST(SampleCodes, BitHIsSetWhereItsUniformIsBelowItsProbability) {
  const Tensor logits = at::tensor({0.0f, 2.0f, -2.0f, 40.0f, -40.0f}).view({1, 1, 5});
  const Tensor uniforms = at::tensor({0.4999f, 0.9f, 0.11f, 0.9999f, 0.0f}).view({1, 1, 5});
  // sigmoid(2) = 0.8808, sigmoid(-2) = 0.1192; the last underflows to above 0.
  EXPECT_EQ(sample_codes(logits, uniforms).item<int64_t>(), 1 + 0 + 4 + 8 + 16);
}

TEST(BitsKl, MatchesItsDefinitionFromFlatToSaturated) {
  for (const double l : {1e-4, 1e-2, 0.3, 1.9, 2.1, 5.0, 30.0, -1.0, -30.0}) {
    const long double p = 1 / (1 + std::exp(-static_cast<long double>(l))), q = 1 - p;
    const auto expected = double(std::log(2.0L) + p * std::log(p) + q * std::log(q));
    const Tensor found = bits_kl(at::full({1, 1, 1}, l));
    EXPECT_NEAR(found.item<double>(), expected, 2e-6 * expected) << l;
  }
  EXPECT_EQ(bits_kl(at::zeros({1, 1, 3})).item<float>(), 0.0f);
  EXPECT_FLOAT_EQ(bits_kl(at::full({1, 1, 3}, 500.0f)).item<float>(), 3 * std::log(2.0f));
}

TEST(BitsKl, GradientIsPTimesOneMinusPTimesTheLogit) {
  const Tensor logits =
      at::tensor({-500.0, -20.0, -1.0, -1e-3, 0.0, 1e-3, 0.7, 1.99, 2.01, 20.0, 500.0})
          .view({1, 1, -1})
          .requires_grad_();
  bits_kl(logits).sum().backward();
  const Tensor p = logits.detach().sigmoid(), q = (-logits.detach()).sigmoid();
  EXPECT_LT(relative_error(logits.grad(), p * q * logits.detach()), 1e-12);
}

TEST(BitsLogProbability, SumsToOneOverAllCodes) {
  const Tensor logits = random_tensor({1, 1, 5}, 1, at::kDouble).expand({1, 32, 5});
  const Tensor codes = at::arange(32, at::kLong).view({1, 32});
  EXPECT_NEAR(bits_log_probability(logits, codes).exp().sum().item<double>(), 1.0, 1e-12);
  // and agrees with the frequency of draws
  const Tensor drawn = sample_codes(logits.narrow(1, 0, 1).expand({1, 20000, 5}),
                                    latent_uniforms(3, {0}, 0, 20000, 5));
  const double frequency = drawn.eq(7).to(at::kDouble).mean().item<double>();
  EXPECT_NEAR(frequency, bits_log_probability(logits, codes).exp()[0][7].item<double>(), 0.01);
}

TEST(LatentUniforms, DependOnSeedSequencePositionAndBitAlone) {
  const Tensor batch = latent_uniforms(7, {10, 11, 12, 13, 14, 15, 16}, 0, 9, 16);
  const Tensor alone = latent_uniforms(7, {13}, 4, 5, 16);
  expect_identical(batch[3].narrow(0, 4, 5), alone[0]);
  EXPECT_FALSE(at::equal(alone, latent_uniforms(8, {13}, 4, 5, 16)));
  EXPECT_FALSE(at::equal(batch[0], batch[1]));
}

}  // namespace
}  // namespace freeformer::ops
