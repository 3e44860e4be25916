#include "kernels/rms_norm.h"

#include <gtest/gtest.h>

#include "isa_test.h"
#include "kernel_values.h"

namespace freeformer::kernels {
namespace {

constexpr float kEps = 1e-5f;

template <typename T>
void expect_forward_matches(int64_t M, int64_t D, int64_t offset) {
  const Input<T> x(random_floats(M * D, 2, 1), offset), weight(random_floats(D, 1, 2), offset);
  Output<T> y(M * D, offset);
  Output<float> inverse_rms(M);
  rms_norm(x.data(), weight.data(), M, D, kEps, y.data(), inverse_rms.data());
  expect_near<T>(y.values(), reference::rms_norm(x.wide(), weight.wide(), kEps), 1e-6, "y");
  // With weights of 1, y / x is the factor.
  const auto normal = reference::rms_norm(x.wide(), reference::Vector(size_t(D), 1.0), kEps);
  for (int64_t m = 0; m < M; ++m) {
    const double factor = normal[size_t(m * D)] / x.wide()[size_t(m * D)];
    EXPECT_NEAR(inverse_rms.values()[size_t(m)], factor, 1e-6 * factor);
  }
}

template <typename T>
void expect_backward_matches(int64_t M, int64_t D, int64_t offset) {
  const Input<T> x(random_floats(M * D, 2, 1), offset), weight(random_floats(D, 1, 2), offset),
      dy(random_floats(M * D, 1, 3), offset);
  Output<T> y(M * D), dx(M * D, offset), dx_alone(M * D, offset);
  Output<float> inverse_rms(M), dweight(D, offset), dweight_alone(D, offset);
  rms_norm(x.data(), weight.data(), M, D, kEps, y.data(), inverse_rms.data());
  rms_norm_backward(x.data(), weight.data(), inverse_rms.data(), dy.data(), M, D, dx.data(),
                    dweight.data());
  const auto expected = reference::rms_norm_backward(x.wide(), weight.wide(), dy.wide(), kEps);
  double largest = 0;  // r is large where a row is short and small
  for (const float r : inverse_rms.values()) largest = std::max(largest, double(r));
  expect_near<T>(dx.values(), expected.dx_MD, 2e-6 * largest, "dx");
  expect_near<float>(dweight.values(), expected.dweight_D, 1e-6 * double(M), "dweight");

  rms_norm_backward<T>(x.data(), weight.data(), inverse_rms.data(), dy.data(), M, D,
                       dx_alone.data(), nullptr);
  rms_norm_backward<T>(x.data(), weight.data(), inverse_rms.data(), dy.data(), M, D, nullptr,
                       dweight_alone.data());
  EXPECT_EQ(dx_alone.values(), dx.values());
  EXPECT_EQ(dweight_alone.values(), dweight.values());
}

class RmsNorm : public IsaTest {};

TEST_P(RmsNorm, ForwardMatchesTheReferenceForAnyLengthAndAddress) {
  for (const int64_t D : row_lengths()) {
    for (const int64_t offset : {0, 1}) {
      expect_forward_matches<float>(3, D, offset);
      expect_forward_matches<BFloat16>(3, D, offset);
    }
  }
}

TEST_P(RmsNorm, BackwardMatchesTheReferenceForAnyLengthAndAddress) {
  for (const int64_t D : row_lengths()) {
    for (const int64_t offset : {0, 1}) {
      expect_backward_matches<float>(3, D, offset);
      expect_backward_matches<BFloat16>(3, D, offset);
    }
  }
}

TEST_P(RmsNorm, WeightGradientSumsOverSeveralBlocksOfRows) {
  expect_backward_matches<float>(200, 20, 0);
  expect_backward_matches<BFloat16>(200, 20, 1);
}

TEST_P(RmsNorm, WorksInPlace) {
  constexpr int64_t M = 4, D = 37;
  const Input<BFloat16> x(random_floats(M * D, 2, 1)), weight(random_floats(D, 1, 2));
  Output<BFloat16> apart(M * D), in_place(M * D);
  std::copy_n(x.data(), M * D, in_place.data());
  rms_norm(x.data(), weight.data(), M, D, kEps, apart.data(), nullptr);
  rms_norm(in_place.data(), weight.data(), M, D, kEps, in_place.data(), nullptr);
  EXPECT_EQ(in_place.values(), apart.values());
}

TEST_P(RmsNorm, ARowOfZerosGivesZerosAndANaNStaysInItsRow) {
  constexpr int64_t M = 3, D = 19;
  auto values = random_floats(M * D, 1e4f, 1);
  std::fill_n(values.begin(), D, 0.0f);
  values[D + 18] = NAN;  // in the tail of the second row
  const Input<float> x(values), weight(random_floats(D, 1, 2));
  Output<float> y(M * D), inverse_rms(M);
  rms_norm(x.data(), weight.data(), M, D, kEps, y.data(), inverse_rms.data());
  const auto found = y.values();
  for (size_t d = 0; d < D; ++d) {
    EXPECT_EQ(found[d], 0) << d;
    EXPECT_TRUE(std::isnan(found[D + d])) << d;
    EXPECT_LT(std::abs(found[2 * D + d]), 4) << d;
  }
  EXPECT_NEAR(inverse_rms.values()[0], 1 / std::sqrt(kEps), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, RmsNorm, testing::ValuesIn(supported_isas()), isa_name);

TEST(RmsNorm, IsTheSameForAnyNumberOfThreads) {
  constexpr int64_t M = 300, D = 45;
  const Input<float> x(random_floats(M * D, 2, 1)), weight(random_floats(D, 1, 2)),
      dy(random_floats(M * D, 1, 3));
  expect_same_for_any_thread_count([&] {
    std::vector<float> y(M * D), dx(M * D), inverse_rms(M), dweight(D);
    rms_norm(x.data(), weight.data(), M, D, kEps, y.data(), inverse_rms.data());
    rms_norm_backward(x.data(), weight.data(), inverse_rms.data(), dy.data(), M, D, dx.data(),
                      dweight.data());
    return std::vector{y, inverse_rms, dx, dweight};
  });
}

TEST(RmsNorm, WithoutRowsTheWeightGradientIsZero) {
  std::vector<float> dweight(5, NAN);
  const std::vector<float> weight(5, 1.0f);
  rms_norm_backward<float>(nullptr, weight.data(), nullptr, nullptr, 0, 5, nullptr, dweight.data());
  EXPECT_EQ(dweight, std::vector<float>(5, 0.0f));
}

TEST(RmsNorm, ReferenceGradientsAreThoseOfFiniteDifferences) {
  constexpr int64_t M = 3, D = 7;
  auto x = random_doubles(M * D, 2, 1), weight = random_doubles(D, 1, 2);
  const auto dy = random_doubles(M * D, 1, 3);
  const auto loss = [&] { return dot(reference::rms_norm(x, weight, kEps), dy); };
  const auto gradients = reference::rms_norm_backward(x, weight, dy, kEps);
  expect_all_near(gradients.dx_MD, numeric_gradient(x, loss), 1e-8);
  expect_all_near(gradients.dweight_D, numeric_gradient(weight, loss), 1e-8);
}

}  // namespace
}  // namespace freeformer::kernels
