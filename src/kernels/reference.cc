#include "kernels/reference.h"

#include <algorithm>
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

Vector rms_norm(const Vector& x_MD, const Vector& weight_D, double eps) {
  const size_t D = weight_D.size();
  Vector y_MD(x_MD.size());
  for (size_t row = 0; row < x_MD.size(); row += D) {
    double sum = 0.0;
    for (size_t d = 0; d < D; ++d) sum += x_MD[row + d] * x_MD[row + d];
    const double r = 1.0 / std::sqrt(sum / double(D) + eps);
    for (size_t d = 0; d < D; ++d) y_MD[row + d] = x_MD[row + d] * weight_D[d] * r;
  }
  return y_MD;
}

RmsNormGradients rms_norm_backward(const Vector& x_MD, const Vector& weight_D, const Vector& dy_MD,
                                   double eps) {
  const size_t D = weight_D.size();
  RmsNormGradients result{Vector(x_MD.size()), Vector(D, 0.0)};
  for (size_t row = 0; row < x_MD.size(); row += D) {
    double squares = 0.0, products = 0.0;
    for (size_t d = 0; d < D; ++d) {
      squares += x_MD[row + d] * x_MD[row + d];
      products += weight_D[d] * dy_MD[row + d] * x_MD[row + d];
    }
    const double r = 1.0 / std::sqrt(squares / double(D) + eps), mean = products / double(D);
    for (size_t d = 0; d < D; ++d) {
      result.dx_MD[row + d] = r * (weight_D[d] * dy_MD[row + d] - x_MD[row + d] * r * r * mean);
      result.dweight_D[d] += dy_MD[row + d] * x_MD[row + d] * r;
    }
  }
  return result;
}

Vector rope(const Vector& x_BTNH, const Vector& cos, const Vector& sin, int64_t B, int64_t T,
            int64_t N, int64_t H, int64_t rows_of_table, bool inverse) {
  const int64_t half = H / 2;
  Vector y_BTNH(x_BTNH.size());
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t t = 0; t < T; ++t) {
      const int64_t table_row = (rows_of_table == 1 ? 0 : b) * T + t;
      for (int64_t n = 0; n < N; ++n) {
        const int64_t head = ((b * T + t) * N + n) * H;
        for (int64_t i = 0; i < half; ++i) {
          const double c = cos[size_t(table_row * half + i)];
          const double s = sin[size_t(table_row * half + i)] * (inverse ? -1.0 : 1.0);
          const double x1 = x_BTNH[size_t(head + i)], x2 = x_BTNH[size_t(head + half + i)];
          y_BTNH[size_t(head + i)] = x1 * c - x2 * s;
          y_BTNH[size_t(head + half + i)] = x2 * c + x1 * s;
        }
      }
    }
  }
  return y_BTNH;
}

namespace {

// Calls body(offset of the query, offset of the key, probability) for every query and every key
// that it sees; before that row(index, log Σ exp) for the query.
template <typename Row, typename Body>
void for_each_seen_pair(const AttentionShape& shape, bool causal,
                        const std::vector<int64_t>& documents_BS, const Vector& q_BTNH,
                        const Vector& k_BSKH, const Row& row, const Body& body) {
  const auto [B, T, S, N, K, H] = shape;
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t n = 0; n < N; ++n) {
      for (int64_t t = 0; t < T; ++t) {
        const int64_t position = S - T + t, query = ((b * T + t) * N + n) * H;
        std::vector<int64_t> keys;
        Vector scores;
        for (int64_t s = 0; s < S; ++s) {
          if (causal && s > position) continue;
          if (!documents_BS.empty() &&
              documents_BS[size_t(b * S + s)] != documents_BS[size_t(b * S + position)]) {
            continue;
          }
          keys.push_back(((b * S + s) * K + n * K / N) * H);
          double score = 0.0;
          for (int64_t h = 0; h < H; ++h) {
            score += q_BTNH[size_t(query + h)] * k_BSKH[size_t(keys.back() + h)];
          }
          scores.push_back(score / std::sqrt(double(H)));
        }
        const double largest = *std::max_element(scores.begin(), scores.end());
        double sum = 0.0;
        for (const double score : scores) sum += std::exp(score - largest);
        const double lse = largest + std::log(sum);
        row((b * N + n) * T + t, lse);
        for (size_t i = 0; i < keys.size(); ++i) body(query, keys[i], std::exp(scores[i] - lse));
      }
    }
  }
}

}  // namespace

Attention attention(const AttentionShape& shape, bool causal,
                    const std::vector<int64_t>& documents_BS, const Vector& q_BTNH,
                    const Vector& k_BSKH, const Vector& v_BSKH) {
  Attention result{Vector(q_BTNH.size(), 0.0), Vector(size_t(shape.B * shape.N * shape.T))};
  for_each_seen_pair(
      shape, causal, documents_BS, q_BTNH, k_BSKH,
      [&](int64_t row, double lse) { result.lse_BNT[size_t(row)] = lse; },
      [&](int64_t query, int64_t key, double p) {
        for (int64_t h = 0; h < shape.H; ++h) {
          result.out_BTNH[size_t(query + h)] += p * v_BSKH[size_t(key + h)];
        }
      });
  return result;
}

AttentionGradients attention_backward(const AttentionShape& shape, bool causal,
                                      const std::vector<int64_t>& documents_BS,
                                      const Vector& q_BTNH, const Vector& k_BSKH,
                                      const Vector& v_BSKH, const Vector& out_BTNH,
                                      const Vector& dout_BTNH) {
  AttentionGradients result{Vector(q_BTNH.size(), 0.0), Vector(k_BSKH.size(), 0.0),
                            Vector(v_BSKH.size(), 0.0)};
  const double scale = 1.0 / std::sqrt(double(shape.H));
  for_each_seen_pair(
      shape, causal, documents_BS, q_BTNH, k_BSKH, [](int64_t, double) {},
      [&](int64_t query, int64_t key, double p) {
        double dp = 0.0, dot = 0.0;
        for (int64_t h = 0; h < shape.H; ++h) {
          dp += dout_BTNH[size_t(query + h)] * v_BSKH[size_t(key + h)];
          dot += dout_BTNH[size_t(query + h)] * out_BTNH[size_t(query + h)];
        }
        const double ds = p * (dp - dot) * scale;
        for (int64_t h = 0; h < shape.H; ++h) {
          result.dq_BTNH[size_t(query + h)] += ds * k_BSKH[size_t(key + h)];
          result.dk_BSKH[size_t(key + h)] += ds * q_BTNH[size_t(query + h)];
          result.dv_BSKH[size_t(key + h)] += p * dout_BTNH[size_t(query + h)];
        }
      });
  return result;
}

Vector swiglu(const Vector& gate, const Vector& up) {
  Vector y(gate.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
  return y;
}

SwigluGradients swiglu_backward(const Vector& gate, const Vector& up, const Vector& dy) {
  SwigluGradients result{Vector(gate.size()), Vector(gate.size())};
  for (size_t i = 0; i < gate.size(); ++i) {
    const double sigmoid = 1.0 / (1.0 + std::exp(-gate[i]));
    result.dgate[i] = dy[i] * up[i] * sigmoid * (1.0 + gate[i] * (1.0 - sigmoid));
    result.dup[i] = dy[i] * gate[i] * sigmoid;
  }
  return result;
}

SoftmaxLoss softmax_loss(const Vector& logits_MV, const std::vector<int64_t>& targets_M,
                         int64_t V) {
  SoftmaxLoss result{Vector(targets_M.size(), 0.0), Vector(logits_MV.size(), 0.0)};
  for (size_t m = 0; m < targets_M.size(); ++m) {
    if (targets_M[m] == -100) continue;
    const double* logits = &logits_MV[m * size_t(V)];
    double* gradient = &result.gradient_MV[m * size_t(V)];
    const double largest = *std::max_element(logits, logits + V);
    double sum = 0.0;
    for (int64_t v = 0; v < V; ++v) sum += std::exp(logits[v] - largest);
    result.nll_M[m] = largest + std::log(sum) - logits[targets_M[m]];
    for (int64_t v = 0; v < V; ++v) gradient[v] = std::exp(logits[v] - largest) / sum;
    gradient[targets_M[m]] -= 1.0;
  }
  return result;
}

Vector add(const Vector& a, const Vector& b) {
  Vector sum(a.size());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = a[i] + b[i];
  return sum;
}

void embedding_backward(const std::vector<int64_t>& index_M, const Vector& grad_MD, int64_t D,
                        Vector& dtable_VD) {
  for (size_t m = 0; m < index_M.size(); ++m) {
    for (int64_t d = 0; d < D; ++d) {
      dtable_VD[size_t(index_M[m] * D + d)] += grad_MD[m * size_t(D) + size_t(d)];
    }
  }
}

void adamw_update(const Vector& gradient, const AdamWConstants& c, Vector& master, Vector& m,
                  Vector& v) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i] * c.gradient_scale;
    m[i] = c.beta1 * m[i] + (1.0 - c.beta1) * g;
    v[i] = c.beta2 * v[i] + (1.0 - c.beta2) * g * g;
    master[i] =
        master[i] * (1.0 - c.learning_rate * c.decay) -
        c.learning_rate * (m[i] / c.correction1) / (std::sqrt(v[i] / c.correction2) + c.epsilon);
  }
}

double sum_of_squares(const std::vector<Vector>& tensors) {
  double sum = 0.0;
  for (const Vector& tensor : tensors) {
    for (const double value : tensor) sum += value * value;
  }
  return sum;
}

}  // namespace freeformer::kernels::reference
