// Comparisons of tensors, and gradients against finite differences.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "ops/torch.h"

namespace freeformer {

// |found - expected| / |expected|, in fp64.
inline double relative_error(const Tensor& found, const Tensor& expected) {
  const Tensor a = (found.is_sparse() ? found.to_dense() : found).detach().to(at::kDouble);
  const Tensor b = expected.detach().to(at::kDouble);
  EXPECT_EQ(a.sizes(), b.sizes());
  return ((a - b).norm() / b.norm()).item<double>();
}

inline void expect_identical(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_TRUE(at::equal(a, b)) << "largest difference " << (a - b).abs().max();
}

inline Tensor random_tensor(at::IntArrayRef shape, uint64_t seed,
                            at::ScalarType dtype = at::kFloat) {
  // Drawn in fp64: the same numbers for every dtype, rounded.
  return at::randn(shape, at::detail::createCPUGenerator(seed), at::kDouble).to(dtype);
}

// The gradient of Σ f(inputs) · weights by every element of every input, against central
// differences. Inputs are fp64 leaves.
inline void expect_gradients_match_finite_differences(
    const std::function<Tensor(const std::vector<Tensor>&)>& f, std::vector<Tensor> inputs,
    double tolerance = 1e-6) {
  for (Tensor& input : inputs) {
    ASSERT_EQ(input.scalar_type(), at::kDouble);
    input = input.detach().clone().requires_grad_();
  }
  const Tensor out = f(inputs);
  const Tensor weights = random_tensor(out.sizes(), 99, at::kDouble);
  (out * weights).sum().backward();
  const torch::NoGradGuard no_grad;
  constexpr double kStep = 1e-5;
  for (size_t k = 0; k < inputs.size(); ++k) {
    Tensor numeric = at::empty_like(inputs[k]);
    Tensor flat = inputs[k].view(-1), numeric_flat = numeric.view(-1);
    for (int64_t i = 0; i < flat.size(0); ++i) {
      const double before = flat[i].item<double>();
      flat[i].fill_(before + kStep);
      const double up = (f(inputs) * weights).sum().item<double>();
      flat[i].fill_(before - kStep);
      const double down = (f(inputs) * weights).sum().item<double>();
      flat[i].fill_(before);
      numeric_flat[i].fill_((up - down) / (2 * kStep));
    }
    EXPECT_LT(relative_error(inputs[k].grad(), numeric), tolerance) << "input " << k;
  }
}

}  // namespace freeformer
