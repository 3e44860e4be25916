// Every operation of layers.h through our kernels against LibTorch's own operations: the same value
// and the same gradients.
#include "ops/fused.h"

#include <gtest/gtest.h>

#include <fmt/core.h>

#include <functional>

#include "expect_error.h"
#include "ops/layers.h"
#include "tensor_matchers.h"

namespace freeformer::ops {
namespace {

class WithoutKernels {
 public:
  WithoutKernels() { use_kernels(false); }
  ~WithoutKernels() { use_kernels(true); }
};

bool is_fused(const Tensor& tensor) {
  return tensor.grad_fn() != nullptr && tensor.grad_fn()->name().find("fused") != std::string::npos;
}

using Tensors = std::vector<Tensor>;

struct Operation {
  const char* name;
  std::function<Tensor(const Tensors&)> apply;
  std::vector<std::vector<int64_t>> shapes;  // of its inputs

  Tensors inputs(at::ScalarType dtype) const {
    Tensors result;
    for (const auto& shape : shapes) {
      result.push_back(random_tensor(shape, result.size() + 1, dtype));
    }
    return result;
  }
};

Tensor ids(const std::vector<int64_t>& values, at::IntArrayRef shape) {
  return at::tensor(values, at::kLong).view(shape);
}

// 40 targets below 23, some ignored.
Tensor some_targets() {
  std::vector<int64_t> targets;
  for (int64_t m = 0; m < 40; ++m) targets.push_back(m % 6 == 2 ? kIgnoredTarget : m * 7 % 23);
  return ids(targets, {40});
}

Operation attention_operation(const char* name, bool causal, bool documents, int64_t T, int64_t S) {
  AttentionScope scope{causal, {}};
  if (documents) {  // [2, T]: of 20 positions, and of 1, 2, 3, …
    const Tensor t = at::arange(T, at::kLong);
    scope.documents_BT = at::stack({t.div(20, "floor"), t.to(at::kDouble).sqrt().to(at::kLong)});
  }
  return {name,
          [scope](const Tensors& in) { return attention(in[0], in[1], in[2], scope); },
          {{2, T, 4, 6}, {2, S, 2, 6}, {2, S, 2, 6}}};
}

std::vector<Operation> operations() {
  const auto positions = ids({0, 1, 2, 3, 4, 0, 1, 0, 1, 2}, {2, 5});
  const auto rope_at = [](const Tensor& positions_BT) {
    return [=](const Tensors& in) {
      return rope(in[0], rotary_table(positions_BT, 10, 100.0, in[0].scalar_type()));
    };
  };
  return {
      {"linear",
       [](const Tensors& in) { return ops::linear(in[0], in[1]); },
       {{2, 9, 20}, {70, 20}}},
      {"linear_of_a_vector",
       [](const Tensors& in) { return ops::linear(in[0], in[1]); },
       {{8}, {3, 8}}},
      {"embedding",
       [](const Tensors& in) {
         return ops::embedding(ids({3, 0, 3, 10, 3, 9}, {2, 3}), in[0]);
       },
       {{11, 13}}},
      {"rms_norm",
       [](const Tensors& in) { return rms_norm(in[0], in[1], 1e-5); },
       {{3, 5, 37}, {37}}},
      {"rope", rope_at(positions), {{2, 5, 3, 10}}},
      {"rope_with_one_table", rope_at(positions.narrow(0, 0, 1)), {{2, 5, 3, 10}}},
      attention_operation("attention", true, false, 50, 50),
      attention_operation("attention_to_all", false, false, 50, 50),
      attention_operation("attention_in_documents", true, true, 50, 50),
      attention_operation("attention_to_all_of_a_document", false, true, 50, 50),
      attention_operation("attention_to_a_cache", true, false, 3, 50),
      {"swiglu", [](const Tensors& in) { return swiglu(in[0], in[1]); }, {{3, 41}, {3, 41}}},
      {"linear_cross_entropy",
       [](const Tensors& in) { return linear_cross_entropy(in[0], in[1], some_targets()); },
       {{40, 12}, {23, 12}}},
  };
}

struct Outcome {
  Tensor value;
  Tensors gradients;  // of Σ value · weights
};

Outcome run(const Operation& operation, const Tensors& inputs, const Tensor& weights = {}) {
  Tensors leaves;
  for (const Tensor& input : inputs) leaves.push_back(input.detach().clone().requires_grad_());
  const Tensor value = operation.apply(leaves);
  const Tensor factor = weights.defined() ? weights : random_tensor(value.sizes(), 99);
  (value * factor.to(value.scalar_type())).sum().backward();
  Outcome outcome{value.detach(), {}};
  for (const Tensor& leaf : leaves) outcome.gradients.push_back(leaf.grad());
  return outcome;
}

void expect_close(const Outcome& found, const Outcome& expected, double tolerance) {
  EXPECT_LT(relative_error(found.value, expected.value), tolerance) << "value";
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    EXPECT_LT(relative_error(found.gradients[i], expected.gradients[i]), tolerance)
        << "gradient " << i;
  }
}

Tensors in_double(const Tensors& tensors) {
  Tensors result;
  for (const Tensor& tensor : tensors) result.push_back(tensor.to(at::kDouble));
  return result;
}

class Fused : public testing::TestWithParam<Operation> {
 protected:
  const Operation& operation() const { return GetParam(); }
};

TEST_P(Fused, MatchesLibTorchInFp32) {
  const Tensors inputs = operation().inputs(at::kFloat);
  const Outcome found = run(operation(), inputs);
  expect_close(found, run(operation(), in_double(inputs)), 1e-6);
  const WithoutKernels guard;
  expect_close(found, run(operation(), inputs), 2e-6);
}

TEST_P(Fused, MatchesLibTorchInBf16) {
  const Tensors inputs = operation().inputs(at::kBFloat16);
  const Outcome found = run(operation(), inputs);
  EXPECT_EQ(found.gradients[0].scalar_type(), at::kBFloat16);
  const Outcome exact = run(operation(), in_double(inputs));
  expect_close(found, exact, 6e-3);
  const WithoutKernels guard;
  const Outcome aten = run(operation(), inputs);
  EXPECT_EQ(found.value.scalar_type(), aten.value.scalar_type());
  expect_close(found, aten, 1.5e-2);
}

TEST_P(Fused, IsWhatLayersPickInFp32AndBf16AndNotInFp64) {
  const auto picked = [&](at::ScalarType dtype) {
    Tensors leaves = operation().inputs(dtype);
    for (Tensor& leaf : leaves) leaf.requires_grad_();
    return is_fused(operation().apply(leaves));
  };
  EXPECT_TRUE(picked(at::kFloat));
  EXPECT_TRUE(picked(at::kBFloat16));
  EXPECT_FALSE(picked(at::kDouble));
  const WithoutKernels guard;
  EXPECT_FALSE(picked(at::kFloat));
}

// The same numbers in another order in memory, before the operation and behind it.
TEST_P(Fused, TakesViewsOfAnyStride) {
  const Tensors inputs = operation().inputs(at::kFloat);
  const Tensor weights = random_tensor(operation().apply(inputs).sizes(), 99);
  const Outcome expected = run(operation(), inputs, weights);
  Tensors leaves, views;
  for (const Tensor& input : inputs) {
    // [2, …, first dimension], of which one half is used.
    const Tensor turned = input.transpose(0, -1);
    leaves.push_back(at::stack({turned, turned.neg()}, -1).requires_grad_());
    views.push_back(leaves.back().select(-1, 0).transpose(0, -1));
    ASSERT_FALSE(views.back().is_contiguous());
  }
  const Tensor value = operation().apply(views);
  (value.transpose(0, -1) * weights.transpose(0, -1)).sum().backward();
  expect_identical(value, expected.value);
  for (size_t i = 0; i < leaves.size(); ++i) {
    expect_identical(leaves[i].grad().select(-1, 0).transpose(0, -1), expected.gradients[i]);
  }
}

TEST_P(Fused, TakesAnUpstreamGradientThatIsOneNumber) {
  const Tensors inputs = operation().inputs(at::kFloat);
  Tensors leaves;
  for (const Tensor& input : inputs) leaves.push_back(input.clone().requires_grad_());
  const Tensor value = operation().apply(leaves);
  value.mean().backward();  // an expanded scalar
  const Outcome expected = run(operation(), in_double(inputs),
                               at::full(value.sizes(), 1.0 / double(value.numel()), at::kDouble));
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_LT(relative_error(leaves[i].grad(), expected.gradients[i]), 1e-6) << i;
  }
}

TEST_P(Fused, ComputesTheGradientsThatAreAskedForAndNoOthers) {
  const Tensors inputs = operation().inputs(at::kFloat);
  const Outcome expected = run(operation(), inputs);
  for (size_t asked = 0; asked < inputs.size(); ++asked) {
    Tensors leaves;
    for (size_t i = 0; i < inputs.size(); ++i) {
      leaves.push_back(inputs[i].clone().requires_grad_(i == asked));
    }
    const Tensor value = operation().apply(leaves);
    (value * random_tensor(value.sizes(), 99)).sum().backward();
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(leaves[i].grad().defined(), i == asked) << i;
    }
    expect_identical(leaves[asked].grad(), expected.gradients[asked]);

    // All could have one; grad() is asked for one.
    Tensors all;
    for (const Tensor& input : inputs) all.push_back(input.clone().requires_grad_());
    const Tensor again = operation().apply(all);
    const auto gradients =
        torch::autograd::grad({(again * random_tensor(again.sizes(), 99)).sum()}, {all[asked]});
    expect_identical(gradients[0], expected.gradients[asked]);
  }
}

TEST_P(Fused, HasTheSameValueWithoutGradients) {
  Tensors leaves = operation().inputs(at::kFloat);
  const Tensor expected = operation().apply(leaves);  // nobody needs one
  EXPECT_FALSE(expected.requires_grad());
  for (Tensor& leaf : leaves) leaf.requires_grad_();
  expect_identical(operation().apply(leaves), expected);
  const torch::NoGradGuard no_grad;
  const Tensor value = operation().apply(leaves);
  EXPECT_FALSE(value.requires_grad());
  expect_identical(value, expected);
}

TEST_P(Fused, RefusesASecondDerivative) {
  Tensors leaves = operation().inputs(at::kFloat);
  for (Tensor& leaf : leaves) leaf.requires_grad_();
  const Tensor value = operation().apply(leaves);
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kUnsupported, "second derivative",
      torch::autograd::grad({value.square().sum()}, leaves, {}, /*retain_graph=*/true,
                            /*create_graph=*/true));
}

INSTANTIATE_TEST_SUITE_P(Operations, Fused, testing::ValuesIn(operations()),
                         [](const auto& operation) { return operation.param.name; });

// --- Attention's documents -----------------------------------------------------------------------

Tensor attention_with(const Tensor& documents_BT, bool kernels = true) {
  use_kernels(kernels);
  const Tensor q = random_tensor({1, 6, 2, 4}, 1).requires_grad_(),
               k = random_tensor({1, 6, 1, 4}, 2), v = random_tensor({1, 6, 1, 4}, 3);
  const Tensor out = attention(q, k, v, {/*causal=*/true, documents_BT});
  use_kernels(true);
  return out;
}

TEST(FusedAttention, LeavesDocumentsThatReturnToLibTorch) {
  const Tensor returning = ids({0, 0, 1, 1, 0, 0}, {1, 6});
  EXPECT_FALSE(is_fused(attention_with(returning)));
  expect_identical(attention_with(returning), attention_with(returning, false));
  // The last position sees the first document again: as runs it would be another number.
  const Tensor runs = attention_with(ids({0, 0, 1, 1, 2, 2}, {1, 6}));
  EXPECT_TRUE(is_fused(runs));
  EXPECT_GT(relative_error(attention_with(returning), runs), 1e-2);
}

TEST(FusedAttention, LeavesIdsOfAnotherTypeToLibTorch) {
  const Tensor documents = ids({0, 0, 1, 1, 2, 2}, {1, 6});
  const Tensor narrow = attention_with(documents.to(at::kInt));
  EXPECT_FALSE(is_fused(narrow));
  EXPECT_LT(relative_error(attention_with(documents), narrow), 1e-6);
}

TEST(FusedAttention, OneRowOfDocumentsServesAllSequences) {
  const Tensor q = random_tensor({3, 6, 2, 4}, 1), k = random_tensor({3, 6, 1, 4}, 2),
               v = random_tensor({3, 6, 1, 4}, 3);
  const AttentionScope scope{/*causal=*/false, ids({0, 0, 1, 1, 2, 2}, {1, 6})};
  const Tensor found = attention(q, k, v, scope);
  const WithoutKernels guard;
  EXPECT_LT(relative_error(found, attention(q, k, v, scope)), 1e-6);
}

// --- Cross-entropy -------------------------------------------------------------------------------

class FusedCrossEntropy : public testing::TestWithParam<at::ScalarType> {
 protected:
  static Operation with_targets(const Tensor& targets_M) {
    return {
        "", [=](const Tensors& in) { return linear_cross_entropy(in[0], in[1], targets_M); }, {}};
  }
  double tolerance() const { return GetParam() == at::kFloat ? 2e-6 : 8e-3; }
};

TEST_P(FusedCrossEntropy, IgnoredTargetsHaveNeitherLossNorGradient) {
  const Tensors inputs = {random_tensor({5, 7}, 1, GetParam()),
                          random_tensor({9, 7}, 2, GetParam())};
  const auto all = with_targets(at::full({5}, kIgnoredTarget, at::kLong));
  const Outcome found = run(all, inputs);
  expect_identical(found.value, at::zeros({5}));
  for (size_t i : {0, 1}) expect_identical(found.gradients[i], at::zeros_like(inputs[i]));

  const auto one = with_targets(ids({kIgnoredTarget, 8, kIgnoredTarget, 0, 3}, {5}));
  const Outcome some = run(one, inputs);
  EXPECT_EQ(some.value[0].item<float>(), 0);
  EXPECT_GT(some.value[1].item<float>(), 0);
  EXPECT_EQ(some.gradients[0][2].abs().max().item<float>(), 0);
  EXPECT_GT(some.gradients[0][3].abs().max().item<float>(), 0);
}

TEST_P(FusedCrossEntropy, UnequalWeightsFollowTheSameFormulaAsEqualOnes) {
  const Tensors inputs = {random_tensor({40, 12}, 1, GetParam()),
                          random_tensor({23, 12}, 2, GetParam())};
  const auto operation = with_targets(some_targets());
  const Tensor equal = at::full({40}, 0.3f);
  const Outcome expected = run(operation, inputs, equal);
  // What an ignored row is weighed by does not matter.
  Tensor with_ignored = equal.clone();
  with_ignored[2].fill_(1e6);
  const Outcome ignored = run(operation, inputs, with_ignored);
  for (size_t i : {0, 1}) expect_identical(ignored.gradients[i], expected.gradients[i]);
  // One weight that differs in its last bit: the products are made again.
  Tensor unequal = equal.clone();
  unequal[0].fill_(std::nextafter(0.3f, 1.0f));
  expect_close(run(operation, inputs, unequal), expected, tolerance());
}

TEST_P(FusedCrossEntropy, GradientsAreLinearInTheWeights) {
  const Tensors inputs = {random_tensor({40, 12}, 1, GetParam()),
                          random_tensor({23, 12}, 2, GetParam())};
  const auto operation = with_targets(some_targets());
  const Tensor weights = random_tensor({40}, 5);
  const Outcome found = run(operation, inputs, weights);
  expect_close(found, run(operation, in_double(inputs), weights), tolerance());
}

TEST_P(FusedCrossEntropy, GoesThroughMoreRowsThanItHasLogitsFor) {
  constexpr int64_t M = 2100, V = 11, D = 5;  // blocks of 1024 rows
  const Tensors inputs = {random_tensor({M, D}, 1, GetParam()),
                          random_tensor({V, D}, 2, GetParam())};
  Tensor targets = at::arange(M, at::kLong).remainder(V);
  targets[1023].fill_(kIgnoredTarget);
  targets[1024].fill_(kIgnoredTarget);
  const auto operation = with_targets(targets);
  for (const Tensor& weights : {at::full({M}, 1.0f / M), random_tensor({M}, 5)}) {
    expect_close(run(operation, inputs, weights), run(operation, in_double(inputs), weights),
                 tolerance());
  }
  const torch::NoGradGuard no_grad;
  EXPECT_LT(relative_error(operation.apply(inputs), operation.apply(in_double(inputs))), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Types, FusedCrossEntropy, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& type) { return std::string(toString(type.param)); });

TEST(FusedCrossEntropy, OfNoRowsIsEmptyAndTheWeightsGradientZero) {
  Tensor x = at::empty({0, 4}).requires_grad_(), weight = random_tensor({3, 4}, 1).requires_grad_();
  const Tensor nll = linear_cross_entropy(x, weight, at::empty({0}, at::kLong));
  EXPECT_EQ(nll.numel(), 0);
  nll.sum().backward();
  expect_identical(weight.grad(), at::zeros({3, 4}));
}

TEST(FusedCrossEntropy, RefusesATargetBeyondTheVocabulary) {
  const Tensor x = random_tensor({2, 4}, 1), weight = random_tensor({3, 4}, 2);
  EXPECT_THROW(linear_cross_entropy(x, weight, ids({0, 3}, {2})), std::exception);
  EXPECT_THROW(linear_cross_entropy(x, weight, ids({0, -1}, {2})), std::exception);
}

// The gradients of the forward pass are scaled in place: what a second backward pass would find
// there is not what it needs.
TEST(FusedCrossEntropy, ASecondBackwardPassIsRightOrRefused) {
  Tensor x = random_tensor({4, 3}, 1).requires_grad_(),
         weight = random_tensor({5, 3}, 2).requires_grad_();
  const Tensor loss = 0.5 * linear_cross_entropy(x, weight, ids({0, 1, 2, 3}, {4})).mean();
  loss.backward({}, /*retain_graph=*/true);
  const Tensor once = x.grad().clone();
  try {
    loss.backward();
  } catch (const std::exception&) {
    return;
  }
  EXPECT_LT(relative_error(x.grad(), 2 * once), 1e-6);
}

// --- Bad input -----------------------------------------------------------------------------------

TEST(FusedShapes, ThatDoNotFitAreRefused) {
  const auto x = [](at::IntArrayRef shape) { return random_tensor(shape, 1); };
  EXPECT_THROW(ops::linear(x({2, 3, 5}), x({7, 6})), std::exception);
  EXPECT_THROW(rms_norm(x({2, 5}), x({4}), 1e-5), std::exception);
  EXPECT_THROW(swiglu(x({2, 5}), x({2, 4})), std::exception);
  EXPECT_THROW(linear_cross_entropy(x({2, 5}), x({7, 4}), ids({0, 1}, {2})), std::exception);
  EXPECT_THROW(linear_cross_entropy(x({3, 5}), x({7, 5}), ids({0, 1}, {2})), std::exception);
  EXPECT_THROW(ops::embedding(ids({0, 9}, {1, 2}), x({9, 4})), std::exception);
  EXPECT_THROW(attention(x({1, 4, 2, 8}), x({1, 4, 2, 6}), x({1, 4, 2, 6}), {}), std::exception);
  EXPECT_THROW(attention(x({1, 4, 2, 8}), x({1, 4, 2, 8}), x({1, 3, 2, 8}), {}), std::exception);
  EXPECT_THROW(attention(x({2, 4, 2, 8}), x({1, 4, 2, 8}), x({1, 4, 2, 8}), {}), std::exception);
}

}  // namespace
}  // namespace freeformer::ops
