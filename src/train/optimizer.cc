#include "train/optimizer.h"

#include <cmath>
#include <span>

#include "core/error.h"
#include "core/safetensors.h"
#include "kernels/adamw.h"
#include "kernels/timing.h"
#include "model/weights.h"

namespace freeformer {
namespace {

// All passes' rows as one sparse tensor without repeated rows.
Tensor coalesced(const std::vector<Tensor>& passes) {
  if (passes.size() == 1) return passes[0].coalesce();
  std::vector<Tensor> indices, values;
  for (const Tensor& pass : passes) {
    indices.push_back(pass._indices());
    values.push_back(pass._values());
  }
  return at::sparse_coo_tensor(at::cat(indices, 1), at::cat(values, 0), passes[0].sizes())
      .coalesce();
}

// w -= η m̂ / (sqrt(v̂) + ε) with decoupled decay, in place. Corrections are 1 - β^t, a number or a
// column.
struct Update {
  const OptimizerSettings& settings;
  double learning_rate;
  double decay;

  template <typename Correction>
  void operator()(Tensor& w, Tensor& m, Tensor& v, const Tensor& g, const Correction& correction1,
                  const Correction& correction2) const {
    m.mul_(settings.beta1).add_(g, 1 - settings.beta1);
    v.mul_(settings.beta2).addcmul_(g, g, 1 - settings.beta2);
    if (decay > 0) w.mul_(1 - learning_rate * decay);
    const Tensor root = (v / correction2).sqrt_().add_(settings.epsilon);
    w.addcdiv_(m / correction1, root, -learning_rate);
  }
};

}  // namespace

AdamW::AdamW(FreeTransformer model, const OptimizerSettings& settings, at::ScalarType compute_dtype)
    : settings_(settings) {
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> masters;
  for (const auto& item : model->named_parameters()) {
    FF_CHECK(item.value().scalar_type() == at::kFloat);
    masters.push_back(item.value().detach());
  }
  const bool own_copies = compute_dtype != at::kFloat;
  if (own_copies) {
    for (Tensor& master : masters) master = master.clone();
    model->to(compute_dtype);
  }
  size_t i = 0;
  for (const auto& item : model->named_parameters()) {
    Slot slot;
    slot.name = item.key();
    slot.parameter = item.value();
    slot.master = masters[i++];
    slot.m = at::zeros_like(slot.master);
    slot.v = at::zeros_like(slot.master);
    slot.by_rows = slot.name == kTableWeight;
    slot.rounded = own_copies;
    slot.time =
        slot.by_rows ? at::zeros({slot.master.size(0)}, at::kLong) : at::zeros({}, at::kLong);
    slot.time = slot.time.to(slot.master.device());
    slot.decays = slot.master.dim() >= 2;
    slot.of_encoder = !slot.by_rows && slot.name.starts_with("model.latent.");
    slot.rate = slot.by_rows      ? settings.table_factor
                : slot.of_encoder ? settings.encoder_factor
                                  : 1.0;
    slots_.push_back(std::move(slot));
  }
}

void AdamW::accumulate() {
  const kernels::TimedPart part("gradients to fp32");
  const torch::NoGradGuard no_grad;
  for (Slot& slot : slots_) {
    Tensor& gradient = slot.parameter.mutable_grad();
    if (!gradient.defined()) continue;
    if (slot.by_rows) {
      slot.rows.push_back(gradient.to(at::kFloat));
    } else if (!slot.gradient.defined()) {
      slot.gradient = gradient.to(at::kFloat);
    } else {
      slot.gradient.add_(gradient.to(at::kFloat));
    }
    gradient.reset();
  }
}

double AdamW::gradient_norm() const {
  const kernels::TimedPart part("gradient norm");
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> kept;
  std::vector<std::span<const float>> on_cpu;
  double squares = 0;
  for (const Slot& slot : slots_) {
    Tensor values = slot.gradient;
    if (!slot.rows.empty()) values = coalesced(slot.rows)._values();
    if (!values.defined()) continue;
    if (values.is_cpu()) {
      kept.push_back(values.contiguous());
      on_cpu.emplace_back(kept.back().data_ptr<float>(), size_t(kept.back().numel()));
    } else {
      squares += std::pow(values.norm().item<double>(), 2);
    }
  }
  return std::sqrt(squares + kernels::sum_of_squares(on_cpu));
}

// All of them in one pass over their memory.
void AdamW::update_fused(const Rates& rates, double clip) {
  std::vector<kernels::AdamWTensor> tensors;
  for (Slot& slot : slots_) {
    if (slot.by_rows || !slot.gradient.defined()) continue;
    slot.time.add_(1);
    const auto t = double(slot.time.item<int64_t>());
    slot.gradient = slot.gradient.contiguous();
    tensors.push_back({.master = slot.master.data_ptr<float>(),
                       .m = slot.m.data_ptr<float>(),
                       .v = slot.v.data_ptr<float>(),
                       .gradient = slot.gradient.data_ptr<float>(),
                       .rounded = slot.rounded ? reinterpret_cast<BFloat16*>(
                                                     slot.parameter.data_ptr<at::BFloat16>())
                                               : nullptr,
                       .count = slot.master.numel(),
                       .learning_rate = float(rates.of(slot)),
                       .decay = float(slot.decays ? settings_.weight_decay : 0),
                       .beta1 = float(settings_.beta1),
                       .beta2 = float(settings_.beta2),
                       .epsilon = float(settings_.epsilon),
                       .rest1 = float(1 - settings_.beta1),
                       .rest2 = float(1 - settings_.beta2),
                       .correction1 = float(1 - std::pow(settings_.beta1, t)),
                       .correction2 = float(1 - std::pow(settings_.beta2, t)),
                       .gradient_scale = float(clip)});
  }
  kernels::adamw_update(tensors);
}

void AdamW::update_all(Slot& slot, double learning_rate, double clip) const {
  if (!slot.gradient.defined()) return;
  slot.time.add_(1);
  const auto t = double(slot.time.item<int64_t>());
  const Update update{settings_, learning_rate, slot.decays ? settings_.weight_decay : 0};
  update(slot.master, slot.m, slot.v, clip == 1 ? slot.gradient : slot.gradient * clip,
         1 - std::pow(settings_.beta1, t), 1 - std::pow(settings_.beta2, t));
  if (slot.rounded) slot.parameter.copy_(slot.master);
}

void AdamW::update_rows(Slot& slot, double learning_rate, double clip) const {
  if (slot.rows.empty()) return;
  const Tensor gradient = coalesced(slot.rows);
  const Tensor rows = gradient._indices()[0], g = gradient._values() * clip;
  Tensor w = slot.master.index_select(0, rows), m = slot.m.index_select(0, rows),
         v = slot.v.index_select(0, rows);
  const Tensor time = slot.time.index_select(0, rows) + 1;
  const Tensor t = time.to(at::kDouble).unsqueeze(1);
  const Tensor correction1 = (1 - at::pow(settings_.beta1, t)).to(at::kFloat);
  const Tensor correction2 = (1 - at::pow(settings_.beta2, t)).to(at::kFloat);
  const Update update{settings_, learning_rate, settings_.weight_decay};
  update(w, m, v, g, correction1, correction2);
  slot.master.index_copy_(0, rows, w);
  slot.m.index_copy_(0, rows, m);
  slot.v.index_copy_(0, rows, v);
  slot.time.index_copy_(0, rows, time);
  if (slot.rounded) {
    slot.parameter.index_copy_(0, rows, w.to(slot.parameter.scalar_type()));
  }
}

void AdamW::step(double learning_rate, std::optional<double> norm, double encoder_share) {
  const kernels::TimedPart part("AdamW");
  const torch::NoGradGuard no_grad;
  double clip = 1.0;
  if (settings_.clip_norm > 0) {
    clip = std::min(1.0, settings_.clip_norm / (norm ? *norm : gradient_norm()));
  }
  // All masters are on one device.
  const bool fused = !slots_.empty() && ops::has_kernels_for({slots_[0].master});
  const Rates rates{learning_rate, encoder_share};
  if (fused) update_fused(rates, clip);
  for (Slot& slot : slots_) {
    if (slot.by_rows) {
      update_rows(slot, rates.of(slot), clip);
    } else if (!fused) {
      update_all(slot, rates.of(slot), clip);
    }
    slot.gradient.reset();
    slot.rows.clear();
  }
}

std::map<std::string, Tensor> AdamW::masters() const {
  std::map<std::string, Tensor> result;
  for (const Slot& slot : slots_) result[slot.name] = slot.master;
  return result;
}

std::map<std::string, Tensor> AdamW::state() const {
  std::map<std::string, Tensor> result;
  for (const Slot& slot : slots_) {
    result["m." + slot.name] = slot.m;
    result["v." + slot.name] = slot.v;
    result["time." + slot.name] = slot.time;
  }
  return result;
}

void AdamW::load_state(const std::map<std::string, Tensor>& state, const std::string& where) {
  const torch::NoGradGuard no_grad;
  const auto own = this->state();
  for (const auto& [name, tensor] : own) {
    const auto found = state.find(name);
    if (found == state.end()) {
      reject_file(where, "has no tensor '{}'", name);
    }
    if (found->second.sizes() != tensor.sizes() ||
        found->second.scalar_type() != tensor.scalar_type()) {
      reject_file(where, "tensor '{}' has shape {}, expected {} {}", name,
                  describe_shape(found->second.sizes().vec()), toString(tensor.scalar_type()),
                  describe_shape(tensor.sizes().vec()));
    }
    Tensor(tensor).copy_(found->second);
  }
  for (const auto& [name, tensor] : state) {
    if (!own.contains(name)) {
      reject_file(where, "unexpected tensor '{}'", name);
    }
  }
}

void AdamW::refresh_model() {
  const torch::NoGradGuard no_grad;
  for (Slot& slot : slots_) {
    if (slot.rounded) slot.parameter.copy_(slot.master);
  }
}

}  // namespace freeformer
