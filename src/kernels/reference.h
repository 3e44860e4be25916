// Every kernel again, as plainly as its definition reads, in float64: the oracle of the tests and
// the text to read first. No speed is intended.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention.h"

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

// --- Layers; the kernels' headers have the formulas ----------------------------------------------

Vector rms_norm(const Vector& x_MD, const Vector& weight_D, double eps);

struct RmsNormGradients {
  Vector dx_MD, dweight_D;
};
RmsNormGradients rms_norm_backward(const Vector& x_MD, const Vector& weight_D, const Vector& dy_MD,
                                   double eps);

// x [B, T, N, H]; cos and sin [rows_of_table, T, H/2].
Vector rope(const Vector& x_BTNH, const Vector& cos, const Vector& sin, int64_t B, int64_t T,
            int64_t N, int64_t H, int64_t rows_of_table, bool inverse);

// Documents [B, S], or none. Who sees whom is asked of every pair.
struct Attention {
  Vector out_BTNH, lse_BNT;
};
Attention attention(const AttentionShape& shape, bool causal,
                    const std::vector<int64_t>& documents_BS, const Vector& q_BTNH,
                    const Vector& k_BSKH, const Vector& v_BSKH);

// `out` as the kernel is given it: rounded, in bf16.
struct AttentionGradients {
  Vector dq_BTNH, dk_BSKH, dv_BSKH;
};
AttentionGradients attention_backward(const AttentionShape& shape, bool causal,
                                      const std::vector<int64_t>& documents_BS,
                                      const Vector& q_BTNH, const Vector& k_BSKH,
                                      const Vector& v_BSKH, const Vector& out_BTNH,
                                      const Vector& dout_BTNH);

Vector swiglu(const Vector& gate, const Vector& up);

struct SwigluGradients {
  Vector dgate, dup;
};
SwigluGradients swiglu_backward(const Vector& gate, const Vector& up, const Vector& dy);

// Targets of -100 are ignored.
struct SoftmaxLoss {
  Vector nll_M, gradient_MV;
};
SoftmaxLoss softmax_loss(const Vector& logits_MV, const std::vector<int64_t>& targets_M, int64_t V);

Vector add(const Vector& a, const Vector& b);

void embedding_backward(const std::vector<int64_t>& index_M, const Vector& grad_MD, int64_t D,
                        Vector& dtable_VD);

// --- Optimiser -----------------------------------------------------------------------------------

struct AdamWConstants {
  double learning_rate, decay, beta1, beta2, epsilon, correction1, correction2, gradient_scale;
};
void adamw_update(const Vector& gradient, const AdamWConstants& constants, Vector& master,
                  Vector& m, Vector& v);

double sum_of_squares(const std::vector<Vector>& tensors);

}  // namespace freeformer::kernels::reference
