#include "kernels/swiglu.h"

#include <gtest/gtest.h>

#include <limits>

#include "isa_test.h"
#include "kernel_values.h"

namespace freeformer::kernels {
namespace {

template <typename T>
void expect_matches(const std::vector<float>& gate_values, float scale, int64_t offset,
                    double tolerance) {
  const auto count = int64_t(gate_values.size());
  const Input<T> gate(gate_values, offset), up(random_floats(count, scale, 2), offset),
      dy(random_floats(count, 1, 3), offset);
  Output<T> y(count, offset), dgate(count, offset), dup(count, offset);
  swiglu(gate.data(), up.data(), count, y.data());
  swiglu_backward(gate.data(), up.data(), dy.data(), count, dgate.data(), dup.data());
  const auto expected = reference::swiglu_backward(gate.wide(), up.wide(), dy.wide());
  expect_near<T>(y.values(), reference::swiglu(gate.wide(), up.wide()), tolerance, "y");
  expect_near<T>(dgate.values(), expected.dgate, tolerance, "dgate");
  expect_near<T>(dup.values(), expected.dup, tolerance, "dup");
}

class Swiglu : public IsaTest {};

TEST_P(Swiglu, MatchesTheReferenceForAnyLengthAndAddress) {
  for (const int64_t count : row_lengths()) {
    for (const int64_t offset : {0, 1}) {
      expect_matches<float>(random_floats(count, 8, 1), 1, offset, 3e-6);
      expect_matches<BFloat16>(random_floats(count, 8, 1), 1, offset, 3e-6);
    }
  }
}

TEST_P(Swiglu, SaturatesWhereGatesAreLarge) {
  std::vector<float> gates{-1e4f, -1e3f, -100, -88.5f, -88, -87, -50, -20, 20, 50, 88, 100, 1e4f};
  gates.resize(37, 87.5f);
  expect_matches<float>(gates, 1, 0, 2e-7);
  expect_matches<BFloat16>(gates, 1, 0, 2e-7);
}

TEST_P(Swiglu, GradientKeepsItsRelativeAccuracyInBothTails) {
  // 1-σ is never a difference of nearly equal numbers.
  for (const float g : {-30.0f, -15.0f, 10.0f, 15.0f, 30.0f}) {
    const Input<float> gate({g}), up({1.0f}), dy({1.0f});
    Output<float> dgate(1), dup(1);
    swiglu_backward(gate.data(), up.data(), dy.data(), 1, dgate.data(), dup.data());
    const auto expected = reference::swiglu_backward({g}, {1.0}, {1.0});
    EXPECT_NEAR(dgate.values()[0] / expected.dgate[0], 1, 1e-6) << g;
    EXPECT_NEAR(dup.values()[0] / expected.dup[0], 1, 1e-6) << g;
  }
}

TEST_P(Swiglu, NaNAndInfinityAreNotHidden) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> gates(19, 1.0f), ups(19, 1.0f);
  gates[3] = gates[18] = NAN;
  gates[5] = kInfinity;
  ups[7] = NAN;
  const Input<BFloat16> gate(gates), up(ups), dy(std::vector<float>(19, 1.0f));
  Output<BFloat16> y(19), dgate(19), dup(19);
  swiglu(gate.data(), up.data(), 19, y.data());
  swiglu_backward(gate.data(), up.data(), dy.data(), 19, dgate.data(), dup.data());
  for (const size_t i : {3, 18, 7}) EXPECT_TRUE(std::isnan(y.values()[i])) << i;
  for (const size_t i : {3, 18, 7}) EXPECT_TRUE(std::isnan(dgate.values()[i])) << i;
  EXPECT_EQ(y.values()[5], kInfinity);
  EXPECT_FALSE(std::isnan(y.values()[4]));
}

TEST_P(Swiglu, WorksInPlace) {
  constexpr int64_t kCount = 45;
  const Input<float> gate(random_floats(kCount, 8, 1)), up(random_floats(kCount, 1, 2)),
      dy(random_floats(kCount, 1, 3));
  Output<float> dgate(kCount), dup(kCount), gate_and_dgate(kCount), up_and_dup(kCount);
  swiglu_backward(gate.data(), up.data(), dy.data(), kCount, dgate.data(), dup.data());
  std::copy_n(gate.data(), kCount, gate_and_dgate.data());
  std::copy_n(up.data(), kCount, up_and_dup.data());
  swiglu_backward(gate_and_dgate.data(), up_and_dup.data(), dy.data(), kCount,
                  gate_and_dgate.data(), up_and_dup.data());
  EXPECT_EQ(gate_and_dgate.values(), dgate.values());
  EXPECT_EQ(up_and_dup.values(), dup.values());
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Swiglu, testing::ValuesIn(supported_isas()), isa_name);

TEST(Swiglu, IsTheSameForAnyNumberOfThreads) {
  constexpr int64_t kCount = 40003;
  const auto gate = random_floats(kCount, 8, 1), up = random_floats(kCount, 1, 2),
             dy = random_floats(kCount, 1, 3);
  expect_same_for_any_thread_count([&] {
    std::vector<float> y(kCount), dgate(kCount), dup(kCount);
    swiglu(gate.data(), up.data(), kCount, y.data());
    swiglu_backward(gate.data(), up.data(), dy.data(), kCount, dgate.data(), dup.data());
    return std::vector{y, dgate, dup};
  });
}

TEST(Swiglu, ReferenceGradientsAreThoseOfFiniteDifferences) {
  auto gate = random_doubles(9, 4, 1), up = random_doubles(9, 1, 2);
  const auto dy = random_doubles(9, 1, 3);
  const auto loss = [&] { return dot(reference::swiglu(gate, up), dy); };
  const auto gradients = reference::swiglu_backward(gate, up, dy);
  expect_all_near(gradients.dgate, numeric_gradient(gate, loss), 1e-8);
  expect_all_near(gradients.dup, numeric_gradient(up, loss), 1e-8);
}

}  // namespace
}  // namespace freeformer::kernels
