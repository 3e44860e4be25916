#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "expect_error.h"
#include "tensor_matchers.h"
#include "tiny_model.h"

namespace freeformer {
namespace {

constexpr const char* kTable = "model.latent.post_sampler.weight";

OptimizerSettings settings() {
  OptimizerSettings s;
  s.learning_rate = 0.01;
  s.clip_norm = 0;
  s.weight_decay = 0.1;
  return s;
}

// Gradients for every parameter that depend on the step, the table's in a few rows.
std::map<std::string, Tensor> set_gradients(FreeTransformer& model, int step) {
  std::map<std::string, Tensor> dense;
  uint64_t seed = uint64_t(100 * step);
  for (auto& item : model->named_parameters()) {
    Tensor& parameter = item.value();
    Tensor gradient = random_tensor(parameter.sizes(), ++seed, parameter.scalar_type());
    if (item.key() == kTable) {
      const Tensor rows = at::tensor(std::vector<int64_t>{1, 3 + step % 2});
      const Tensor values = gradient.index_select(0, rows);
      gradient = at::zeros_like(gradient).index_copy(0, rows, values);
      parameter.mutable_grad() =
          at::sparse_coo_tensor(rows.unsqueeze(0), values, parameter.sizes());
    } else {
      parameter.mutable_grad() = gradient.clone();
    }
    dense[item.key()] = gradient.to(at::kDouble);
  }
  return dense;
}

// The formula of the header, as written, in fp64; a row of the table has a time of its own.
struct NaiveAdamW {
  std::map<std::string, Tensor> w, m, v, time;  // time per row for the table, else one number

  explicit NaiveAdamW(const FreeTransformer& model) {
    for (const auto& item : model->named_parameters()) {
      w[item.key()] = item.value().detach().to(at::kDouble).clone();
      m[item.key()] = at::zeros_like(w[item.key()]);
      v[item.key()] = at::zeros_like(w[item.key()]);
      time[item.key()] = at::zeros_like(w[item.key()]);
    }
  }

  void step(const std::map<std::string, Tensor>& gradients, const OptimizerSettings& s, double lr,
            double clip = 1) {
    for (const auto& [name, gradient] : gradients) {
      double rate = lr;
      if (name == kTable) {
        rate *= s.table_factor;
      } else if (name.starts_with("model.latent.")) {
        rate *= s.encoder_factor;
      }
      const Tensor g = gradient * clip;
      const Tensor moves = name == kTable
                               ? g.ne(0).any(1, true).to(at::kDouble).expand_as(g).clone()
                               : at::ones_like(g);
      time[name] = time[name] + moves;
      const Tensor m1 = s.beta1 * m[name] + (1 - s.beta1) * g;
      const Tensor v1 = s.beta2 * v[name] + (1 - s.beta2) * g * g;
      const Tensor c1 = 1 - at::pow(s.beta1, time[name]), c2 = 1 - at::pow(s.beta2, time[name]);
      const double decay = g.dim() >= 2 ? s.weight_decay : 0;
      const Tensor w1 =
          w[name] * (1 - rate * decay) - rate * (m1 / c1) / ((v1 / c2).sqrt() + s.epsilon);
      m[name] = at::where(moves.gt(0), m1, m[name]);
      v[name] = at::where(moves.gt(0), v1, v[name]);
      w[name] = at::where(moves.gt(0), w1, w[name]);
    }
  }
};

void expect_masters_match(const AdamW& optimizer, const NaiveAdamW& naive, double tolerance) {
  for (const auto& [name, master] : optimizer.masters()) {
    EXPECT_LT(relative_error(master, naive.w.at(name)), tolerance) << name;
  }
}

TEST(AdamW, FollowsTheFormula) {
  FreeTransformer model = tiny_model(tiny_config(3));
  OptimizerSettings s = settings();
  s.encoder_factor = 0.5;
  s.table_factor = 3;
  NaiveAdamW naive(model);
  AdamW optimizer(model, s, at::kFloat);
  for (int step = 0; step < 5; ++step) {
    const double lr = 0.01 / (step + 1);
    const auto gradients = set_gradients(model, step);
    optimizer.accumulate();
    optimizer.step(lr);
    naive.step(gradients, s, lr);
  }
  expect_masters_match(optimizer, naive, 1e-6);
  for (const auto& item : model->named_parameters()) {
    expect_identical(item.value(), optimizer.masters().at(item.key()));
  }
}

TEST(AdamW, MovesOnlyTheRowsOfCodesThatWereDrawn) {
  FreeTransformer model = tiny_model(tiny_config(3));
  const Tensor before = model->named_parameters()[kTable].detach().clone();
  AdamW optimizer(model, settings(), at::kFloat);
  set_gradients(model, 0);  // rows 1 and 3
  optimizer.accumulate();
  optimizer.step(0.01);
  const Tensor after = model->named_parameters()[kTable].detach();
  for (int64_t row = 0; row < 8; ++row) {
    EXPECT_EQ(at::equal(before[row], after[row]), row != 1 && row != 3) << row;
  }
  // The first update of a row has the size of the rate, whenever it comes: no decay to speak of.
  for (int step = 1; step < 30; ++step) {
    set_gradients(model, 0);
    optimizer.accumulate();
    optimizer.step(0.0);
  }
  const Tensor row_before = model->named_parameters()[kTable].detach()[4].clone();
  set_gradients(model, 1);  // row 4 for the first time
  optimizer.accumulate();
  optimizer.step(0.01);
  const Tensor move = model->named_parameters()[kTable].detach()[4] - row_before * (1 - 0.01 * 0.1);
  EXPECT_LT((move.abs() - 0.01).abs().max().item<double>(), 1e-4);
}

TEST(AdamW, TheEncoderAloneLearnsAtItsShare) {
  for (const bool kernels : {true, false}) {
    ops::use_kernels(kernels);
    FreeTransformer model = tiny_model(tiny_config(3));
    OptimizerSettings s = settings();
    s.weight_decay = 0;
    s.clip_norm = 0;
    std::map<std::string, Tensor> before;
    for (const auto& item : model->named_parameters()) before[item.key()] = item.value().clone();
    AdamW optimizer(model, s, at::kFloat);
    set_gradients(model, 0);
    optimizer.accumulate();
    optimizer.step(0.01, {}, 0.25);
    for (const auto& item : model->named_parameters()) {
      const bool of_encoder = item.key() != kTable && item.key().starts_with("model.latent.");
      const double moved = (item.value() - before[item.key()]).abs().max().item<double>();
      const double factor = item.key() == kTable ? s.table_factor
                            : of_encoder         ? 0.25 * s.encoder_factor
                                                 : 1;
      EXPECT_NEAR(moved, 0.01 * factor, 1e-4 * factor) << item.key();
    }
  }
  ops::use_kernels(true);
}

TEST(AdamW, DecaysMatricesAlone) {
  FreeTransformer model = tiny_model(tiny_config(3));
  std::map<std::string, Tensor> before;
  for (const auto& item : model->named_parameters()) before[item.key()] = item.value().clone();
  AdamW optimizer(model, settings(), at::kFloat);
  for (auto& item : model->named_parameters()) {
    if (item.key() != kTable) item.value().mutable_grad() = at::zeros_like(item.value());
  }
  optimizer.accumulate();
  optimizer.step(0.5);
  for (const auto& item : model->named_parameters()) {
    if (item.key() == kTable) continue;
    const double factor = item.value().dim() == 2 ? 1 - 0.5 * 0.1 : 1;
    EXPECT_LT(relative_error(item.value(), before[item.key()] * factor), 1e-6) << item.key();
  }
}

TEST(AdamW, ClipsByTheNormOfAllGradientsTogether) {
  FreeTransformer model = tiny_model(tiny_config(3));
  OptimizerSettings s = settings();
  s.clip_norm = 0.25;
  s.epsilon = 1.0;  // large, so that the size of a gradient shows in the update
  NaiveAdamW naive(model);
  AdamW optimizer(model, s, at::kFloat);
  const auto gradients = set_gradients(model, 0);
  double squares = 0;
  for (const auto& [name, gradient] : gradients) squares += gradient.square().sum().item<double>();
  optimizer.accumulate();
  EXPECT_NEAR(optimizer.gradient_norm(), std::sqrt(squares), 1e-4);
  optimizer.step(0.01);
  naive.step(gradients, s, 0.01, 0.25 / std::sqrt(squares));
  expect_masters_match(optimizer, naive, 1e-6);
}

TEST(AdamW, PassesAddUp) {
  FreeTransformer one = tiny_model(tiny_config(3)), two = tiny_model(tiny_config(3));
  AdamW at_once(one, settings(), at::kFloat), in_passes(two, settings(), at::kFloat);
  const auto a = set_gradients(two, 0);
  in_passes.accumulate();
  const auto b = set_gradients(two, 1);
  in_passes.accumulate();
  for (auto& item : one->named_parameters()) {
    const Tensor sum = (a.at(item.key()) + b.at(item.key())).to(at::kFloat);
    item.value().mutable_grad() = item.key() == kTable ? sum.to_sparse(1) : sum;
  }
  at_once.accumulate();
  EXPECT_NEAR(at_once.gradient_norm(), in_passes.gradient_norm(), 1e-4);
  at_once.step(0.01);
  in_passes.step(0.01);
  for (const auto& [name, master] : at_once.masters()) {
    EXPECT_LT(relative_error(in_passes.masters().at(name), master), 1e-6) << name;
  }
}

TEST(AdamW, KeepsFp32MastersOfABf16Model) {
  FreeTransformer model = tiny_model(tiny_config(3));
  const Tensor start = model->named_parameters()["model.norm.weight"].detach().clone();
  OptimizerSettings s = settings();
  AdamW optimizer(model, s, at::kBFloat16);
  EXPECT_EQ(model->named_parameters()[kTable].scalar_type(), at::kBFloat16);
  // Steps of 1e-4 on a weight of 1 vanish in bf16, whose next number is 1.0078; masters add up.
  for (int step = 0; step < 100; ++step) {
    for (auto& item : model->named_parameters()) {
      if (item.key() != kTable) item.value().mutable_grad() = at::ones_like(item.value());
    }
    optimizer.accumulate();
    optimizer.step(1e-4);
  }
  const Tensor master = optimizer.masters().at("model.norm.weight");
  EXPECT_EQ(master.scalar_type(), at::kFloat);
  EXPECT_LT((start - master - 0.01).abs().max().item<double>(), 1e-4);
  for (const auto& item : model->named_parameters()) {
    expect_identical(item.value(), optimizer.masters().at(item.key()).to(at::kBFloat16));
  }
}

TEST(AdamW, ARestoredStateGoesOnTheSame) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    FreeTransformer a = tiny_model(tiny_config(3)), b = tiny_model(tiny_config(3), 77);
    AdamW first(a, settings(), dtype), second(b, settings(), dtype);
    for (int step = 0; step < 3; ++step) {
      set_gradients(a, step);
      first.accumulate();
      first.step(0.01);
    }
    const torch::NoGradGuard no_grad;
    for (auto& [name, master] : second.masters()) Tensor(master).copy_(first.masters().at(name));
    second.refresh_model();
    std::map<std::string, Tensor> copies;
    for (const auto& [name, tensor] : first.state()) copies[name] = tensor.clone();
    second.load_state(copies, "test");
    set_gradients(a, 3);
    set_gradients(b, 3);
    first.accumulate();
    second.accumulate();
    first.step(0.01);
    second.step(0.01);
    for (const auto& [name, master] : first.masters()) {
      expect_identical(master, second.masters().at(name));
    }
    for (const auto& item : a->named_parameters()) {
      expect_identical(item.value(), b->named_parameters()[item.key()]);
    }
  }
}

TEST(AdamW, RefusesAStateOfAnotherModel) {
  FreeTransformer model = tiny_model(tiny_config(3));
  AdamW optimizer(model, settings(), at::kFloat);
  auto state = optimizer.state();
  auto missing = state;
  missing.erase(missing.begin());
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "x: has no tensor",
                          optimizer.load_state(missing, "x"));
  auto shaped = state;
  shaped["m.model.norm.weight"] = at::zeros({5});
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "'m.model.norm.weight' has shape [5]",
                          optimizer.load_state(shaped, "x"));
  state["extra"] = at::zeros({1});
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "unexpected tensor 'extra'",
                          optimizer.load_state(state, "x"));
}

}  // namespace
}  // namespace freeformer
