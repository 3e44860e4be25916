// The distribution of one token's bits, in fp64 on plain numbers: what ops/binary_mapper.h computes
// on tensors.
#pragma once

#include <cstdint>
#include <span>

namespace freeformer {

double sigmoid(double logit);

// KL of one bit to a fair coin, in nats.
double bit_kl(double logit);

// log Q(code) under independent bits.
double code_log_probability(std::span<const float> bit_logits, int32_t code);

// z = Σ_h 2^h [u_h < sigmoid(logit_h)]
int32_t draw_code(std::span<const float> bit_logits, std::span<const float> uniforms);

}  // namespace freeformer
