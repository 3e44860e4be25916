#include "ops/binary_mapper.h"

#include <cmath>

#include "core/error.h"
#include "core/shape.h"
#include "kernels/mapper.h"
#include "kernels/timing.h"
#include "ops/layers.h"

namespace freeformer::ops {
namespace {

// Codes whose v = W·g exist at once in the ATen version.
constexpr int kAtenTileBits = 10;

BFloat16* bfloat16_data(const Tensor& tensor) {
  return reinterpret_cast<BFloat16*>(tensor.data_ptr<at::BFloat16>());
}

Tensor look_up(const Tensor& codes_M, const Tensor& table_CD) {
  if (!has_kernels_for({table_CD})) return table_CD.index_select(0, codes_M);
  const int64_t M = codes_M.size(0), D = table_CD.size(1);
  Tensor out_MD = at::empty({M, D}, table_CD.options());
  if (table_CD.scalar_type() == at::kFloat) {
    kernels::mapper_forward(table_CD.data_ptr<float>(), codes_M.data_ptr<int64_t>(), M, D,
                            out_MD.data_ptr<float>());
  } else {
    kernels::mapper_forward(bfloat16_data(table_CD), codes_M.data_ptr<int64_t>(), M, D,
                            bfloat16_data(out_MD));
  }
  return out_MD;
}

Tensor backward_table(const Tensor& codes_M, const Tensor& grad_MD, int64_t C) {
  const int64_t M = codes_M.size(0), D = grad_MD.size(1);
  Tensor rows, values;
  if (has_kernels_for({grad_MD})) {
    rows = at::empty({M}, codes_M.options());
    values = at::empty({M, D}, grad_MD.options());
    const int64_t* codes = codes_M.data_ptr<int64_t>();
    const int64_t count =
        grad_MD.scalar_type() == at::kFloat
            ? kernels::mapper_backward_table(codes, grad_MD.data_ptr<float>(), M, D,
                                             rows.data_ptr<int64_t>(), values.data_ptr<float>())
            : kernels::mapper_backward_table(codes, bfloat16_data(grad_MD), M, D,
                                             rows.data_ptr<int64_t>(), bfloat16_data(values));
    rows = rows.narrow(0, 0, count);
    values = values.narrow(0, 0, count);
  } else {
    Tensor row_of_token;
    std::tie(rows, row_of_token) = at::_unique(codes_M, /*sorted=*/true, /*return_inverse=*/true);
    values = at::zeros({rows.size(0), D}, grad_MD.options()).index_add(0, row_of_token, grad_MD);
  }
  return at::_sparse_coo_tensor_unsafe(rows.unsqueeze(0), values, {C, D},
                                       values.options().layout(at::kSparse))
      ._coalesced_(true);
}

// The algorithm of kernels/mapper.h, tile by tile, in tensors.
Tensor backward_logits_aten(const Tensor& bit_logits_MZ, const Tensor& table_CD,
                            const Tensor& grad_MD) {
  const int64_t M = bit_logits_MZ.size(0), Z = bit_logits_MZ.size(1), C = table_CD.size(0);
  const int64_t tile_bits = std::min<int64_t>(Z, kAtenTileBits);
  const Tensor wide_grad_MD = grad_MD.to(bit_logits_MZ.scalar_type());  // fp32 at least
  const Tensor p_MZ = bit_logits_MZ.sigmoid(), q_MZ = bit_logits_MZ.neg().sigmoid();
  const auto column = [](const Tensor& x_MZ, int64_t h) { return x_MZ.narrow(1, h, 1); };
  // weights[h][m, j]: probability that bits first..first+h-1 spell j.
  const auto probabilities = [&](int64_t first, int64_t bits) {
    std::vector<Tensor> weights = {at::ones({M, 1}, bit_logits_MZ.options())};
    for (int64_t h = first; h + 1 < first + bits; ++h) {
      weights.push_back(
          at::cat({weights.back() * column(q_MZ, h), weights.back() * column(p_MZ, h)}, 1));
    }
    return weights;
  };
  Tensor derivative_MZ = at::zeros_like(bit_logits_MZ);
  // Folds values [M, 2^bits] over bits first..; adds weight_M1 · ∂E/∂p to their columns.
  const auto fold = [&](Tensor values, int64_t first, const std::vector<Tensor>& weights,
                        const Tensor& weight_M1) {
    for (auto h = int64_t(weights.size()) - 1; h >= 0; --h) {
      const int64_t half = int64_t{1} << h;
      const Tensor low = values.narrow(1, 0, half), high = values.narrow(1, half, half);
      column(derivative_MZ, first + h)
          .add_(weight_M1 * (weights[size_t(h)] * (high - low)).sum(1, /*keepdim=*/true));
      values = low * column(q_MZ, first + h) + high * column(p_MZ, first + h);
    }
    return values;  // [M, 1]: the expectation
  };
  const std::vector<Tensor> low_weights = probabilities(0, tile_bits);
  const int64_t tile = int64_t{1} << tile_bits;
  std::vector<Tensor> folded;  // E[v] over the low bits, one [M, 1] per setting of the high ones
  for (int64_t code = 0; code < C; code += tile) {
    Tensor weight_M1 = at::ones({M, 1}, bit_logits_MZ.options());
    for (int64_t h = tile_bits; h < Z; ++h) {
      weight_M1 = weight_M1 * column(code >> h & 1 ? p_MZ : q_MZ, h);
    }
    const Tensor rows = table_CD.narrow(0, code, tile).to(wide_grad_MD.scalar_type());
    folded.push_back(fold(at::matmul(wide_grad_MD, rows.t()), 0, low_weights, weight_M1));
  }
  if (tile_bits < Z) {
    fold(at::cat(folded, 1), tile_bits, probabilities(tile_bits, Z - tile_bits),
         at::ones({M, 1}, bit_logits_MZ.options()));
  }
  return derivative_MZ * p_MZ * q_MZ;
}

// Codes may come from a caller or a file; the kernels trust them.
void check_codes(const Tensor& codes, int64_t C) {
  if (codes.scalar_type() != at::kLong) {
    fail(ErrorCode::kInvalidArgument, "codes of type {}, expected int64",
         toString(codes.scalar_type()));
  }
  if (codes.numel() == 0) return;
  const auto [least, most] = at::aminmax(codes);
  if (least.item<int64_t>() < 0 || most.item<int64_t>() >= C) {
    fail(ErrorCode::kInvalidArgument, "codes from {} to {}, expected 0 to {}",
         least.item<int64_t>(), most.item<int64_t>(), C - 1);
  }
}

class BinaryMapper : public torch::autograd::Function<BinaryMapper> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& bit_logits_BTZ,
                        const Tensor& codes_BT, const Tensor& table_CD, bool sampled,
                        const Tensor& sample, double scale) {
    const kernels::TimedPart part("binary mapper");
    context->save_for_backward({bit_logits_BTZ, codes_BT, table_CD, sample});
    context->saved_data["sampled"] = sampled;
    context->saved_data["scale"] = scale;
    return look_up(codes_BT.flatten(), table_CD.contiguous())
        .view({codes_BT.size(0), codes_BT.size(1), table_CD.size(1)});
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    // The straight-through estimator has no second derivative; a wrong one would be silent.
    if (at::GradMode::is_enabled()) {
      fail(ErrorCode::kUnsupported, "the binary mapper has no second derivative (create_graph)");
    }
    const kernels::TimedPart part("binary mapper backward");
    const auto saved = context->get_saved_variables();
    const Tensor &bit_logits_BTZ = saved[0], &codes_BT = saved[1], &table_CD = saved[2];
    const Tensor grad_MD = grads[0].flatten(0, 1).contiguous();
    Tensor d_logits, d_table;
    if (context->needs_input_grad(0)) {
      const Tensor logits_MZ = bit_logits_BTZ.flatten(0, 1), &sample = saved[3];
      if (!context->saved_data["sampled"].toBool()) {
        d_logits = binary_mapper_backward_logits(logits_MZ, table_CD, grad_MD, /*fused=*/true);
      } else {
        const Tensor of_sample = binary_mapper_backward_logits(
            logits_MZ.index_select(0, sample), table_CD, grad_MD.index_select(0, sample),
            /*fused=*/true);
        d_logits = at::zeros_like(logits_MZ).index_copy_(
            0, sample, of_sample * context->saved_data["scale"].toDouble());
      }
      d_logits = d_logits.view_as(bit_logits_BTZ);
    }
    if (context->needs_input_grad(2)) {
      d_table = backward_table(codes_BT.flatten(), grad_MD, table_CD.size(0));
    }
    return {d_logits, Tensor(), d_table, Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor binary_mapper(const Tensor& bit_logits_BTZ, const Tensor& codes_BT, const Tensor& table_CD,
                     const GradientSample& sample) {
  FF_CHECK(!bit_logits_BTZ.defined() ||
           code_count(int(bit_logits_BTZ.size(-1))) == table_CD.size(0));
  check_codes(codes_BT, table_CD.size(0));
  // LibTorch 1.13 wants every argument of an autograd function defined.
  return BinaryMapper::apply(
      bit_logits_BTZ.defined() ? bit_logits_BTZ : at::empty({0}, table_CD.options()),
      codes_BT.contiguous(), table_CD, sample.tokens.defined(),
      sample.tokens.defined() ? sample.tokens : at::empty({0}, codes_BT.options()), sample.scale);
}

GradientSample sample_tokens(uint64_t seed, const std::vector<uint64_t>& sequences, int64_t T,
                             int64_t group, torch::Device device) {
  FF_CHECK(group >= 1);
  if (group == 1) return {};
  const RandomSource source(seed, RandomStream::kGradient);
  std::vector<int64_t> tokens;
  for (size_t b = 0; b < sequences.size(); ++b) {
    for (int64_t first = 0; first < T; first += group) {
      const uint32_t bits = source.block(sequences[b], uint32_t(first / group), 0)[0];
      // Beyond the end of the sequence there is nobody: its last tokens are as likely as others.
      const int64_t t = first + int64_t(uint64_t{bits} * uint64_t(group) >> 32);
      if (t < T) tokens.push_back(int64_t(b) * T + t);
    }
  }
  return {at::tensor(tokens, at::kLong).to(device), double(group)};
}

Tensor binary_mapper_backward_logits(const Tensor& bit_logits_MZ, const Tensor& table_CD,
                                     const Tensor& grad_MD, bool fused) {
  if (!fused || !has_kernels_for({table_CD, grad_MD}) ||
      bit_logits_MZ.scalar_type() != at::kFloat) {
    return backward_logits_aten(bit_logits_MZ, table_CD, grad_MD);
  }
  const Tensor logits = bit_logits_MZ.contiguous(), table = table_CD.contiguous();
  const Tensor grad = grad_MD.contiguous();
  Tensor d_logits_MZ = at::empty_like(logits);
  const int64_t M = logits.size(0), D = table.size(1);
  const auto Z = int(logits.size(1));
  if (table.scalar_type() == at::kFloat) {
    kernels::mapper_backward_logits(logits.data_ptr<float>(), table.data_ptr<float>(),
                                    grad.data_ptr<float>(), M, D, Z, d_logits_MZ.data_ptr<float>());
  } else {
    kernels::mapper_backward_logits(logits.data_ptr<float>(), bfloat16_data(table),
                                    bfloat16_data(grad), M, D, Z, d_logits_MZ.data_ptr<float>());
  }
  return d_logits_MZ;
}

Tensor sample_codes(const Tensor& bit_logits_BTZ, const Tensor& uniforms_BTZ) {
  const Tensor bits_BTZ = uniforms_BTZ.to(bit_logits_BTZ.options()).lt(bit_logits_BTZ.sigmoid());
  const Tensor powers_Z =
      at::bitwise_left_shift(at::ones({bits_BTZ.size(-1)}, bits_BTZ.options().dtype(at::kLong)),
                             at::arange(bits_BTZ.size(-1), bits_BTZ.options().dtype(at::kLong)));
  return (bits_BTZ.to(at::kLong) * powers_Z).sum(-1);
}

Tensor bits_kl(const Tensor& bit_logits_BTZ) {
  // With a = |logit|/2 one bit's KL is a tanh(a) - log cosh(a). Two ways to write it:
  //   flat:       a tanh(a) - log1p(2 sinh²(a/2))                  no cancellation at 0
  //   saturated:  log 2 - log1p(e) - 2a·e / (1+e),  e = exp(-2a)   no overflow, no large terms
  const Tensor a = bit_logits_BTZ.abs() * 0.5;
  const Tensor near = a.clamp_max(1.0), e = at::exp(-2 * a);
  const Tensor flat = near * at::tanh(near) - at::log1p(2 * at::sinh(near * 0.5).square());
  const Tensor saturated = std::log(2.0) - at::log1p(e) - 2 * a * e / (1 + e);
  return at::where(a < 1.0, flat, saturated).sum(-1);
}

Tensor bits_log_probability(const Tensor& bit_logits_BTZ, const Tensor& codes_BT) {
  const Tensor bits_BTZ = at::bitwise_and(
      at::bitwise_right_shift(codes_BT.unsqueeze(-1),
                              at::arange(bit_logits_BTZ.size(-1), codes_BT.options())),
      at::ones({}, codes_BT.options()));
  // The logit's sign flipped where the bit is 0: log sigmoid(±logit).
  return at::log_sigmoid(bit_logits_BTZ * (2 * bits_BTZ - 1).to(bit_logits_BTZ.scalar_type()))
      .sum(-1);
}

Tensor latent_uniforms(uint64_t seed, const std::vector<uint64_t>& sequences,
                       int64_t first_position, int64_t T, int Z) {
  const RandomSource source(seed, RandomStream::kLatent);
  Tensor uniforms_BTZ = at::empty({int64_t(sequences.size()), T, Z}, at::kFloat);
  float* out = uniforms_BTZ.data_ptr<float>();
  for (const uint64_t sequence : sequences) {
    for (int64_t t = 0; t < T; ++t, out += Z) {
      source.uniforms(sequence, uint32_t(first_position + t), Z, out);
    }
  }
  return uniforms_BTZ;
}

}  // namespace freeformer::ops
