// The binary mapper's kernels (paper § 3.4). Forward is a table look-up; the gradient of the bit
// logits is exact and never stores anything of size tokens × codes.
//
// With g = dL/dR and v_d = W_d · g, equation 8 gives for every token
//     dL/dlogit_h = Σ_d v_d G_d (u_h(d) - p_h) = p_h (1 - p_h) · ∂/∂p_h E[v],
// and E[v] = Σ_d v_d Π_h p_h^u_h(d) (1-p_h)^(1-u_h(d)) is multilinear in p. So v is made tile by
// tile with a GEMM and folded one bit at a time while it is in cache:
//     v'_j = (1-p) v_j + p v_{j+half},      ∂E/∂p += Σ_j w_j (v_{j+half} - v_j),
// w_j the probability of the bits still to be folded. 2·D·C operations a token in the GEMM, about
// 5·C in the fold. Differences are taken before weights are applied, so saturated bits keep their
// relative accuracy.
#pragma once

#include <cstdint>

#include "core/bfloat16.h"

namespace freeformer::kernels {

// out [M, D] = table [C, D] at rows codes [M].
void mapper_forward(const float* table_CD, const int64_t* codes_M, int64_t M, int64_t D,
                    float* out_MD);
void mapper_forward(const BFloat16* table_CD, const int64_t* codes_M, int64_t M, int64_t D,
                    BFloat16* out_MD);

// d_logits [M, Z] from logits [M, Z], table [C, D] and grad [M, D] = dL/dR. A token's result does
// not depend on the number of threads. Returns the bytes of memory it needed beside its arguments.
int64_t mapper_backward_logits(const float* logits_MZ, const float* table_CD, const float* grad_MD,
                               int64_t M, int64_t D, int Z, float* d_logits_MZ);
int64_t mapper_backward_logits(const float* logits_MZ, const BFloat16* table_CD,
                               const BFloat16* grad_MD, int64_t M, int64_t D, int Z,
                               float* d_logits_MZ);

// The table's gradient touches one row a token. Writes the distinct codes in rising order to rows
// (room for M) and the sums of their tokens' gradients, in token order, to values [·, D];
// returns how many rows there are.
int64_t mapper_backward_table(const int64_t* codes_M, const float* grad_MD, int64_t M, int64_t D,
                              int64_t* rows, float* values);
int64_t mapper_backward_table(const int64_t* codes_M, const BFloat16* grad_MD, int64_t M, int64_t D,
                              int64_t* rows, BFloat16* values);

}  // namespace freeformer::kernels
