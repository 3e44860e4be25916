#include "ops/layers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor_matchers.h"

namespace freeformer::ops {
namespace {

TEST(RmsNorm, DividesByTheRootMeanSquare) {
  const Tensor x = random_tensor({2, 3, 5}, 1, at::kDouble), w = random_tensor({5}, 2, at::kDouble);
  const Tensor out = rms_norm(x, w, 1e-5);
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t t = 0; t < 3; ++t) {
      double sum = 0;
      for (int64_t d = 0; d < 5; ++d) sum += std::pow(x[b][t][d].item<double>(), 2);
      for (int64_t d = 0; d < 5; ++d) {
        EXPECT_NEAR(out[b][t][d].item<double>(),
                    x[b][t][d].item<double>() / std::sqrt(sum / 5 + 1e-5) * w[d].item<double>(),
                    1e-12);
      }
    }
  }
}

TEST(RmsNorm, KeepsTheInputsDtypeButComputesWide) {
  // In bf16 the square of 1e-20 underflows to a denormal; wide it does not.
  const Tensor x = at::full({1, 8}, 1e-15f).to(at::kBFloat16);
  const Tensor out = rms_norm(x, at::ones({8}, at::kBFloat16), 1e-36);
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
  EXPECT_NEAR(out[0][0].item<float>(), 1.0f, 0.01f);
}

TEST(RmsNorm, GradientMatchesFiniteDifferences) {
  expect_gradients_match_finite_differences(
      [](const auto& in) { return rms_norm(in[0], in[1], 1e-5); },
      {random_tensor({2, 3, 5}, 1, at::kDouble), random_tensor({5}, 2, at::kDouble)});
}

TEST(Rope, RotatesPairsHalfAHeadApart) {
  const Tensor x = random_tensor({1, 4, 2, 6}, 1, at::kDouble);
  const RotaryTable table =
      rotary_table(at::arange(4, at::kLong).unsqueeze(0), 6, 100.0, at::kDouble);
  const Tensor out = rope(x, table);
  for (int64_t t = 0; t < 4; ++t) {
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t i = 0; i < 3; ++i) {
        const double angle = double(t) * std::pow(100.0, -2.0 * double(i) / 6.0);
        const double a = x[0][t][n][i].item<double>(), b = x[0][t][n][i + 3].item<double>();
        EXPECT_NEAR(out[0][t][n][i].item<double>(), a * std::cos(angle) - b * std::sin(angle),
                    1e-12);
        EXPECT_NEAR(out[0][t][n][i + 3].item<double>(), b * std::cos(angle) + a * std::sin(angle),
                    1e-12);
      }
    }
  }
}

TEST(Rope, ScoresDependOnDistanceAlone) {
  const Tensor q = random_tensor({1, 1, 1, 8}, 1).expand({1, 2, 1, 8});
  const auto score = [&](int64_t a, int64_t b) {
    const Tensor turned =
        rope(q, rotary_table(at::tensor({a, b}, at::kLong).view({1, 2}), 8, 10000.0, at::kFloat));
    return (turned[0][0] * turned[0][1]).sum().item<float>();
  };
  EXPECT_NEAR(score(3, 10), score(1003, 1010), 1e-4);
  EXPECT_GT(std::abs(score(3, 10) - score(3, 11)), 1e-3);
}

TEST(Rope, AnglesStayAccurateFarOut) {
  const RotaryTable table =
      rotary_table(at::tensor({1'000'003}, at::kLong).view({1, 1}), 4, 10000.0, at::kFloat);
  EXPECT_NEAR(table.cos_BTH2[0][0][0].item<float>(), std::cos(1'000'003.0), 1e-6);
}

TEST(Rope, GradientMatchesFiniteDifferences) {
  const RotaryTable table =
      rotary_table(at::arange(3, at::kLong).unsqueeze(0), 4, 10.0, at::kDouble);
  expect_gradients_match_finite_differences([&](const auto& in) { return rope(in[0], table); },
                                            {random_tensor({2, 3, 2, 4}, 1, at::kDouble)});
}

// Loops, exactly as attention is defined.
Tensor naive_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                       const AttentionScope& scope) {
  const int64_t B = q.size(0), T = q.size(1), N = q.size(2), H = q.size(3);
  const int64_t S = k.size(1), group = N / k.size(2);
  Tensor out = at::zeros_like(q);
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t t = 0; t < T; ++t) {
      for (int64_t n = 0; n < N; ++n) {
        std::vector<double> weights;
        double sum = 0;
        for (int64_t s = 0; s < S; ++s) {
          const bool visible = (!scope.causal || s <= t + S - T) &&
                               (!scope.documents_BT.defined() ||
                                scope.documents_BT[b][t].equal(scope.documents_BT[b][s]));
          const double score =
              (q[b][t][n] * k[b][s][n / group]).sum().item<double>() / std::sqrt(double(H));
          weights.push_back(visible ? std::exp(score) : 0.0);
          sum += weights.back();
        }
        for (int64_t s = 0; s < S; ++s) {
          out[b][t][n] += v[b][s][n / group] * (weights[size_t(s)] / sum);
        }
      }
    }
  }
  return out;
}

struct AttentionCase {
  const char* name;
  bool causal, documents;
  int64_t heads, kv_heads, T, S;
};

class AttentionMatches : public testing::TestWithParam<AttentionCase> {
 protected:
  static AttentionScope scope(const AttentionCase& c) {
    AttentionScope scope{c.causal, {}};
    if (c.documents) {
      scope.documents_BT = at::tensor({0, 0, 1, 1, 1, 0, 1, 2, 3, 3}, at::kLong).view({2, 5});
    }
    return scope;
  }
};

TEST_P(AttentionMatches, TheDefinition) {
  const AttentionCase& c = GetParam();
  const Tensor q = random_tensor({2, c.T, c.heads, 6}, 1, at::kDouble);
  const Tensor k = random_tensor({2, c.S, c.kv_heads, 6}, 2, at::kDouble);
  const Tensor v = random_tensor({2, c.S, c.kv_heads, 6}, 3, at::kDouble);
  const Tensor expected = naive_attention(q, k, v, scope(c));
  EXPECT_LT(relative_error(attention(q, k, v, scope(c)), expected), 1e-12);
  const Tensor in_fp32 = attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), scope(c));
  EXPECT_LT(relative_error(in_fp32, expected), 1e-6);
}

TEST_P(AttentionMatches, FiniteDifferences) {
  const AttentionCase& c = GetParam();
  expect_gradients_match_finite_differences(
      [&](const auto& in) { return attention(in[0], in[1], in[2], scope(c)); },
      {random_tensor({2, c.T, c.heads, 4}, 1, at::kDouble),
       random_tensor({2, c.S, c.kv_heads, 4}, 2, at::kDouble),
       random_tensor({2, c.S, c.kv_heads, 4}, 3, at::kDouble)});
}

INSTANTIATE_TEST_SUITE_P(Kinds, AttentionMatches,
                         testing::Values(AttentionCase{"causal", true, false, 2, 2, 5, 5},
                                         AttentionCase{"full", false, false, 2, 2, 5, 5},
                                         AttentionCase{"grouped", true, false, 4, 2, 5, 5},
                                         AttentionCase{"documents", true, true, 2, 1, 5, 5},
                                         AttentionCase{"full_documents", false, true, 2, 1, 5, 5},
                                         AttentionCase{"cached", true, false, 2, 2, 2, 5},
                                         AttentionCase{"one_token", true, false, 2, 2, 1, 4}),
                         [](const auto& kind) { return kind.param.name; });

TEST(Layers, NothingInIsNothingOut) {
  const Tensor q = at::zeros({1, 0, 2, 4}).requires_grad_(), kv = at::zeros({1, 0, 1, 4});
  const Tensor out = attention(q, kv, kv, {});
  EXPECT_EQ(out.numel(), 0);
  out.sum().backward();
  EXPECT_EQ(q.grad().numel(), 0);
  EXPECT_EQ(ops::linear(at::zeros({0, 3}), at::zeros({2, 3})).size(0), 0);
  EXPECT_ANY_THROW(ops::linear(at::zeros({2, 0}), at::zeros({3, 0}))) << "a width of nothing";
}

TEST(Embedding, TakesIndicesOfEitherWidth) {
  const Tensor table = at::randn({5, 3}).requires_grad_();
  for (const auto dtype : {at::kInt, at::kLong}) {
    table.mutable_grad() = Tensor();
    ops::embedding(at::tensor({1, 4, 1}, at::kLong).view({1, 3}).to(dtype), table).sum().backward();
    EXPECT_EQ(table.grad()[1][0].item<float>(), 2);
    EXPECT_EQ(table.grad()[0][0].item<float>(), 0);
  }
}

TEST(SwiGlu, IsSiluOfTheGateTimesUp) {
  const Tensor out = swiglu(at::tensor({2.0f, -1.0f}), at::tensor({3.0f, 4.0f}));
  EXPECT_NEAR(out[0].item<float>(), 2 / (1 + std::exp(-2.0)) * 3, 1e-6);
  EXPECT_NEAR(out[1].item<float>(), -1 / (1 + std::exp(1.0)) * 4, 1e-6);
}

TEST(LinearCrossEntropy, IsMinusTheLogOfTheTargetsShare) {
  const Tensor x = random_tensor({3, 4}, 1, at::kDouble), w = random_tensor({7, 4}, 2, at::kDouble);
  const Tensor targets = at::tensor({6, int(kIgnoredTarget), 0}, at::kLong);
  const Tensor nll = linear_cross_entropy(x, w, targets);
  const Tensor p = at::softmax(at::matmul(x, w.t()), -1);
  EXPECT_NEAR(nll[0].item<double>(), -std::log(p[0][6].item<double>()), 1e-12);
  EXPECT_EQ(nll[1].item<double>(), 0.0);
  EXPECT_NEAR(nll[2].item<double>(), -std::log(p[2][0].item<double>()), 1e-12);
  expect_gradients_match_finite_differences(
      [&](const auto& in) { return linear_cross_entropy(in[0], in[1], targets); }, {x, w});
}

TEST(DocumentLayout, PositionsRestartInEveryDocumentAndAReturningIdIsANewOne) {
  const Tensor documents = at::tensor({4, 4, 4, 7, 7, 4, 0, 0, 0, 0, 0, 0}, at::kLong).view({2, 6});
  const DocumentLayout layout = document_layout(documents);
  expect_identical(layout.positions_BT,
                   at::tensor({0, 1, 2, 0, 1, 0, 0, 1, 2, 3, 4, 5}, at::kLong).view({2, 6}));
  expect_identical(layout.runs_BT,
                   at::tensor({0, 0, 0, 1, 1, 2, 0, 0, 0, 0, 0, 0}, at::kLong).view({2, 6}));
  EXPECT_EQ(document_layout(at::empty({2, 0}, at::kLong)).runs_BT.numel(), 0);
}

}  // namespace
}  // namespace freeformer::ops
