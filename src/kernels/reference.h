// Every kernel again, as plainly as its definition reads, in float64: the oracle of the tests and
// the text to read first. No speed is intended.
#pragma once

#include <cstdint>
#include <vector>

namespace freeformer::kernels::reference {

using Vector = std::vector<double>;

// C [M, N] = A [M, K] · B [N, K]ᵀ
Vector gemm_nt(const Vector& a_MK, const Vector& b_NK, int64_t M, int64_t N, int64_t K);

// Dense straight-through (paper, equation 8): G_d for all 2^Z codes, then its Jacobian. The
// gradient of Σ_m grad_m · (Σ_d G_md W_d) by the logits.
Vector mapper_backward_logits(const Vector& logits_MZ, const Vector& table_CD,
                              const Vector& grad_MD, int64_t M, int64_t D, int Z);

// The table's gradient in full: [C, D], zero where no token drew the code.
Vector mapper_backward_table(const std::vector<int64_t>& codes_M, const Vector& grad_MD, int64_t C,
                             int64_t D);

}  // namespace freeformer::kernels::reference
