#include "engine/bits.h"

#include <cmath>

namespace freeformer {

double sigmoid(double logit) {
  return logit >= 0 ? 1 / (1 + std::exp(-logit)) : std::exp(logit) / (1 + std::exp(logit));
}

double bit_kl(double logit) {
  // a tanh(a) - log cosh(a) with a = |logit|/2, written so that neither end cancels.
  const double a = std::abs(logit) / 2;
  if (a < 1) return a * std::tanh(a) - std::log1p(2 * std::pow(std::sinh(a / 2), 2));
  const double e = std::exp(-2 * a);
  return std::log(2.0) - std::log1p(e) - 2 * a * e / (1 + e);
}

double code_log_probability(std::span<const float> bit_logits, int32_t code) {
  double sum = 0;
  for (size_t h = 0; h < bit_logits.size(); ++h) {
    const double logit = code >> h & 1 ? bit_logits[h] : -bit_logits[h];
    sum -= logit > 0 ? std::log1p(std::exp(-logit)) : std::log1p(std::exp(logit)) - logit;
  }
  return sum;
}

int32_t draw_code(std::span<const float> bit_logits, std::span<const float> uniforms) {
  int32_t code = 0;
  for (size_t h = 0; h < bit_logits.size(); ++h) {
    // In fp32, as the model itself decides: a uniform on the edge must fall the same way.
    const float p = 1.0f / (1.0f + std::exp(-bit_logits[h]));
    code |= int32_t(uniforms[h] < p) << h;
  }
  return code;
}

}  // namespace freeformer
