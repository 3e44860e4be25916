#include "lab/coin.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace freeformer {
namespace {

// All 2^n sequences, each with its probability: the mean over both sides of the coin.
double probability(const std::vector<int32_t>& tokens, double flip) {
  double sum = 0;
  for (const int coin : {0, 1}) {
    double p = 0.5;
    for (const int32_t token : tokens) p *= token == coin ? 1 - flip : flip;
    sum += p;
  }
  return sum;
}

std::vector<int32_t> bits_of(unsigned number, int n) {
  std::vector<int32_t> bits;
  for (int i = 0; i < n; ++i) bits.push_back(int32_t(number >> i & 1));
  return bits;
}

TEST(Coin, TheClosedFormIsTheRatioOfProbabilities) {
  for (const double flip : {0.01, 0.1, 0.4}) {
    for (unsigned number = 0; number < 64; ++number) {
      std::vector<int32_t> tokens = bits_of(number, 6);
      const auto ones = std::count(tokens.begin(), tokens.end(), 1);
      const double before = probability(tokens, flip);
      tokens.push_back(1);
      EXPECT_NEAR(coin_probability(6, ones, flip), probability(tokens, flip) / before, 1e-12);
    }
  }
}

TEST(Coin, TheFirstTossIsFair) { EXPECT_NEAR(coin_probability(0, 0, 0.1), 0.5, 1e-15); }

TEST(Coin, NllIsTheSumOfItsPredictions) {
  const std::vector<int32_t> tokens = {1, 1, 0, 1, 0, 0, 1, 1};
  double nll = 0;
  int64_t ones = tokens[0];
  for (size_t t = 1; t < tokens.size(); ++t) {
    const double p = coin_probability(int64_t(t), ones, 0.1);
    nll -= std::log(tokens[t] == 1 ? p : 1 - p);
    ones += tokens[t];
  }
  EXPECT_NEAR(coin_nll(tokens, 0.1), nll, 1e-12);
}

TEST(Coin, EntropyIsTheMeanNllOfAllSequences) {
  for (const double flip : {0.0, 0.1, 0.5}) {
    double mean = 0;
    for (unsigned number = 0; number < 1U << 11; ++number) {
      const std::vector<int32_t> tokens = bits_of(number, 11);
      const double p = probability(tokens, flip);
      if (p > 0) mean += p * coin_nll(tokens, flip) / 10;
    }
    EXPECT_NEAR(coin_entropy(10, flip), mean, 1e-12) << flip;
  }
}

TEST(Coin, LongSequencesNeitherOverflowNorVanish) {
  EXPECT_NEAR(coin_probability(100000, 90000, 0.1), 0.9, 1e-9);
  const double h = -(0.1 * std::log(0.1) + 0.9 * std::log(0.9));
  EXPECT_NEAR(coin_entropy(100000, 0.1), h, 1e-4);
}

}  // namespace
}  // namespace freeformer
