#include "ops/layers.h"

#include <cmath>
#include <limits>

#include "ops/fused.h"

namespace freeformer::ops {
namespace {

at::ScalarType wide_type(const Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}
Tensor widened(const Tensor& x) { return x.to(wide_type(x)); }

// [B or 1, 1, T, S], true where t may not see s; undefined where everybody sees everybody.
Tensor forbidden(const AttentionScope& scope, int64_t T, int64_t S, const Tensor& like) {
  Tensor mask;
  if (scope.causal && T > 1) {
    // The last query sees everything: queries are the last T of S positions.
    mask = at::ones({T, S}, like.options().dtype(at::kBool)).triu(S - T + 1).view({1, 1, T, S});
  }
  if (scope.documents_BT.defined()) {
    const Tensor other = scope.documents_BT.unsqueeze(2)
                             .ne(scope.documents_BT.unsqueeze(1))
                             .unsqueeze(1);  // [B, 1, T, S]
    mask = mask.defined() ? mask.logical_or(other) : other;
  }
  return mask;
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight) {
  return has_kernels_for({x, weight}) ? fused::linear(x, weight) : at::linear(x, weight);
}

Tensor embedding(const Tensor& index_BT, const Tensor& table) {
  const bool fused = has_kernels_for({table}) && index_BT.scalar_type() == at::kLong;
  return fused ? fused::embedding(index_BT, table) : at::embedding(table, index_BT);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight_D, double eps) {
  if (has_kernels_for({x, weight_D})) return fused::rms_norm(x, weight_D, eps);
  const Tensor wide = widened(x);
  const Tensor scale = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + eps);
  return (wide * scale).to(x.scalar_type()) * weight_D;
}

RotaryTable rotary_table(const Tensor& positions_BT, int64_t head_dim, double theta,
                         at::ScalarType dtype) {
  // Angles in fp64: at position 100,000 an fp32 angle is off by 0.004 radians.
  const auto options = positions_BT.options().dtype(at::kDouble);
  const Tensor exponents =
      at::arange(0, head_dim, 2, options) * (-std::log(theta) / double(head_dim));
  const Tensor angles_BTH2 = positions_BT.to(at::kDouble).unsqueeze(-1) * exponents.exp();
  const auto wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  return {angles_BTH2.cos().to(wide), angles_BTH2.sin().to(wide)};
}

Tensor rope(const Tensor& x_BTNH, const RotaryTable& table) {
  if (has_kernels_for({x_BTNH})) return fused::rope(x_BTNH, table);
  const int64_t half = x_BTNH.size(-1) / 2;
  const Tensor wide = widened(x_BTNH);
  const Tensor x1 = wide.narrow(-1, 0, half), x2 = wide.narrow(-1, half, half);
  const Tensor cos = table.cos_BTH2.unsqueeze(2), sin = table.sin_BTH2.unsqueeze(2);  // a head axis
  return at::cat({x1 * cos - x2 * sin, x2 * cos + x1 * sin}, -1).to(x_BTNH.scalar_type());
}

Tensor attention(const Tensor& q_BTNH, const Tensor& k_BSKH, const Tensor& v_BSKH,
                 const AttentionScope& scope) {
  const int64_t B = q_BTNH.size(0), T = q_BTNH.size(1), N = q_BTNH.size(2), H = q_BTNH.size(3);
  const int64_t S = k_BSKH.size(1), K = k_BSKH.size(2), G = N / K;
  if (has_kernels_for({q_BTNH, k_BSKH, v_BSKH}) && fused::takes(scope, T, S)) {
    return fused::attention(q_BTNH, k_BSKH, v_BSKH, scope);
  }
  // The G query heads of one key-value head are stacked along time: keys are never repeated.
  const Tensor q = q_BTNH.view({B, T, K, G, H}).permute({0, 2, 3, 1, 4}).reshape({B, K, G * T, H});
  const Tensor k = k_BSKH.permute({0, 2, 3, 1});  // [B, K, H, S]
  const Tensor v = v_BSKH.permute({0, 2, 1, 3});  // [B, K, S, H]
  Tensor scores = widened(at::matmul(q, k)) * (1.0 / std::sqrt(double(H)));
  if (const Tensor mask = forbidden(scope, T, S, q); mask.defined()) {
    scores = scores.view({B, K, G, T, S})
                 .masked_fill(mask.unsqueeze(2), -std::numeric_limits<double>::infinity())
                 .view({B, K, G * T, S});
  }
  const Tensor out = at::matmul(scores.softmax(-1).to(v.scalar_type()), v);  // [B, K, G*T, H]
  return out.view({B, K, G, T, H}).permute({0, 3, 1, 2, 4}).reshape({B, T, N, H});
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  return has_kernels_for({gate, up}) ? fused::swiglu(gate, up) : at::silu(gate) * up;
}

Tensor linear_cross_entropy(const Tensor& x_MD, const Tensor& weight_VD, const Tensor& targets_M) {
  if (has_kernels_for({x_MD, weight_VD}))
    return fused::linear_cross_entropy(x_MD, weight_VD, targets_M);
  return at::cross_entropy_loss(widened(ops::linear(x_MD, weight_VD)), targets_M, /*weight=*/{},
                                at::Reduction::None, kIgnoredTarget);
}

DocumentLayout document_layout(const Tensor& documents_BT) {
  const int64_t T = documents_BT.size(1);
  if (T == 0) return {documents_BT, documents_BT};
  const Tensor index_T = at::arange(T, documents_BT.options());
  const Tensor changes =
      documents_BT.narrow(1, 1, T - 1).ne(documents_BT.narrow(1, 0, T - 1)).to(at::kLong);
  const Tensor starts_BT = at::cat({at::zeros_like(documents_BT.narrow(1, 0, 1)), changes}, 1);
  const Tensor start_BT = std::get<0>(at::cummax(starts_BT * index_T, 1));
  return {index_T - start_BT, starts_BT.cumsum(1)};
}

}  // namespace freeformer::ops
