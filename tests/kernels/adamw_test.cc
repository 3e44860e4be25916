#include "kernels/adamw.h"

#include <gtest/gtest.h>

#include "isa_test.h"
#include "kernel_values.h"

namespace freeformer::kernels {
namespace {

// A tensor's state, misaligned, and the same in float64.
struct State {
  State(int64_t size, uint64_t seed)
      : count(size),
        master(random_floats(size + 1, 1, seed)),
        m(random_floats(size + 1, 0.1f, seed + 1)),
        v(random_floats(size + 1, 0.1f, seed + 2)),
        gradient(random_floats(size + 1, 3, seed + 3)),
        rounded(size_t(size + 1)) {
    for (float& value : v) value = std::abs(value);
  }
  AdamWTensor tensor() {
    return {.master = master.data() + 1,
            .m = m.data() + 1,
            .v = v.data() + 1,
            .gradient = gradient.data() + 1,
            .rounded = rounded.data() + 1,
            .count = count,
            .learning_rate = 0.01f,
            .decay = 0.1f,
            .beta1 = 0.9f,
            .beta2 = 0.95f,
            .epsilon = 1e-8f,
            .rest1 = 0.1f,
            .rest2 = 0.05f,
            .correction1 = 0.271f,
            .correction2 = 0.142625f,
            .gradient_scale = 0.37f};
  }
  int64_t count;
  std::vector<float> master, m, v, gradient;
  std::vector<BFloat16> rounded;
};

reference::Vector wide(const std::vector<float>& values) { return {values.begin(), values.end()}; }

void expect_updates_match(std::vector<State>& states) {
  std::vector<AdamWTensor> tensors;
  std::vector<State> before = states;
  for (State& state : states) tensors.push_back(state.tensor());
  adamw_update(tensors);
  for (size_t i = 0; i < states.size(); ++i) {
    const State& found = states[i];
    State& was = before[i];
    auto master = wide(was.master), m = wide(was.m), v = wide(was.v);
    const AdamWTensor t = was.tensor();
    reference::adamw_update(wide(was.gradient),
                            {t.learning_rate, t.decay, t.beta1, t.beta2, t.epsilon, t.correction1,
                             t.correction2, t.gradient_scale},
                            master, m, v);
    // The element before the tensor belongs to somebody else.
    EXPECT_EQ(found.master[0], was.master[0]);
    EXPECT_EQ(found.m[0], was.m[0]);
    EXPECT_EQ(found.v[0], was.v[0]);
    for (size_t j = 1; j < master.size(); ++j) {
      ASSERT_NEAR(found.m[j], m[j], 3e-7) << i << " " << j;
      ASSERT_NEAR(found.v[j], v[j], 3e-7) << i << " " << j;
      ASSERT_NEAR(found.master[j], master[j], 3e-7) << i << " " << j;
      ASSERT_EQ(found.rounded[j].bits, to_bfloat16(found.master[j]).bits) << i << " " << j;
    }
  }
}

class AdamWKernel : public IsaTest {};

TEST_P(AdamWKernel, MatchesTheReferenceForManyTensorsOfAnySize) {
  std::vector<State> states;
  for (const int64_t count : row_lengths()) states.emplace_back(count, uint64_t(10 * count));
  states.emplace_back(0, 5);
  expect_updates_match(states);
}

TEST_P(AdamWKernel, MatchesTheReferenceForTensorsOfSeveralPieces) {
  std::vector<State> states;
  for (const int64_t count : {0, 16384, 3, 16387, 0}) {
    states.emplace_back(count, uint64_t(count));
  }
  expect_updates_match(states);
}

TEST_P(AdamWKernel, NeitherRoundedCopyNorDecayNorScaleIsNeeded) {
  State state(20, 1), same(20, 1);
  AdamWTensor tensor = state.tensor();
  tensor.rounded = nullptr;
  tensor.learning_rate = 0;
  tensor.gradient_scale = 0;
  adamw_update({&tensor, 1});
  EXPECT_EQ(state.master, same.master);
  for (size_t i = 1; i <= 20; ++i) EXPECT_FLOAT_EQ(state.m[i], 0.9f * same.m[i]);
}

TEST_P(AdamWKernel, ANaNInTheGradientReachesTheMasterAndItsRoundedCopy) {
  State state(19, 1);
  state.gradient[19] = NAN;
  const AdamWTensor tensor = state.tensor();
  adamw_update({&tensor, 1});
  EXPECT_TRUE(std::isnan(state.master[19]));
  EXPECT_TRUE(std::isnan(to_float(state.rounded[19])));
  EXPECT_FALSE(std::isnan(state.master[18]));
}

TEST_P(AdamWKernel, SumOfSquaresMatchesTheReferenceOverAllTensors) {
  std::vector<std::vector<float>> tensors;
  std::vector<std::span<const float>> spans;
  std::vector<reference::Vector> expected;
  for (const int64_t count : {0, 1, 7, 16, 67, 131, 16384, 16385, 0, 33001}) {
    tensors.push_back(random_floats(count + 1, 1e3f, uint64_t(count)));
  }
  for (const auto& values : tensors) {
    spans.push_back(std::span(values).subspan(1));
    expected.emplace_back(values.begin() + 1, values.end());
  }
  const double sum = reference::sum_of_squares(expected);
  EXPECT_NEAR(sum_of_squares(spans), sum, 1e-12 * sum);
  EXPECT_EQ(sum_of_squares({}), 0);
}

TEST_P(AdamWKernel, SumOfSquaresDoesNotOverflowWhereFloatsWould) {
  const std::vector<float> values(21, 1e30f);
  const std::vector<std::span<const float>> spans{values};
  EXPECT_NEAR(sum_of_squares(spans) / 21e60, 1, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, AdamWKernel, testing::ValuesIn(supported_isas()), isa_name);

TEST(AdamWKernel, IsTheSameForAnyNumberOfThreads) {
  std::vector<State> before;
  for (const int64_t count : {33001, 5, 17000}) before.emplace_back(count, uint64_t(count));
  expect_same_for_any_thread_count([&] {
    std::vector<State> states = before;
    std::vector<AdamWTensor> tensors;
    std::vector<std::span<const float>> gradients;
    for (State& state : states) {
      tensors.push_back(state.tensor());
      gradients.push_back(state.gradient);
    }
    adamw_update(tensors);
    std::vector<std::vector<float>> results;
    for (const State& state : states) {
      results.insert(results.end(), {state.master, state.m, state.v});
    }
    return std::pair(results, sum_of_squares(gradients));
  });
}

}  // namespace
}  // namespace freeformer::kernels
