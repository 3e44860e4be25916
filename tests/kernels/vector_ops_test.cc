#include "kernels/vector_ops.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "isa_test.h"
#include "random_values.h"

namespace freeformer::kernels {
namespace {

class VectorOps : public IsaTest {};

// Sizes around every vector width, from addresses that are aligned to nothing.
template <typename Body>
void for_each_size_and_offset(const Body& body) {
  for (int64_t size = 0; size <= 70; ++size) {
    for (int64_t offset = 0; offset < 3; ++offset) body(size, offset);
  }
}

TEST_P(VectorOps, WidenIsExactAndStaysInBounds) {
  for_each_size_and_offset([](int64_t size, int64_t offset) {
    std::vector<BFloat16> from;
    for (const float x : random_floats(size + offset, 1e3f, 7)) from.push_back(to_bfloat16(x));
    std::vector<float> to(size_t(size + offset + 1), -7.0f);
    widen(from.data() + offset, size, to.data() + offset);
    for (int64_t i = 0; i < offset; ++i) ASSERT_EQ(to[size_t(i)], -7.0f);
    for (int64_t i = offset; i < offset + size; ++i) {
      ASSERT_EQ(to[size_t(i)], to_float(from[size_t(i)]));
    }
    ASSERT_EQ(to.back(), -7.0f);
  });
}

TEST_P(VectorOps, NarrowRoundsEveryElementToTheNearestBf16) {
  // Ties to even below and above, what rounds to infinity, subnormals, NaNs whose upper half alone
  // would be infinity.
  const uint32_t special[] = {0x3F808000, 0x3F818000, 0x3F808001, 0x3F817FFF, 0x7F7FFFFF,
                              0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0xFF800001,
                              0x7FFFFFFF, 0xFFFFFFFF, 0x00000001, 0x80008000, 0x00018000,
                              0x80000000, 0x00000000};
  for_each_size_and_offset([&](int64_t size, int64_t offset) {
    auto from = random_floats(size + offset, 1e3f, 7);
    for (size_t i = 0; i < from.size(); ++i) {
      if (i % 3 == 0) from[i] = std::bit_cast<float>(special[(i / 3 + size_t(size)) % 17]);
    }
    std::vector<BFloat16> to(size_t(size + offset + 1), BFloat16{0x1234});
    narrow(from.data() + offset, size, to.data() + offset);
    for (int64_t i = 0; i < offset; ++i) ASSERT_EQ(to[size_t(i)].bits, 0x1234);
    for (int64_t i = offset; i < offset + size; ++i) {
      ASSERT_EQ(to[size_t(i)].bits, to_bfloat16(from[size_t(i)]).bits) << from[size_t(i)];
    }
    ASSERT_EQ(to.back().bits, 0x1234);
  });
}

TEST_P(VectorOps, AccumulateAddsEveryElementOnce) {
  for_each_size_and_offset([](int64_t size, int64_t offset) {
    const auto from = random_floats(size + offset, 1, 7);
    std::vector<BFloat16> narrow;
    for (const float x : from) narrow.push_back(to_bfloat16(x));
    std::vector<float> to(size_t(size + offset + 1), 1.0f), to16 = to;
    accumulate(from.data() + offset, size, to.data() + offset);
    accumulate(narrow.data() + offset, size, to16.data() + offset);
    for (int64_t i = offset; i < offset + size; ++i) {
      ASSERT_EQ(to[size_t(i)], 1.0f + from[size_t(i)]);
      ASSERT_EQ(to16[size_t(i)], 1.0f + to_float(narrow[size_t(i)]));
    }
    ASSERT_EQ(to.back(), 1.0f);
    ASSERT_EQ(to16.back(), 1.0f);
  });
}

TEST_P(VectorOps, TheHeapHoldsTheProbabilityOfEverySettingOfTheLowBits) {
  constexpr int kBits = 8;
  std::vector<float> p = random_floats(kBits, 0.4f, 3), q;
  for (float& x : p) x += 0.5f;
  for (const float x : p) q.push_back(1 - x);
  std::vector<float> heap(1 << kBits);
  bit_probability_heap(p.data(), q.data(), kBits, heap.data());
  for (int h = 0; h < kBits; ++h) {
    for (int j = 0; j < 1 << h; ++j) {
      double expected = 1;
      for (int bit = 0; bit < h; ++bit) expected *= j >> bit & 1 ? p[size_t(bit)] : q[size_t(bit)];
      ASSERT_NEAR(heap[size_t((1 << h) + j)], expected, 1e-6 * expected) << h << " " << j;
    }
  }
}

TEST_P(VectorOps, FoldingGivesTheExpectationAndItsDerivatives) {
  for (int bits = 1; bits <= 10; ++bits) {
    std::vector<float> p = random_floats(bits, 0.45f, 3), q;
    for (float& x : p) x += 0.5f;
    for (const float x : p) q.push_back(1 - x);
    const auto values = random_floats(int64_t{1} << bits, 1, 4);
    std::vector<float> heap(size_t(1) << bits), scratch(size_t(1) << (bits - 1));
    std::vector<float> derivatives(size_t(bits), 10.0f);
    bit_probability_heap(p.data(), q.data(), bits, heap.data());
    const float expectation = fold_bits(values.data(), bits, p.data(), q.data(), heap.data(), 2.0f,
                                        scratch.data(), derivatives.data());
    double expected = 0;
    std::vector<double> expected_derivatives(size_t(bits), 0.0);
    for (int code = 0; code < 1 << bits; ++code) {
      double probability = 1;
      for (int h = 0; h < bits; ++h) probability *= code >> h & 1 ? p[size_t(h)] : q[size_t(h)];
      expected += probability * values[size_t(code)];
      for (int h = 0; h < bits; ++h) {
        expected_derivatives[size_t(h)] += code >> h & 1
                                               ? probability / p[size_t(h)] * values[size_t(code)]
                                               : -probability / q[size_t(h)] * values[size_t(code)];
      }
    }
    EXPECT_NEAR(expectation, expected, 1e-5) << bits;
    // Scaled by the weight and added to what was there.
    for (int h = 0; h < bits; ++h) {
      EXPECT_NEAR(derivatives[size_t(h)], 10 + 2 * expected_derivatives[size_t(h)], 1e-5) << bits;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, VectorOps, testing::ValuesIn(supported_isas()), isa_name);

}  // namespace
}  // namespace freeformer::kernels
