#include "ops/fused.h"

#include <algorithm>
#include <atomic>

#include "core/error.h"
#include "kernels/add.h"
#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/softmax_loss.h"
#include "kernels/swiglu.h"
#include "kernels/timing.h"

namespace freeformer::ops {
namespace {

std::atomic<bool> kernels_on = true;

}  // namespace

void use_kernels(bool on) { kernels_on = on; }

bool has_kernels_for(std::initializer_list<Tensor> tensors) {
  const at::ScalarType dtype = tensors.begin()->scalar_type();
  return kernels_on && (dtype == at::kFloat || dtype == at::kBFloat16) &&
         std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& tensor) {
           return tensor.is_cpu() && tensor.scalar_type() == dtype;
         });
}

namespace fused {
namespace {

using kernels::TimedPart;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

template <typename T>
T* data(const Tensor& tensor) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return reinterpret_cast<BFloat16*>(tensor.data_ptr<at::BFloat16>());
  } else {
    return tensor.data_ptr<T>();
  }
}

// Calls body(T()) with the element type of the tensor.
template <typename Body>
void with_type(const Tensor& tensor, const Body& body) {
  if (tensor.scalar_type() == at::kFloat) {
    body(float());
  } else {
    body(BFloat16());
  }
}

Tensor empty_float(at::IntArrayRef sizes) { return at::empty(sizes, at::kFloat); }

// Kernels have no second derivative; a wrong one would be silent.
void refuse_second_derivative() {
  if (at::GradMode::is_enabled()) {
    fail(ErrorCode::kUnsupported, "the fused kernels have no second derivative (create_graph)");
  }
}

// --- Matrix products -----------------------------------------------------------------------------

void multiply(const kernels::GemmShape& shape, const Tensor& a, const Tensor& b, const Tensor& c) {
  with_type(a, [&]<typename T>(T) {
    if (c.scalar_type() == at::kFloat) {
      kernels::gemm(shape, data<T>(a), data<T>(b), data<float>(c));
    } else if constexpr (std::is_same_v<T, BFloat16>) {
      kernels::gemm(shape, data<T>(a), data<T>(b), data<T>(c));
    }
  });
}

struct Linear : Function<Linear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight) {
    const TimedPart part("linear");
    context->save_for_backward({x, weight});
    const int64_t out = weight.size(0), in = weight.size(1);
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = out;
    Tensor y = at::empty(sizes, x.options());
    multiply({.M = x.numel() / in, .N = out, .K = in, .transpose_b = true}, x, weight, y);
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative();
    const TimedPart part("linear backward");
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], dy = grads[0].contiguous();
    const int64_t out = weight.size(0), in = weight.size(1), M = x.numel() / in;
    Tensor dx, dweight;
    if (context->needs_input_grad(0)) {
      dx = at::empty_like(x);
      multiply({.M = M, .N = in, .K = out}, dy, weight, dx);
    }
    if (context->needs_input_grad(1)) {
      dweight = at::empty_like(weight);
      multiply({.M = out, .N = in, .K = M, .transpose_a = true}, dy, x, dweight);
    }
    return {dx, dweight};
  }
};

// --- Embedding -----------------------------------------------------------------------------------

struct Embedding : Function<Embedding> {
  static Tensor forward(AutogradContext* context, const Tensor& index_BT, const Tensor& table) {
    const TimedPart part("embedding");
    context->save_for_backward({index_BT});
    context->saved_data["rows"] = table.size(0);
    return at::embedding(table, index_BT);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative();
    const TimedPart part("embedding backward");
    const Tensor index_BT = context->get_saved_variables()[0], grad = grads[0].contiguous();
    const int64_t rows = context->saved_data["rows"].toInt(), D = grad.size(-1);
    Tensor dtable = at::zeros({rows, D}, at::kFloat);
    with_type(grad, [&]<typename T>(T) {
      kernels::embedding_backward(index_BT.data_ptr<int64_t>(), data<T>(grad), index_BT.numel(), D,
                                  data<float>(dtable));
    });
    return {Tensor(), dtable.to(grad.scalar_type())};
  }
};

// --- Norm, rotation, gate ------------------------------------------------------------------------

struct RmsNorm : Function<RmsNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight_D,
                        double eps) {
    const TimedPart part("norm");
    const int64_t D = x.size(-1), M = x.numel() / D;
    Tensor y = at::empty_like(x), inverse_rms_M = empty_float({M});
    with_type(x, [&]<typename T>(T) {
      kernels::rms_norm(data<T>(x), data<T>(weight_D), M, D, float(eps), data<T>(y),
                        data<float>(inverse_rms_M));
    });
    context->save_for_backward({x, weight_D, inverse_rms_M});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative();
    const TimedPart part("norm backward");
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight_D = saved[1], dy = grads[0].contiguous();
    const int64_t D = x.size(-1), M = x.numel() / D;
    Tensor dx, dweight;
    if (context->needs_input_grad(0)) dx = at::empty_like(x);
    if (context->needs_input_grad(1)) dweight = empty_float({D});
    with_type(x, [&]<typename T>(T) {
      kernels::rms_norm_backward(data<T>(x), data<T>(weight_D), data<float>(saved[2]), data<T>(dy),
                                 M, D, dx.defined() ? data<T>(dx) : nullptr,
                                 dweight.defined() ? data<float>(dweight) : nullptr);
    });
    return {dx, dweight.defined() ? dweight.to(weight_D.scalar_type()) : dweight, Tensor()};
  }
};

Tensor rotated(const Tensor& x_BTNH, const Tensor& cos, const Tensor& sin, bool inverse) {
  Tensor y = at::empty_like(x_BTNH);
  with_type(x_BTNH, [&]<typename T>(T) {
    kernels::rope(data<T>(x_BTNH), data<float>(cos), data<float>(sin), x_BTNH.size(0),
                  x_BTNH.size(1), x_BTNH.size(2), x_BTNH.size(3), cos.size(0), inverse, data<T>(y));
  });
  return y;
}

struct Rope : Function<Rope> {
  static Tensor forward(AutogradContext* context, const Tensor& x_BTNH, const Tensor& cos,
                        const Tensor& sin) {
    const TimedPart part("rope");
    context->save_for_backward({cos, sin});
    return rotated(x_BTNH, cos, sin, /*inverse=*/false);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative();
    const TimedPart part("rope backward");
    const auto saved = context->get_saved_variables();
    return {rotated(grads[0].contiguous(), saved[0], saved[1], /*inverse=*/true), Tensor(),
            Tensor()};
  }
};

struct SwiGlu : Function<SwiGlu> {
  static Tensor forward(AutogradContext* context, const Tensor& gate, const Tensor& up) {
    const TimedPart part("swiglu");
    context->save_for_backward({gate, up});
    Tensor y = at::empty_like(gate);
    with_type(gate, [&]<typename T>(T) {
      kernels::swiglu(data<T>(gate), data<T>(up), gate.numel(), data<T>(y));
    });
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative();
    const TimedPart part("swiglu backward");
    const auto saved = context->get_saved_variables();
    const Tensor &gate = saved[0], &up = saved[1], dy = grads[0].contiguous();
    Tensor dgate = at::empty_like(gate), dup = at::empty_like(up);
    with_type(gate, [&]<typename T>(T) {
      kernels::swiglu_backward(data<T>(gate), data<T>(up), data<T>(dy), gate.numel(),
                               data<T>(dgate), data<T>(dup));
    });
    return {dgate, dup};
  }
};

// --- Attention -----------------------------------------------------------------------------------

kernels::AttentionShape shape_of(const Tensor& q_BTNH, const Tensor& k_BSKH) {
  return {q_BTNH.size(0), q_BTNH.size(1), k_BSKH.size(1),
          q_BTNH.size(2), k_BSKH.size(2), q_BTNH.size(3)};
}

struct Attention : Function<Attention> {
  // documents_BT is empty where there is one document.
  static Tensor forward(AutogradContext* context, const Tensor& q_BTNH, const Tensor& k_BSKH,
                        const Tensor& v_BSKH, const Tensor& documents_BT, bool causal) {
    const TimedPart part("attention");
    const kernels::AttentionShape shape = shape_of(q_BTNH, k_BSKH);
    Tensor out = at::empty_like(q_BTNH), lse = empty_float({shape.B, shape.N, shape.T});
    const auto ranges = ranges_of(shape, causal, documents_BT);
    with_type(q_BTNH, [&]<typename T>(T) {
      kernels::attention(shape, ranges.data(), data<T>(q_BTNH), data<T>(k_BSKH), data<T>(v_BSKH),
                         data<T>(out), data<float>(lse));
    });
    context->save_for_backward({q_BTNH, k_BSKH, v_BSKH, documents_BT, out, lse});
    context->saved_data["causal"] = causal;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative();
    const TimedPart part("attention backward");
    const auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[4], &lse = saved[5];
    const Tensor dout = grads[0].contiguous();
    const kernels::AttentionShape shape = shape_of(q, k);
    const auto ranges = ranges_of(shape, context->saved_data["causal"].toBool(), saved[3]);
    Tensor dq = at::empty_like(q), dk = at::empty_like(k), dv = at::empty_like(v);
    with_type(q, [&]<typename T>(T) {
      kernels::attention_backward(shape, ranges.data(), data<T>(q), data<T>(k), data<T>(v),
                                  data<T>(out), data<float>(lse), data<T>(dout), data<T>(dq),
                                  data<T>(dk), data<T>(dv));
    });
    return {dq, dk, dv, Tensor(), Tensor()};
  }

  static std::vector<kernels::KeyRange> ranges_of(const kernels::AttentionShape& shape, bool causal,
                                                  const Tensor& documents_BT) {
    return kernels::key_ranges(
        shape, causal, documents_BT.numel() == 0 ? nullptr : documents_BT.data_ptr<int64_t>());
  }
};

// --- Cross-entropy with the read-out -------------------------------------------------------------

// Rows whose logits exist at once: enough for the products to be efficient, and a bounded memory.
int64_t logit_rows(int64_t V) {
  constexpr int64_t kMostBytes = int64_t{256} << 20, kMostRows = 1024, kLeastRows = 128;
  return std::clamp(kMostBytes / (V * int64_t(sizeof(float))), kLeastRows, kMostRows);
}

// The loss of every row, and on request the gradients of Σ_m scale_m · nll_m (undefined: all 1).
// Each block of logits becomes its own gradient, softmax - onehot, while it is there: one product
// less than computing it again in the backward pass.
struct ReadOut {
  Tensor nll_M, dx_MD, dweight_VD;  // dweight in fp32
};
ReadOut read_out(const Tensor& x_MD, const Tensor& weight_VD, const Tensor& targets_M,
                 const Tensor& scale_M, bool want_dx, bool want_dweight) {
  const int64_t M = x_MD.size(0), D = x_MD.size(1), V = weight_VD.size(0);
  ReadOut result;
  result.nll_M = empty_float({M});
  if (want_dx) result.dx_MD = at::empty_like(x_MD);
  if (want_dweight) result.dweight_VD = empty_float({V, D});
  if (want_dweight && M == 0) result.dweight_VD.zero_();
  const int64_t rows = std::min(logit_rows(V), M);
  const Tensor logits = empty_float({rows, V});
  const bool narrow = x_MD.scalar_type() != at::kFloat && (want_dx || want_dweight);
  const Tensor narrow_gradient = narrow ? at::empty({rows, V}, x_MD.options()) : Tensor();
  for (int64_t first = 0; first < M; first += rows) {
    const int64_t m = std::min(rows, M - first);
    const Tensor x = x_MD.narrow(0, first, m), targets = targets_M.narrow(0, first, m);
    float* nll = data<float>(result.nll_M) + first;
    multiply({.M = m, .N = V, .K = D, .transpose_b = true}, x, weight_VD, logits);
    if (!want_dx && !want_dweight) {
      kernels::softmax_loss(data<float>(logits), V, targets.data_ptr<int64_t>(), m, V, nll);
      continue;
    }
    const Tensor gradient = (narrow ? narrow_gradient : logits).narrow(0, 0, m);
    with_type(gradient, [&]<typename T>(T) {
      kernels::softmax_loss(data<float>(logits), V, targets.data_ptr<int64_t>(), m, V, nll,
                            data<T>(gradient), V);
    });
    if (scale_M.defined()) {
      gradient.mul_(scale_M.narrow(0, first, m).unsqueeze(1).to(gradient.scalar_type()));
    }
    if (want_dx)
      multiply({.M = m, .N = D, .K = V}, gradient, weight_VD, result.dx_MD.narrow(0, first, m));
    if (want_dweight) {
      multiply({.M = V, .N = D, .K = m, .transpose_a = true, .accumulate = first > 0}, gradient, x,
               result.dweight_VD);
    }
  }
  return result;
}

struct LinearCrossEntropy : Function<LinearCrossEntropy> {
  static Tensor forward(AutogradContext* context, const Tensor& x_MD, const Tensor& weight_VD,
                        const Tensor& targets_M, bool differentiable) {
    const TimedPart part("read-out with loss and gradients");
    const bool want_dx = differentiable && x_MD.requires_grad();
    const bool want_dweight = differentiable && weight_VD.requires_grad();
    const ReadOut result = read_out(x_MD, weight_VD, targets_M, Tensor(), want_dx, want_dweight);
    // LibTorch 1.13 wants every saved tensor defined.
    const Tensor none = at::empty({0});
    context->save_for_backward({x_MD, weight_VD, targets_M, want_dx ? result.dx_MD : none,
                                want_dweight ? result.dweight_VD : none});
    return result.nll_M;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    refuse_second_derivative();
    const TimedPart part("read-out backward");
    const auto saved = context->get_saved_variables();
    const Tensor &x_MD = saved[0], &weight_VD = saved[1], &targets_M = saved[2];
    const bool want_dx = context->needs_input_grad(0), want_dweight = context->needs_input_grad(1);
    Tensor dx = saved[3], dweight = saved[4];
    // A mean over the tokens weighs all of them alike, and one factor scales what is there. Other
    // weights need the products again.
    const Tensor counting = grads[0].masked_select(targets_M.ne(kIgnoredTarget));
    if (counting.numel() == 0) {
      if (want_dx) dx.zero_();
      if (want_dweight) dweight.zero_();
    } else if (counting.eq(counting[0]).all().item<bool>()) {
      const auto scale = counting[0].item<double>();
      if (want_dx) dx.mul_(scale);
      if (want_dweight) dweight.mul_(scale);
    } else {
      const ReadOut again = read_out(x_MD, weight_VD, targets_M, grads[0], want_dx, want_dweight);
      dx = again.dx_MD;
      dweight = again.dweight_VD;
    }
    return {want_dx ? dx : Tensor(), want_dweight ? dweight.to(weight_VD.scalar_type()) : Tensor(),
            Tensor(), Tensor()};
  }
};

}  // namespace

bool takes(const AttentionScope& scope, int64_t queries, int64_t keys) {
  if (!scope.documents_BT.defined()) return true;
  if (queries != keys || scope.documents_BT.scalar_type() != at::kLong) return false;
  // Ids that never fall are runs.
  const Tensor documents_BT = scope.documents_BT.contiguous();
  const int64_t* ids = documents_BT.data_ptr<int64_t>();
  for (int64_t b = 0; b < documents_BT.size(0); ++b, ids += queries) {
    if (!std::is_sorted(ids, ids + queries)) return false;
  }
  return true;
}

Tensor linear(const Tensor& x, const Tensor& weight) {
  FF_CHECK(x.size(-1) == weight.size(1) && weight.size(1) > 0);
  return Linear::apply(x.contiguous(), weight.contiguous());
}

Tensor embedding(const Tensor& index_BT, const Tensor& table) {
  return Embedding::apply(index_BT.contiguous(), table);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight_D, double eps) {
  FF_CHECK(weight_D.numel() == x.size(-1) && weight_D.numel() > 0);
  return RmsNorm::apply(x.contiguous(), weight_D.contiguous(), eps);
}

Tensor rope(const Tensor& x_BTNH, const RotaryTable& table) {
  FF_CHECK(table.cos_BTH2.size(1) == x_BTNH.size(1) &&
           table.cos_BTH2.size(2) * 2 == x_BTNH.size(3) &&
           (table.cos_BTH2.size(0) == 1 || table.cos_BTH2.size(0) == x_BTNH.size(0)));
  return Rope::apply(x_BTNH.contiguous(), table.cos_BTH2.contiguous(), table.sin_BTH2.contiguous());
}

Tensor attention(const Tensor& q_BTNH, const Tensor& k_BSKH, const Tensor& v_BSKH,
                 const AttentionScope& scope) {
  FF_CHECK(k_BSKH.sizes() == v_BSKH.sizes() && k_BSKH.size(0) == q_BTNH.size(0) &&
           k_BSKH.size(1) >= q_BTNH.size(1) && q_BTNH.size(2) % k_BSKH.size(2) == 0 &&
           k_BSKH.size(3) == q_BTNH.size(3));
  const Tensor documents =
      scope.documents_BT.defined()
          ? scope.documents_BT.expand({q_BTNH.size(0), k_BSKH.size(1)}).contiguous()
          : at::empty({0}, at::kLong);
  return Attention::apply(q_BTNH.contiguous(), k_BSKH.contiguous(), v_BSKH.contiguous(), documents,
                          scope.causal);
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  FF_CHECK(gate.sizes() == up.sizes());
  return SwiGlu::apply(gate.contiguous(), up.contiguous());
}

Tensor linear_cross_entropy(const Tensor& x_MD, const Tensor& weight_VD, const Tensor& targets_M) {
  FF_CHECK(x_MD.size(1) == weight_VD.size(1) && targets_M.numel() == x_MD.size(0));
  // Inside forward the grad mode is always off.
  return LinearCrossEntropy::apply(x_MD.contiguous(), weight_VD.contiguous(),
                                   targets_M.contiguous(), at::GradMode::is_enabled());
}

}  // namespace fused
}  // namespace freeformer::ops
