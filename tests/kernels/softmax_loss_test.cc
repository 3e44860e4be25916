#include "kernels/softmax_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "isa_test.h"
#include "kernel_values.h"

namespace freeformer::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows with room between them, which nobody may touch.
template <typename T>
void expect_matches(int64_t V, float scale, int64_t offset, double tolerance) {
  constexpr int64_t M = 3;
  const auto values = random_floats(M * V, scale, 1);
  auto targets = random_codes(M, V, 2);
  targets[1] = kIgnoredTarget;
  const int64_t stride = V + 5, gradient_stride = V + 3;
  std::vector<float> strided(size_t(M * stride), NAN);
  for (int64_t m = 0; m < M; ++m) {
    std::copy_n(values.begin() + m * V, V, strided.begin() + m * stride);
  }
  const Input<float> logits(strided, offset);
  Output<float> nll(M), nll_alone(M);
  Output<T> gradient(M * gradient_stride, offset);
  softmax_loss(logits.data(), stride, targets.data(), M, V, nll.data(), gradient.data(),
               gradient_stride);
  softmax_loss(logits.data(), stride, targets.data(), M, V, nll_alone.data());

  const auto expected = reference::softmax_loss({values.begin(), values.end()}, targets, V);
  expect_near<float>(nll.values(), expected.nll_M, tolerance, "nll");
  EXPECT_EQ(nll.values(), nll_alone.values());
  EXPECT_EQ(nll.values()[1], 0);
  const auto found = gradient.values();
  std::vector<float> dense;
  for (int64_t m = 0; m < M; ++m) {
    const auto row = found.begin() + m * gradient_stride;
    dense.insert(dense.end(), row, row + V);
    for (int64_t v = V; v < gradient_stride; ++v) ASSERT_EQ(row[v], -7) << "between rows";
  }
  expect_near<T>(dense, expected.gradient_MV, tolerance, "gradient");
}

class SoftmaxLoss : public IsaTest {};

TEST_P(SoftmaxLoss, MatchesTheReferenceForAnyVocabularyAndAddress) {
  auto sizes = row_lengths();
  for (const int64_t V : {1023, 1024, 1025, 2500}) sizes.push_back(V);
  for (const int64_t V : sizes) {
    expect_matches<float>(V, 5, V % 2, 1e-6);
    expect_matches<BFloat16>(V, 5, V % 2, 1e-6);
  }
}

TEST_P(SoftmaxLoss, MatchesTheReferenceForHugeLogits) {
  for (const float scale : {0.0f, 100.0f, 1e4f, 1e30f}) {
    expect_matches<float>(1100, scale, 0, 1e-6);
    expect_matches<BFloat16>(1100, scale, 0, 1e-6);
  }
}

TEST_P(SoftmaxLoss, TheGradientMayTakeTheLogitsPlace) {
  constexpr int64_t M = 4, V = 75;
  const auto targets = random_codes(M, V, 2);
  const auto logits = random_floats(M * V, 5, 1);
  std::vector<float> in_place = logits, apart(M * V), nll(M), nll_in_place(M);
  softmax_loss(logits.data(), V, targets.data(), M, V, nll.data(), apart.data(), V);
  softmax_loss(in_place.data(), V, targets.data(), M, V, nll_in_place.data(), in_place.data(), V);
  EXPECT_EQ(in_place, apart);
  EXPECT_EQ(nll_in_place, nll);
}

TEST_P(SoftmaxLoss, TheTargetsGradientIsNoDifferenceOfRoundedNumbers) {
  // p - 1 is -0.013, and the p next to it in bf16 are 0.004 apart.
  std::vector<float> logits(40, 0.0f);
  logits[7] = 8.0f;
  const int64_t target = 7;
  const auto expected = reference::softmax_loss({logits.begin(), logits.end()}, {target}, 40);
  Output<float> nll(1);
  Output<BFloat16> gradient(40);
  softmax_loss(logits.data(), 40, &target, 1, 40, nll.data(), gradient.data(), 40);
  EXPECT_NEAR(gradient.values()[7] / expected.gradient_MV[7], 1, kRounding<BFloat16>);
}

TEST_P(SoftmaxLoss, LogitsFarBelowZeroAreLogitsLikeOthers) {
  for (const int64_t V : {100, 2048}) {
    for (const float first : {-1000.0f, -kInfinity}) {  // of the first chunk, where there are two
      std::vector<float> logits(size_t(V), -1000.0f);
      std::fill_n(logits.begin(), V / 2, first);
      const std::vector<int64_t> targets = {V - 1};
      std::vector<float> nll(1), gradient(logits.size());
      softmax_loss(logits.data(), V, targets.data(), 1, V, nll.data(), gradient.data(), V);
      const double among = std::isinf(first) ? double(V - V / 2) : double(V);
      EXPECT_NEAR(nll[0], std::log(among), 1e-5) << V << " " << first;
      EXPECT_NEAR(gradient[size_t(V - 1)], 1 / among - 1, 1e-6);
    }
  }
}

TEST_P(SoftmaxLoss, ForbiddenTokensHaveNoProbability) {
  // More than a chunk of -inf before the first number: sums must not start with -inf - -inf.
  constexpr int64_t V = 2100;
  std::vector<float> logits(V, -kInfinity);
  logits[2050] = 1.0f;
  logits[2077] = 1.0f;
  const int64_t target = 2050;
  std::vector<float> nll(1), gradient(V);
  softmax_loss(logits.data(), V, &target, 1, V, nll.data(), gradient.data(), V);
  EXPECT_NEAR(nll[0], std::log(2), 1e-6);
  for (int64_t v = 0; v < V; ++v) {
    EXPECT_NEAR(gradient[size_t(v)], v == 2050 ? -0.5 : v == 2077 ? 0.5 : 0.0, 1e-6) << v;
  }
  const int64_t forbidden = 3;
  softmax_loss(logits.data(), V, &forbidden, 1, V, nll.data(), gradient.data(), V);
  EXPECT_EQ(nll[0], kInfinity);
  EXPECT_EQ(gradient[3], -1);
}

TEST_P(SoftmaxLoss, WhatHasNoSoftmaxIsNaNAndStaysInItsRow) {
  constexpr int64_t M = 5, V = 1050;
  std::vector<float> logits = random_floats(M * V, 500, 1);
  logits[3] = NAN;                                     // row 0: in the first vector
  logits[V + 1049] = NAN;                              // row 1: in the tail
  std::fill_n(logits.begin() + 2 * V, V, -kInfinity);  // row 2: nothing allowed
  logits[3 * V + 700] = kInfinity;                     // row 3
  const std::vector<int64_t> targets(M, 20);
  std::vector<float> nll(M), gradient(M * V);
  softmax_loss(logits.data(), V, targets.data(), M, V, nll.data(), gradient.data(), V);
  for (size_t m = 0; m < 4; ++m) {
    EXPECT_TRUE(std::isnan(nll[m])) << m;
    EXPECT_TRUE(std::isnan(gradient[m * V + 20])) << m;
  }
  for (const size_t m : {0, 1, 2}) EXPECT_TRUE(std::isnan(gradient[m * V + 500])) << m;
  EXPECT_TRUE(std::isfinite(nll[4]));
  for (size_t v = 0; v < V; ++v) ASSERT_TRUE(std::isfinite(gradient[4 * V + v]));
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, SoftmaxLoss, testing::ValuesIn(supported_isas()), isa_name);

TEST(SoftmaxLoss, ATargetOutsideTheVocabularyIsAnError) {
  const std::vector<float> logits(10);
  std::vector<float> nll(1);
  for (const int64_t target : {10, -1, -101}) {
    EXPECT_THROW(softmax_loss(logits.data(), 10, &target, 1, 10, nll.data()), Error) << target;
  }
}

TEST(SoftmaxLoss, IsTheSameForAnyNumberOfThreads) {
  constexpr int64_t M = 7, V = 3001;
  const auto logits = random_floats(M * V, 9, 1);
  const auto targets = random_codes(M, V, 2);
  expect_same_for_any_thread_count([&] {
    std::vector<float> nll(M), gradient(M * V);
    softmax_loss(logits.data(), V, targets.data(), M, V, nll.data(), gradient.data(), V);
    return std::vector{nll, gradient};
  });
}

TEST(SoftmaxLoss, ReferenceGradientsAreThoseOfFiniteDifferences) {
  constexpr int64_t V = 6;
  auto logits = random_doubles(3 * V, 2, 1);
  const std::vector<int64_t> targets{4, kIgnoredTarget, 0};
  const auto loss = [&] {
    const auto nll = reference::softmax_loss(logits, targets, V).nll_M;
    return std::accumulate(nll.begin(), nll.end(), 0.0);
  };
  expect_all_near(reference::softmax_loss(logits, targets, V).gradient_MV,
                  numeric_gradient(logits, loss), 1e-8);
}

}  // namespace
}  // namespace freeformer::kernels
