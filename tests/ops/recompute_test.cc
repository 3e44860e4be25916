#include "ops/recompute.h"

#include "tensor_matchers.h"

namespace freeformer::ops {
namespace {

TEST(Recompute, GivesTheSameValueAndTheSameGradients) {
  Tensor w = random_tensor({5, 5}, 1, at::kDouble).requires_grad_();
  const auto f = [&](const std::vector<Tensor>& in) {
    return at::matmul(in[0], w).tanh() * in[1].sigmoid();
  };
  Tensor x = random_tensor({3, 5}, 2, at::kDouble).requires_grad_();
  Tensor y = random_tensor({3, 5}, 3, at::kDouble).requires_grad_();
  const Tensor weights = random_tensor({3, 5}, 4, at::kDouble);
  const Tensor kept = f({x, y});
  (kept * weights).sum().backward();
  const std::vector<Tensor> expected = {w.grad().clone(), x.grad().clone(), y.grad().clone()};
  for (Tensor* leaf : {&w, &x, &y}) leaf->mutable_grad().reset();

  int calls = 0;
  const Tensor again = recompute(
      [&](const std::vector<Tensor>& in) {
        ++calls;
        return f(in);
      },
      {x, y});
  EXPECT_EQ(calls, 1);
  expect_identical(again, kept);
  (again * weights).sum().backward();
  EXPECT_EQ(calls, 2);
  expect_identical(w.grad(), expected[0]);
  expect_identical(x.grad(), expected[1]);
  expect_identical(y.grad(), expected[2]);
}

TEST(Recompute, LeavesInputsWithoutGradientAlone) {
  Tensor w = random_tensor({4, 4}, 1).requires_grad_();
  const Tensor x = random_tensor({2, 4}, 2).requires_grad_();
  const Tensor mask = random_tensor({2, 4}, 3);
  recompute([&](const std::vector<Tensor>& in) { return at::matmul(in[0], w) * in[1]; }, {x, mask})
      .sum()
      .backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_TRUE(w.grad().defined());
  EXPECT_FALSE(mask.grad().defined());
}

}  // namespace
}  // namespace freeformer::ops
