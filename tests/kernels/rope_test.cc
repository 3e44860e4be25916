#include "kernels/rope.h"

#include <gtest/gtest.h>

#include "isa_test.h"
#include "kernel_values.h"

namespace freeformer::kernels {
namespace {

// cos and sin of random angles.
struct Angles {
  explicit Angles(int64_t count) {
    for (const float angle : random_floats(count, 3.14f, 9)) {
      cos.push_back(std::cos(angle));
      sin.push_back(std::sin(angle));
    }
  }
  std::vector<float> cos, sin;
};

template <typename T>
void expect_matches(int64_t H, int64_t rows_of_table, int64_t offset, bool inverse) {
  constexpr int64_t B = 2, kPositions = 3, N = 2;
  const int64_t count = B * kPositions * N * H;
  const Input<T> x(random_floats(count, 1, 1), offset);
  const Angles angles(rows_of_table * kPositions * H / 2);
  const Input<float> cos(angles.cos, offset), sin(angles.sin, offset);
  Output<T> y(count, offset), in_place(count, offset);
  rope(x.data(), cos.data(), sin.data(), B, kPositions, N, H, rows_of_table, inverse, y.data());
  expect_near<T>(y.values(),
                 reference::rope(x.wide(), cos.wide(), sin.wide(), B, kPositions, N, H,
                                 rows_of_table, inverse),
                 2e-7, "y");
  std::copy_n(x.data(), count, in_place.data());
  rope(in_place.data(), cos.data(), sin.data(), B, kPositions, N, H, rows_of_table, inverse,
       in_place.data());
  EXPECT_EQ(in_place.values(), y.values());
}

class Rope : public IsaTest {};

TEST_P(Rope, MatchesTheReferenceForAnyHeadAndAddressAlsoInPlace) {
  for (const int64_t H : {2, 4, 6, 8, 14, 16, 18, 30, 32, 34, 62, 64, 66, 80, 128, 134}) {
    for (const int64_t rows_of_table : {1, 2}) {
      for (const bool inverse : {false, true}) {
        expect_matches<float>(H, rows_of_table, inverse ? 1 : 0, inverse);
        expect_matches<BFloat16>(H, rows_of_table, inverse ? 0 : 1, inverse);
      }
    }
  }
}

TEST_P(Rope, TheInverseTurnsBack) {
  constexpr int64_t B = 1, kPositions = 5, N = 3, H = 38, kCount = B * kPositions * N * H;
  const Input<float> x(random_floats(kCount, 1, 1));
  const Angles angles(kPositions * H / 2);
  Output<float> y(kCount), back(kCount);
  rope(x.data(), angles.cos.data(), angles.sin.data(), B, kPositions, N, H, 1, false, y.data());
  rope(y.data(), angles.cos.data(), angles.sin.data(), B, kPositions, N, H, 1, true, back.data());
  expect_near<float>(back.values(), x.wide(), 5e-7, "back");
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Rope, testing::ValuesIn(supported_isas()), isa_name);

TEST(Rope, IsTheSameForAnyNumberOfThreads) {
  constexpr int64_t B = 3, kPositions = 37, N = 2, H = 20, kCount = B * kPositions * N * H;
  const auto x = random_floats(kCount, 1, 1);
  const Angles angles(B * kPositions * H / 2);
  expect_same_for_any_thread_count([&] {
    std::vector<float> y(kCount);
    rope(x.data(), angles.cos.data(), angles.sin.data(), B, kPositions, N, H, B, false, y.data());
    return y;
  });
}

TEST(Rope, ReferenceInverseIsTheGradientByFiniteDifferences) {
  constexpr int64_t B = 2, kPositions = 2, N = 1, H = 6, kCount = B * kPositions * N * H;
  auto x = random_doubles(kCount, 1, 1);
  const auto dy = random_doubles(kCount, 1, 2);
  const Angles angles(kPositions * H / 2);
  const reference::Vector cos(angles.cos.begin(), angles.cos.end()),
      sin(angles.sin.begin(), angles.sin.end());
  const auto loss = [&] {
    return dot(reference::rope(x, cos, sin, B, kPositions, N, H, 1, false), dy);
  };
  expect_all_near(reference::rope(dy, cos, sin, B, kPositions, N, H, 1, true),
                  numeric_gradient(x, loss), 1e-9);
}

}  // namespace
}  // namespace freeformer::kernels
