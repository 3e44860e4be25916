#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <fmt/core.h>

#include <cmath>

#include "core/bfloat16.h"
#include "kernels/parallel.h"
#include "kernels/reference.h"
#include "random_values.h"

namespace freeformer::kernels {
namespace {

struct Shape {
  int64_t M, N, K;
};

class Gemm : public testing::TestWithParam<Shape> {};

TEST_P(Gemm, MatchesTheReferenceInFp32) {
  const auto [M, N, K] = GetParam();
  const auto a = random_floats(M * K, 1, 1), b = random_floats(N * K, 1, 2);
  std::vector<float> c(size_t(M * N), NAN);
  GemmTile({.M = M, .N = N, .K = K, .transpose_b = true, .in = GemmType::kF32})
      .run(a.data(), b.data(), c.data());
  const auto expected = reference::gemm_nt({a.begin(), a.end()}, {b.begin(), b.end()}, M, N, K);
  for (size_t i = 0; i < c.size(); ++i) EXPECT_NEAR(c[i], expected[i], 1e-5 * std::sqrt(K)) << i;
}

TEST_P(Gemm, MatchesTheReferenceInBf16) {
  const auto [M, N, K] = GetParam();
  std::vector<BFloat16> a, b;
  reference::Vector wide_a, wide_b;
  for (const float x : random_floats(M * K, 1, 1)) a.push_back(to_bfloat16(x));
  for (const float x : random_floats(N * K, 1, 2)) b.push_back(to_bfloat16(x));
  for (const BFloat16 x : a) wide_a.push_back(to_float(x));
  for (const BFloat16 x : b) wide_b.push_back(to_float(x));
  std::vector<float> c(size_t(M * N), NAN);
  GemmTile({.M = M, .N = N, .K = K, .transpose_b = true, .in = GemmType::kBF16})
      .run(a.data(), b.data(), c.data());
  const auto expected = reference::gemm_nt(wide_a, wide_b, M, N, K);
  for (size_t i = 0; i < c.size(); ++i) EXPECT_NEAR(c[i], expected[i], 1e-5 * std::sqrt(K)) << i;
}

INSTANTIATE_TEST_SUITE_P(Shapes, Gemm,
                         testing::Values(Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{16, 16, 16},
                                         Shape{17, 33, 65}, Shape{128, 100, 31}),
                         [](const auto& shape) {
                           return fmt::format("{}x{}x{}", shape.param.M, shape.param.N,
                                              shape.param.K);
                         });

TEST(Gemm, InsideAParallelRegionTheResultIsTheSameForAnyNumberOfThreads) {
  constexpr int64_t M = 64, N = 96, K = 130;
  const auto a = random_floats(M * K, 1, 1), b = random_floats(N * K, 1, 2);
  const int before = thread_count();
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    std::vector<float> c(size_t(M * N));
    parallel_for(M, 16, [&](int64_t begin, int64_t end) {
      const GemmTile gemm({.M = 16, .N = N, .K = K, .transpose_b = true, .in = GemmType::kF32});
      for (int64_t m = begin; m < end; m += 16) {
        gemm.run(a.data() + m * K, b.data(), c.data() + m * N);
      }
    });
    results.push_back(c);
  }
  set_thread_count(before);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace freeformer::kernels
