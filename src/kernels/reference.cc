#include "kernels/reference.h"

#include <cmath>

#include "core/shape.h"

namespace freeformer::kernels::reference {

Vector gemm_nt(const Vector& a_MK, const Vector& b_NK, int64_t M, int64_t N, int64_t K) {
  Vector c_MN(size_t(M * N), 0.0);
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t k = 0; k < K; ++k) {
        c_MN[size_t(m * N + n)] += a_MK[size_t(m * K + k)] * b_NK[size_t(n * K + k)];
      }
    }
  }
  return c_MN;
}

Vector mapper_backward_logits(const Vector& logits_MZ, const Vector& table_CD,
                              const Vector& grad_MD, int64_t M, int64_t D, int Z) {
  const int64_t C = code_count(Z);
  const Vector v_MC = gemm_nt(grad_MD, table_CD, M, C, D);
  Vector d_logits_MZ(size_t(M * Z), 0.0);
  for (int64_t m = 0; m < M; ++m) {
    const double* logits = &logits_MZ[size_t(m * Z)];
    for (int64_t code = 0; code < C; ++code) {
      // log G_d = Σ_h log P(bit h of d); log sigmoid(l) = -log(1 + e^-l).
      double log_G = 0.0;
      for (int h = 0; h < Z; ++h)
        log_G -= std::log1p(std::exp(code >> h & 1 ? -logits[h] : logits[h]));
      // ∂G_d/∂logit_h = G_d (u_h(d) - p_h); u - p is written without cancellation.
      for (int h = 0; h < Z; ++h) {
        const double factor =
            code >> h & 1 ? 1.0 / (1.0 + std::exp(logits[h])) : -1.0 / (1.0 + std::exp(-logits[h]));
        d_logits_MZ[size_t(m * Z + h)] += v_MC[size_t(m * C + code)] * std::exp(log_G) * factor;
      }
    }
  }
  return d_logits_MZ;
}

Vector mapper_backward_table(const std::vector<int64_t>& codes_M, const Vector& grad_MD, int64_t C,
                             int64_t D) {
  Vector d_table_CD(size_t(C * D), 0.0);
  for (size_t m = 0; m < codes_M.size(); ++m) {
    for (int64_t d = 0; d < D; ++d) {
      d_table_CD[size_t(codes_M[m] * D + d)] += grad_MD[m * size_t(D) + size_t(d)];
    }
  }
  return d_table_CD;
}

}  // namespace freeformer::kernels::reference
