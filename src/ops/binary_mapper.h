// The binary mapper and the post-sampler as one differentiable operation (paper § 3.4), and the
// quantities of the bits' distribution.
#pragma once

#include <cstdint>
#include <vector>

#include "core/philox.h"
#include "ops/torch.h"

namespace freeformer::ops {

// R_t = W[z_t]. bit_logits_BTZ in fp32 (fp64 in tests), codes_BT int64 in [0, 2^Z), table_CD.
//
// Gradients (equation 8, straight through all 2^Z code probabilities, exact):
//   - of the table: a sparse tensor with one row per distinct code (LibTorch's own AdamW does not
//     take it);
//   - of bit_logits: by folding, see kernels/mapper.h. Fused on CPU in fp32 and bf16, elsewhere the
//     same algorithm in ATen. Nothing of size tokens × 2^Z is stored in either.
// bit_logits_BTZ may be undefined: codes from the prior or from the caller have no distribution to
// learn.
//
// With a sample of the tokens, only theirs of bit_logits' gradients are computed, and scaled up: an
// unbiased estimate of the exact gradient for a share of its cost.
struct GradientSample {
  Tensor tokens;     // int64 indices into B·T, each once; undefined: all tokens
  double scale = 1;  // one over the probability that a token is in it
};
Tensor binary_mapper(const Tensor& bit_logits_BTZ, const Tensor& codes_BT, const Tensor& table_CD,
                     const GradientSample& sample = {});

// One token of every `group` consecutive ones of a sequence: a function of (seed, sequence,
// position) alone. group 1: all tokens.
GradientSample sample_tokens(uint64_t seed, const std::vector<uint64_t>& sequences, int64_t T,
                             int64_t group, torch::Device device = at::kCPU);

// The gradient of the logits on its own, for tests and benchmarks. Set `fused` to false for ATen.
Tensor binary_mapper_backward_logits(const Tensor& bit_logits_MZ, const Tensor& table_CD,
                                     const Tensor& grad_MD, bool fused);

// z_t = Σ_h 2^h [u_th < sigmoid(logit_th)]: int64 [B, T].
Tensor sample_codes(const Tensor& bit_logits_BTZ, const Tensor& uniforms_BTZ);

// KL_t = Σ_h (log 2 + p log p + (1-p) log(1-p)) in nats (equation 4 for independent bits): [B, T].
// Accurate relative to its own size for flat bits too, where the sum as written cancels.
Tensor bits_kl(const Tensor& bit_logits_BTZ);

// log Q(z_t) = Σ_h log P(bit h of z_t): [B, T].
Tensor bits_log_probability(const Tensor& bit_logits_BTZ, const Tensor& codes_BT);

// The uniforms that decide the bits of positions first_position.. of each sequence, fp32 [B, T, Z].
// A function of (seed, sequence, position, bit) alone.
Tensor latent_uniforms(uint64_t seed, const std::vector<uint64_t>& sequences,
                       int64_t first_position, int64_t T, int Z);

}  // namespace freeformer::ops
