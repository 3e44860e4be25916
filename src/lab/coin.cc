#include "lab/coin.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace freeformer {
namespace {

double log_sum(double a, double b) {
  const double most = std::max(a, b);
  return std::isinf(most) ? most : most + std::log(std::exp(a - most) + std::exp(b - most));
}

// n log p, where nothing happens nought times.
double log_power(int64_t n, double p) { return n == 0 ? 0 : double(n) * std::log(p); }

// log P(this sequence) with `ones` of t tokens 1: the mean over both sides of the coin.
double log_probability(int64_t t, int64_t ones, double flip) {
  const int64_t zeros = t - ones;
  return std::log(0.5) + log_sum(log_power(zeros, flip) + log_power(ones, 1 - flip),
                                 log_power(ones, flip) + log_power(zeros, 1 - flip));
}

}  // namespace

double coin_probability(int64_t t, int64_t ones, double flip) {
  FF_CHECK(t >= 0 && ones >= 0 && ones <= t && flip >= 0 && flip <= 1);
  return std::exp(log_probability(t + 1, ones + 1, flip) - log_probability(t, ones, flip));
}

double coin_nll(std::span<const int32_t> tokens, double flip) {
  FF_CHECK(!tokens.empty());
  const auto ones = std::count(tokens.begin(), tokens.end(), 1);
  return std::log(0.5) - log_probability(int64_t(tokens.size()), ones, flip);
}

double coin_entropy(int64_t T, double flip) {
  FF_CHECK(T >= 1);
  const int64_t n = T + 1;
  double entropy = 0;
  for (int64_t ones = 0; ones <= n; ++ones) {
    const double log_p = log_probability(n, ones, flip);
    if (std::isinf(log_p)) continue;
    const double log_count = std::lgamma(double(n) + 1) - std::lgamma(double(ones) + 1) -
                             std::lgamma(double(n - ones) + 1);
    entropy -= std::exp(log_count + log_p) * log_p;
  }
  return (entropy - std::log(2.0)) / double(T);
}

}  // namespace freeformer
