#include "kernels/add.h"

#include <gtest/gtest.h>

#include "isa_test.h"
#include "kernel_values.h"

namespace freeformer::kernels {
namespace {

template <typename T>
void expect_sum_matches(int64_t count, int64_t offset) {
  const Input<T> a(random_floats(count, 1, 1), offset), b(random_floats(count, 100, 2), offset);
  Output<T> sum(count, offset), in_place(count, offset);
  add(a.data(), b.data(), count, sum.data());
  expect_near<T>(sum.values(), reference::add(a.wide(), b.wide()), 0, "sum");
  std::copy_n(a.data(), count, in_place.data());
  add(in_place.data(), b.data(), count, in_place.data());
  EXPECT_EQ(in_place.values(), sum.values());
}

template <typename T>
void expect_table_gradient_matches(int64_t D, int64_t offset) {
  constexpr int64_t M = 60, V = 9;
  const auto index = random_codes(M, V - 1, 4);  // the last row stays as it was
  const Input<T> grad(random_floats(M * D, 1, 1), offset);
  const auto before = random_floats(V * D, 1, 2);
  Output<float> dtable(V * D, offset);
  std::copy(before.begin(), before.end(), dtable.data());
  embedding_backward(index.data(), grad.data(), M, D, dtable.data());
  reference::Vector expected(before.begin(), before.end());
  reference::embedding_backward(index, grad.wide(), D, expected);
  expect_near<float>(dtable.values(), expected, 3e-6, "dtable");
}

class Add : public IsaTest {};

TEST_P(Add, MatchesTheReferenceForAnyLengthAndAddressAlsoInPlace) {
  for (const int64_t count : row_lengths()) {
    for (const int64_t offset : {0, 1}) {
      expect_sum_matches<float>(count, offset);
      expect_sum_matches<BFloat16>(count, offset);
    }
  }
}

TEST_P(Add, EmbeddingGradientsAddUpInTheirRows) {
  for (const int64_t D : {1, 7, 16, 35, 64, 65, 131}) {
    expect_table_gradient_matches<float>(D, D % 2);
    expect_table_gradient_matches<BFloat16>(D, D % 2);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Add, testing::ValuesIn(supported_isas()), isa_name);

TEST(Add, IsTheSameForAnyNumberOfThreads) {
  constexpr int64_t kCount = 50001, M = 40, D = 200, V = 5;
  const auto a = random_floats(kCount, 1, 1), b = random_floats(kCount, 1, 2);
  const auto index = random_codes(M, V, 3);
  expect_same_for_any_thread_count([&] {
    std::vector<float> sum(kCount), dtable(V * D, 0.0f);
    add(a.data(), b.data(), kCount, sum.data());
    embedding_backward(index.data(), a.data(), M, D, dtable.data());
    return std::vector{sum, dtable};
  });
}

}  // namespace
}  // namespace freeformer::kernels
