// The parts of vectors-inl.h that no kernel shows alone, on every target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vectors_test.cc"
#include <hwy/foreach_target.h>  // first, so that all that follows is seen per target
#include <hwy/highway.h>

#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace freeformer::kernels::HWY_NAMESPACE {

static void exp_of(const float* from, int64_t count, float* to) {
  const Floats tag;
  for_each_vector(count, [&](int64_t i, auto part) HWY_ATTR {
    store_narrowed(tag, vector_exp(tag, load_widened(tag, from + i, part)), to + i, part);
  });
}

// The sum of 1 for every element, and the index of the first that was not visited once.
static float visits(int64_t count, float* visited) {
  const Floats tag;
  for_each_vector(count, [&](int64_t i, auto part) HWY_ATTR {
    const auto before = load_widened(tag, visited + i, part);
    store_narrowed(tag, hn::Add(before, hn::Set(tag, 1.0f)), visited + i, part);
  });
  return sum_of_vectors(
      count, [&](int64_t i, auto part) HWY_ATTR { return load_widened(tag, visited + i, part); });
}

}  // namespace freeformer::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "isa_test.h"

namespace freeformer::kernels {
namespace {

HWY_EXPORT(exp_of);
HWY_EXPORT(visits);

class Vectors : public IsaTest {
 protected:
  static std::vector<float> exp(const std::vector<float>& x) {
    std::vector<float> y(x.size());
    HWY_DYNAMIC_DISPATCH(exp_of)(x.data(), int64_t(x.size()), y.data());
    return y;
  }
};

TEST_P(Vectors, ExpIsAccurateToTwoTenMillionthsWhereItsResultIsNormal) {
  std::vector<float> x;
  for (int i = 0; i <= 35000; ++i) x.push_back(-87.3f + float(i) * (175.3f / 35000));
  for (int i = -300; i <= 300; ++i) x.push_back(float(i) * 1e-3f);
  const auto y = exp(x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = std::exp(double(x[i]));
    worst = std::max(worst, std::abs(y[i] - expected) / expected);
  }
  EXPECT_LT(worst, 2e-7);
}

TEST_P(Vectors, ExpIsExactAtZeroVanishesFarBelowAndPassesNaNOn) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto y = exp({0.0f, -0.0f, -kInfinity, -1e30f, -1e4f, -104.0f, -88.0f, NAN, -NAN, -87.6f});
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], 1);
  for (size_t i = 2; i < 7; ++i) EXPECT_EQ(y[i], 0) << i;
  EXPECT_TRUE(std::isnan(y[7]));
  EXPECT_TRUE(std::isnan(y[8]));
  EXPECT_NEAR(y[9], 0, 1.2e-38);
}

TEST_P(Vectors, LoopsVisitEveryElementOnce) {
  for (int64_t count = 0; count <= 140; ++count) {
    std::vector<float> visited(size_t(count + 1), 0.0f);
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(visits)(count, visited.data()), float(count));
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(visited[size_t(i)], 1) << i << " of " << count;
    ASSERT_EQ(visited.back(), 0) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Vectors, testing::ValuesIn(supported_isas()), isa_name);

}  // namespace
}  // namespace freeformer::kernels
#endif  // HWY_ONCE
