#include "engine/bits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace freeformer {
namespace {

constexpr float kJustBelowOne = 1 - 0x1p-24F;  // the largest uniform there is

// p and 1 - p of a bit, each without cancellation.
long double naive_p(long double logit) { return 1 / (1 + std::exp(-logit)); }

long double naive_log_p(long double logit) { return -std::log1p(std::exp(-logit)); }

std::vector<double> logits_up_to_40() {
  std::vector<double> logits;
  for (int i = -160; i <= 160; ++i) logits.push_back(double(i) / 4);
  return logits;
}

void expect_relative(double found, long double expected, double tolerance) {
  EXPECT_LE(std::abs(found - expected), tolerance * std::abs(expected))
      << found << " instead of " << expected;
}

TEST(Sigmoid, KeepsItsDigitsAtBothEnds) {
  for (const double logit : logits_up_to_40()) {
    SCOPED_TRACE(logit);
    expect_relative(sigmoid(logit), naive_p(logit), 1e-15);
  }
  EXPECT_EQ(sigmoid(0), 0.5);
}

TEST(Sigmoid, NeverOverflows) {
  EXPECT_EQ(sigmoid(1000), 1);
  EXPECT_EQ(sigmoid(-1000), 0);
  EXPECT_EQ(sigmoid(std::numeric_limits<float>::max()), 1);
  EXPECT_EQ(sigmoid(std::numeric_limits<float>::lowest()), 0);
}

TEST(BitKl, IsTheDivergenceFromAFairCoin) {
  for (const double logit : logits_up_to_40()) {
    if (logit == 0) continue;
    SCOPED_TRACE(logit);
    const long double p = naive_p(logit), q = naive_p(-logit);
    expect_relative(bit_kl(logit), p * std::log(2 * p) + q * std::log(2 * q), 1e-14);
  }
}

TEST(BitKl, KeepsItsDigitsWhereTheBitKnowsAlmostNothing) {
  for (const double logit : {1e-3, 1e-5, 1e-8, 1e-12}) {
    SCOPED_TRACE(logit);
    // Where p log 2p and q log 2q cancel: the series, of which the next term is below 1e-12.
    expect_relative(bit_kl(logit), logit * logit / 8 - std::pow(logit, 4) / 64, 1e-11);
  }
  EXPECT_EQ(bit_kl(0), 0);
}

TEST(BitKl, IsTheSameForBothSigns) {
  for (const double logit : logits_up_to_40()) EXPECT_EQ(bit_kl(logit), bit_kl(-logit)) << logit;
}

TEST(BitKl, GrowsToOneBit) {
  double before = -1;
  for (double logit = 0; logit <= 30; logit += 0.01) {
    EXPECT_GT(bit_kl(logit), before) << logit;
    before = bit_kl(logit);
  }
  EXPECT_DOUBLE_EQ(bit_kl(1000), std::log(2.0));
  EXPECT_DOUBLE_EQ(bit_kl(std::numeric_limits<float>::max()), std::log(2.0));
}

TEST(CodeLogProbability, IsTheSumOverIndependentBits) {
  for (const double first : logits_up_to_40()) {
    for (const double second : {-40.0, -3.5, -0.25, 0.0, 1.0, 40.0}) {
      SCOPED_TRACE(testing::Message() << first << " " << second);
      const std::vector<float> bit_logits = {float(first), float(second)};
      for (int32_t code = 0; code < 4; ++code) {
        const long double expected = naive_log_p((code & 1) != 0 ? first : -first) +
                                     naive_log_p((code & 2) != 0 ? second : -second);
        expect_relative(code_log_probability(bit_logits, code), expected, 1e-15);
      }
    }
  }
}

TEST(CodeLogProbability, AddsUpToOne) {
  const std::vector<float> bit_logits = {-2.5F, 0.125F, 4, -0.75F, 1.5F};
  double sum = 0;
  for (int32_t code = 0; code < 32; ++code) {
    sum += std::exp(code_log_probability(bit_logits, code));
  }
  EXPECT_NEAR(sum, 1, 1e-14);
}

TEST(CodeLogProbability, OfAnUnlikelyCodeIsFinite) {
  const std::vector<float> bit_logits = {1000, -1000};
  EXPECT_EQ(code_log_probability(bit_logits, 0b01), 0);
  EXPECT_EQ(code_log_probability(bit_logits, 0b10), -2000);
}

TEST(CodeLogProbability, OfNoBitsIsZero) { EXPECT_EQ(code_log_probability({}, 0), 0); }

int32_t draw_bit(float logit, float uniform) {
  return draw_code(std::vector<float>{logit}, std::vector<float>{uniform});
}

TEST(DrawCode, SetsABitWhereItsUniformIsBelowItsProbability) {
  for (const float logit : {-3.0F, -0.5F, 0.0F, 0.1F, 2.0F}) {
    SCOPED_TRACE(logit);
    constexpr int kSteps = 1024;
    int ones = 0;
    for (int i = 0; i < kSteps; ++i) ones += draw_bit(logit, float(i) / kSteps);
    EXPECT_EQ(ones, int(std::ceil(kSteps * naive_p(logit))));
  }
}

TEST(DrawCode, PutsBitHAtTwoToTheH) {
  const std::vector<float> half(16, 0.5F);
  for (size_t h = 0; h < half.size(); ++h) {
    std::vector<float> bit_logits(half.size(), -1);
    bit_logits[h] = 1;
    EXPECT_EQ(draw_code(bit_logits, half), int32_t{1} << h);
  }
  EXPECT_EQ(draw_code(std::vector<float>{0, 0, 0}, std::vector<float>{0.25F, 0.75F, 0}), 0b101);
}

TEST(DrawCode, AUniformOnTheEdgeLeavesTheBitUnset) {
  EXPECT_EQ(draw_bit(0, 0.5F), 0);
  EXPECT_EQ(draw_bit(0, std::nextafter(0.5F, 0.0F)), 1);
}

TEST(DrawCode, AUniformOfZeroSetsEveryBitThatIsPossible) {
  for (const float logit : {-80.0F, -5.0F, 0.0F, 5.0F, 1000.0F}) {
    EXPECT_EQ(draw_bit(logit, 0), 1) << logit;
  }
  for (const float logit :
       {-1000.0F, std::numeric_limits<float>::lowest(), -std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(draw_bit(logit, 0), 0) << logit;
  }
}

TEST(DrawCode, TheLargestUniformSetsOnlyBitsThatAreCertain) {
  for (const float logit : {-1000.0F, 0.0F, 5.0F, 14.0F}) {
    EXPECT_EQ(draw_bit(logit, kJustBelowOne), 0) << logit;
  }
  for (const float logit : {30.0F, 1000.0F, std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(draw_bit(logit, kJustBelowOne), 1) << logit;
  }
}

}  // namespace
}  // namespace freeformer
