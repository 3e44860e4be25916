#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <fmt/core.h>

#include <cmath>

#include "core/bfloat16.h"
#include "expect_error.h"
#include "isa_test.h"
#include "kernel_values.h"
#include "kernels/blocked_gemm.h"

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

// --- Our own -------------------------------------------------------------------------------------

std::string describe(const GemmShape& s) {
  return fmt::format("[{}, {}]{} · [{}, {}]{}{}", s.M, s.K, s.transpose_a ? "ᵀ" : "", s.K, s.N,
                     s.transpose_b ? "ᵀ" : "", s.accumulate ? ", added" : "");
}

std::vector<float> transposed(const std::vector<float>& values, int64_t rows, int64_t columns) {
  std::vector<float> result;
  for (int64_t i = 0; i < columns; ++i) {
    for (int64_t j = 0; j < rows; ++j) result.push_back(values[size_t(j * columns + i)]);
  }
  return result;
}

template <typename In, typename Out>
struct Operands {
  // At addresses that are aligned to the elements alone where offset is 1.
  Operands(const GemmShape& s, int64_t offset) : before(random_floats(s.M * s.N, 1, 3)) {
    const auto a_MK = random_floats(s.M * s.K, 1, 1), b_NK = random_floats(s.N * s.K, 1, 2);
    a = Input<In>(s.transpose_a ? transposed(a_MK, s.M, s.K) : a_MK, offset);
    b = Input<In>(s.transpose_b ? b_NK : transposed(b_NK, s.N, s.K), offset);
    expected = reference::gemm_nt(Input<In>(a_MK).wide(), Input<In>(b_NK).wide(), s.M, s.N, s.K);
    if (!s.accumulate) return;
    const auto added = Input<Out>(before).wide();
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += added[i];
  }

  // C as it was before, or rubbish that must not matter.
  Output<Out> c(const GemmShape& s, int64_t offset) const {
    Output<Out> result(s.M * s.N, offset);
    for (size_t i = 0; i < before.size(); ++i) {
      result.data()[i] = from_float<Out>(s.accumulate ? before[i] : NAN);
    }
    return result;
  }

  std::vector<float> before;
  Input<In> a{{}}, b{{}};
  reference::Vector expected;
};

// Sums of K products below 1.
double tolerance(const GemmShape& s) { return 2e-6 * std::sqrt(double(s.K) + 1); }

template <typename In, typename Out>
void expect_blocked_matches(const GemmShape& s, int64_t offset = 0) {
  SCOPED_TRACE(describe(s));
  const Operands<In, Out> operands(s, offset);
  Output<Out> c = operands.c(s, offset);
  blocked_gemm(s, operands.a.data(), operands.b.data(), c.data());
  expect_near<Out>(c.values(), operands.expected, tolerance(s), "C");
}

// All transpositions and types; every other product is added to what there is.
void expect_all_kinds_match(int64_t M, int64_t N, int64_t K) {
  bool accumulate = (M + N + K) % 2 == 0;
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      const GemmShape s{M, N, K, transpose_a, transpose_b, accumulate};
      expect_blocked_matches<float, float>(s, 1);
      expect_blocked_matches<BFloat16, float>(s, 1);
      expect_blocked_matches<BFloat16, BFloat16>(s, 1);
      accumulate = !accumulate;
    }
  }
}

// On one thread: waking others takes longer than these sizes.
class BlockedGemm : public IsaTest {
 protected:
  const OneThread one_thread_;
};

TEST_P(BlockedGemm, MatchesTheReferenceForEveryTranspositionTypeAndAddress) {
  for (const Shape& shape :
       {Shape{1, 1, 1}, Shape{7, 65, 9}, Shape{13, 70, 35}, Shape{6, 64, 16}}) {
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        for (const bool accumulate : {false, true}) {
          const GemmShape s{shape.M, shape.N, shape.K, transpose_a, transpose_b, accumulate};
          for (const int64_t offset : {0, 1, 3}) {
            expect_blocked_matches<float, float>(s, offset);
            expect_blocked_matches<BFloat16, float>(s, offset);
            expect_blocked_matches<BFloat16, BFloat16>(s, offset);
          }
        }
      }
    }
  }
}

TEST_P(BlockedGemm, MatchesTheReferenceForRowsAroundTheBlocks) {
  for (const int64_t M : {1, 2, 3, 5, 6, 7, 8, 11, 12, 47, 48, 49, 95, 97, 191, 192, 193}) {
    expect_all_kinds_match(M, 5, 3);
  }
}

TEST_P(BlockedGemm, MatchesTheReferenceForColumnsAroundThePanels) {
  for (const int64_t N : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 511, 512, 513}) {
    expect_all_kinds_match(3, N, 5);
  }
}

TEST_P(BlockedGemm, MatchesTheReferenceForDepthsAroundTheBlocks) {
  for (const int64_t K : {1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 511, 512, 513}) {
    expect_all_kinds_match(7, 3, K);
  }
}

// Rows are copied where K is whole pages, and gradients of weights go through K in stretches.
TEST_P(BlockedGemm, MatchesTheReferenceForDepthsAroundPagesAndStretches) {
  for (const int64_t K : {1023, 1024, 1025, 2048, 2050}) expect_all_kinds_match(8, 3, K);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, BlockedGemm, testing::ValuesIn(supported_isas()), isa_name);

TEST(BlockedGemm, MatchesTheReferenceWhereThereAreManyTiles) {
  const OneThread one_thread;
  expect_all_kinds_match(100, 530, 5);
  expect_all_kinds_match(400, 70, 7);
  expect_all_kinds_match(51, 131, 520);
}

TEST(BlockedGemm, RoundsABf16SumOnce) {
  // 3000 ones on top of 256: rounded on the way, 256 + 1 would stay 256 in bf16.
  constexpr int64_t K = 3000;
  for (const bool transpose_a : {false, true}) {
    const Input<BFloat16> a(std::vector<float>(K, 1.0f)), b(std::vector<float>(K, 1.0f));
    BFloat16 c = to_bfloat16(256);
    blocked_gemm({1, 1, K, transpose_a, false, /*accumulate=*/true}, a.data(), b.data(), &c);
    EXPECT_EQ(to_float(c), to_float(to_bfloat16(3256)));
  }
}

template <typename In, typename Out>
void expect_same_for_1_2_and_3_threads(const GemmShape& s) {
  SCOPED_TRACE(describe(s));
  const Input<In> a(random_floats(s.M * s.K, 1, 1)), b(random_floats(s.N * s.K, 1, 2));
  const int before = thread_count();
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    Output<Out> c(s.M * s.N);
    std::fill_n(c.data(), s.M * s.N, from_float<Out>(1));
    blocked_gemm(s, a.data(), b.data(), c.data());
    results.push_back(c.values());
  }
  // And where every thread computes all of it.
  parallel_tasks(2, [&](int64_t task) {
    if (task == 1) return;
    Output<Out> c(s.M * s.N);
    std::fill_n(c.data(), s.M * s.N, from_float<Out>(1));
    blocked_gemm(s, a.data(), b.data(), c.data());
    results.push_back(c.values());
  });
  set_thread_count(before);
  for (const size_t i : {1, 2, 3}) EXPECT_TRUE(results[0] == results[i]) << i;
}

TEST(BlockedGemm, IsTheSameForAnyNumberOfThreads) {
  for (const bool transpose_a : {false, true}) {
    for (const bool accumulate : {false, true}) {
      const GemmShape s{100, 200, 100, transpose_a, !accumulate, accumulate};
      expect_same_for_1_2_and_3_threads<float, float>(s);
      expect_same_for_1_2_and_3_threads<BFloat16, float>(s);
      expect_same_for_1_2_and_3_threads<BFloat16, BFloat16>(s);
    }
  }
  expect_same_for_1_2_and_3_threads<float, float>({20, 130, 1100, true, false, true});
}

// The door to both: oneDNN where it multiplies bf16 in hardware.
template <typename In, typename Out>
void expect_gemm_matches(const GemmShape& s) {
  SCOPED_TRACE(describe(s));
  const Operands<In, Out> operands(s, 0);
  Output<Out> c = operands.c(s, 0);
  gemm(s, operands.a.data(), operands.b.data(), c.data());
  expect_near<Out>(c.values(), operands.expected, tolerance(s), "C");
}

TEST(GemmOfAnyType, MatchesTheReference) {
  const OneThread one_thread;
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      for (const bool accumulate : {false, true}) {
        const GemmShape s{19, 33, 47, transpose_a, transpose_b, accumulate};
        expect_gemm_matches<float, float>(s);
        expect_gemm_matches<BFloat16, float>(s);
        expect_gemm_matches<BFloat16, BFloat16>(s);
      }
    }
  }
}

TEST(GemmOfAnyType, OfNothingIsZeroOrWhatThereWas) {
  for (const bool accumulate : {false, true}) {
    for (const Shape& shape : {Shape{0, 3, 4}, Shape{3, 0, 4}, Shape{3, 4, 0}, Shape{0, 0, 0}}) {
      const GemmShape s{shape.M, shape.N, shape.K, false, false, accumulate};
      expect_gemm_matches<float, float>(s);
      expect_gemm_matches<BFloat16, float>(s);
      expect_gemm_matches<BFloat16, BFloat16>(s);
    }
  }
}

TEST(GemmOfAnyType, RefusesASizeBelowZero) {
  float value = 0;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "",
                          gemm({.M = 1, .N = -1, .K = 1}, &value, &value, &value));
}

}  // namespace
}  // namespace freeformer::kernels
