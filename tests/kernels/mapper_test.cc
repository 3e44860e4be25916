// The mapper's kernels against the dense oracle of reference.h.
#include "kernels/mapper.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "core/shape.h"
#include "isa_test.h"
#include "kernels/parallel.h"
#include "kernels/reference.h"
#include "random_values.h"

namespace freeformer::kernels {
namespace {

reference::Vector wide(const std::vector<float>& values) { return {values.begin(), values.end()}; }

double relative_error(const std::vector<float>& found, const reference::Vector& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    difference += (found[i] - expected[i]) * (found[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}

// Rounds to bf16 and back, so that the oracle sees what the kernel sees.
std::vector<BFloat16> narrowed(std::vector<float>& values) {
  std::vector<BFloat16> result;
  for (float& value : values) {
    result.push_back(to_bfloat16(value));
    value = to_float(result.back());
  }
  return result;
}

struct Case {
  int64_t M, D;
  int Z;
  float logit_scale;
};

struct Inputs {
  explicit Inputs(const Case& c)
      : logits(random_floats(c.M * c.Z, c.logit_scale, 1)),
        table(random_floats(code_count(c.Z) * c.D, 1, 2)),
        grad(random_floats(c.M * c.D, 1, 3)) {}
  std::vector<float> logits, table, grad;
};

class Mapper : public IsaTest {};

TEST_P(Mapper, LogitGradientMatchesTheDenseOracleFromFlatToSaturated) {
  for (int Z = 1; Z <= 10; ++Z) {
    for (const float scale : {0.0f, 0.1f, 1.0f, 5.0f, 30.0f}) {
      const Case c{19, 24, Z, scale};
      const Inputs in(c);
      std::vector<float> found(in.logits.size(), NAN);
      mapper_backward_logits(in.logits.data(), in.table.data(), in.grad.data(), c.M, c.D, Z,
                             found.data());
      const auto expected = reference::mapper_backward_logits(wide(in.logits), wide(in.table),
                                                              wide(in.grad), c.M, c.D, Z);
      EXPECT_LT(relative_error(found, expected), 1e-5) << Z << " bits, logits to " << scale;
    }
  }
}

TEST_P(Mapper, EveryTokensGradientIsAccurateEvenWhereAllItsBitsAreSaturated) {
  // Alone, no larger gradient of another token hides the error.
  const Case c{1, 16, 6, 30.0f};
  Inputs in(c);
  for (float& logit : in.logits) logit = logit < 0 ? -30.0f : 30.0f;
  std::vector<float> found(in.logits.size(), NAN);
  mapper_backward_logits(in.logits.data(), in.table.data(), in.grad.data(), c.M, c.D, c.Z,
                         found.data());
  const auto expected = reference::mapper_backward_logits(wide(in.logits), wide(in.table),
                                                          wide(in.grad), c.M, c.D, c.Z);
  EXPECT_GT(std::abs(expected[0]), 0);
  EXPECT_LT(relative_error(found, expected), 1e-5);
}

TEST_P(Mapper, LogitGradientMatchesForAnyDimensionInBothTypes) {
  // Around a block of the product (512), sizes that divide by nothing, more tokens than a chunk,
  // more codes than a tile.
  for (const Case& c : {Case{33, 40, 8, 2.0f}, Case{131, 1030, 3, 2.0f}, Case{131, 513, 10, 2.0f},
                        Case{131, 7, 12, 3.0f}, Case{7, 1, 1, 2.0f}}) {
    const std::string name = std::to_string(c.M) + " tokens of " + std::to_string(c.D) + ", " +
                             std::to_string(c.Z) + " bits";
    Inputs in(c);
    std::vector<float> found(in.logits.size(), NAN);
    mapper_backward_logits(in.logits.data(), in.table.data(), in.grad.data(), c.M, c.D, c.Z,
                           found.data());
    const auto in_fp32 = reference::mapper_backward_logits(wide(in.logits), wide(in.table),
                                                           wide(in.grad), c.M, c.D, c.Z);
    EXPECT_LT(relative_error(found, in_fp32), 1e-5) << name << " in fp32";
    const auto table = narrowed(in.table), grad = narrowed(in.grad);
    mapper_backward_logits(in.logits.data(), table.data(), grad.data(), c.M, c.D, c.Z,
                           found.data());
    const auto in_bf16 = reference::mapper_backward_logits(wide(in.logits), wide(in.table),
                                                           wide(in.grad), c.M, c.D, c.Z);
    EXPECT_LT(relative_error(found, in_bf16), 1e-5) << name << " in bf16";
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Mapper, testing::ValuesIn(supported_isas()), isa_name);

TEST(Mapper, GradientsAreTheSameForAnyNumberOfThreads) {
  for (const int64_t M : {100, 700}) {  // less and more than a chunk
    const Case c{M, 25, 11, 2.0f};
    Inputs in(c);
    const auto codes = random_codes(c.M, 50, 5);
    const auto table16 = narrowed(in.table), grad16 = narrowed(in.grad);
    const int before = thread_count();
    std::vector<std::vector<float>> logit_gradients, bf16_gradients, table_gradients;
    for (const int threads : {1, 2, 5}) {
      set_thread_count(threads);
      std::vector<float> d_logits(in.logits.size());
      mapper_backward_logits(in.logits.data(), in.table.data(), in.grad.data(), c.M, c.D, c.Z,
                             d_logits.data());
      logit_gradients.push_back(d_logits);
      mapper_backward_logits(in.logits.data(), table16.data(), grad16.data(), c.M, c.D, c.Z,
                             d_logits.data());
      bf16_gradients.push_back(d_logits);
      std::vector<int64_t> rows(codes.size());
      std::vector<float> values(in.grad.size(), 0.0f);
      mapper_backward_table(codes.data(), in.grad.data(), c.M, c.D, rows.data(), values.data());
      table_gradients.push_back(values);
    }
    set_thread_count(before);
    for (const size_t i : {1, 2}) {
      EXPECT_EQ(logit_gradients[0], logit_gradients[i]);
      EXPECT_EQ(bf16_gradients[0], bf16_gradients[i]);
      EXPECT_EQ(table_gradients[0], table_gradients[i]);
    }
  }
}

TEST(Mapper, WorkspaceStaysSmallWhateverTheNumberOfTokens) {
  // tokens x codes in fp32 would be 1 GiB here.
  const Case c{65536, 8, 12, 1.0f};
  const Inputs in(c);
  std::vector<float> found(in.logits.size());
  const int64_t bytes = mapper_backward_logits(in.logits.data(), in.table.data(), in.grad.data(),
                                               c.M, c.D, c.Z, found.data());
  EXPECT_LT(bytes, int64_t{64} << 20);
}

TEST(Mapper, NoTokensAreNoWork) {
  std::vector<float> table(2);
  EXPECT_EQ(mapper_backward_logits(nullptr, table.data(), nullptr, 0, 1, 1, nullptr), 0);
  EXPECT_EQ(mapper_backward_table(nullptr, static_cast<const float*>(nullptr), 0, 1, nullptr,
                                  static_cast<float*>(nullptr)),
            0);
}

TEST(Mapper, ForwardLooksRowsUp) {
  constexpr int64_t M = 150, D = 9, C = 32;
  auto table = random_floats(C * D, 1, 1);
  const auto table16 = narrowed(table);
  const auto codes = random_codes(M, C, 2);
  std::vector<float> out(M * D);
  std::vector<BFloat16> out16(M * D);
  mapper_forward(table.data(), codes.data(), M, D, out.data());
  mapper_forward(table16.data(), codes.data(), M, D, out16.data());
  for (int64_t m = 0; m < M; ++m) {
    for (int64_t d = 0; d < D; ++d) {
      ASSERT_EQ(out[size_t(m * D + d)], table[size_t(codes[size_t(m)] * D + d)]);
      ASSERT_EQ(to_float(out16[size_t(m * D + d)]), out[size_t(m * D + d)]);
    }
  }
}

TEST(Mapper, TableGradientHasOneRowPerDistinctCode) {
  constexpr int64_t M = 200, D = 11, C = 64;
  auto grad = random_floats(M * D, 1, 1);
  const auto grad16 = narrowed(grad);
  const auto codes = random_codes(M, C / 2, 2);
  const auto expected = reference::mapper_backward_table(codes, wide(grad), C, D);
  std::vector<int64_t> rows(M), rows16(M);
  std::vector<float> values(M * D), dense(C * D, 0.0f), dense16 = dense;
  std::vector<BFloat16> values16(M * D);
  const int64_t count =
      mapper_backward_table(codes.data(), grad.data(), M, D, rows.data(), values.data());
  EXPECT_EQ(count, mapper_backward_table(codes.data(), grad16.data(), M, D, rows16.data(),
                                         values16.data()));
  EXPECT_EQ(std::set<int64_t>(codes.begin(), codes.end()).size(), size_t(count));
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.begin() + count));
  for (int64_t row = 0; row < count; ++row) {
    for (int64_t d = 0; d < D; ++d) {
      dense[size_t(rows[size_t(row)] * D + d)] = values[size_t(row * D + d)];
      dense16[size_t(rows16[size_t(row)] * D + d)] = to_float(values16[size_t(row * D + d)]);
    }
  }
  EXPECT_LT(relative_error(dense, expected), 1e-6);
  EXPECT_LT(relative_error(dense16, expected), 4e-3);  // sums in fp32, rounded once
}

}  // namespace
}  // namespace freeformer::kernels
