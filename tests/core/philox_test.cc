#include "core/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace freeformer {
namespace {

std::vector<float> uniforms(const RandomSource& source, uint64_t sequence, uint32_t position,
                            int count) {
  std::vector<float> numbers(size_t(count), -1.0f);
  source.uniforms(sequence, position, count, numbers.data());
  return numbers;
}

// Random123's kat_vectors for philox4x32-10. The key's low word comes first.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
  EXPECT_EQ(philox({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, 0xFFFFFFFFFFFFFFFF),
            (PhiloxBlock{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}));
  EXPECT_EQ(philox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, 0x299F31D0A4093822),
            (PhiloxBlock{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
}

TEST(UnitFloat, CoversZeroToJustBelowOne) {
  EXPECT_EQ(unit_float(0), 0.0f);
  EXPECT_EQ(unit_float(0x80000000), 0.5f);
  EXPECT_EQ(unit_float(0xFFFFFFFF), 1.0f - 0x1p-24f);
  EXPECT_LT(unit_float(0xFFFFFFFF), 1.0f);
}

TEST(UnitFloat, IsExactInEveryOneOf24Bits) {
  for (int bit = 8; bit < 32; ++bit) EXPECT_EQ(unit_float(1u << bit), std::ldexp(1.0f, bit - 32));
  EXPECT_EQ(unit_float(0xFF), 0.0f) << "the low eight bits are dropped, not rounded";
}

TEST(RandomSource, LaysOutItsCounterAsDocumented) {
  const RandomSource source(0x0123456789ABCDEF, RandomStream::kInit);
  EXPECT_EQ(source.block(0xAAAAAAAABBBBBBBB, 7, 9),
            philox({0xBBBBBBBB, 0xAAAAAAAA, 7, 0x02000009}, 0x0123456789ABCDEF));
}

TEST(RandomSource, EveryPartOfTheAddressMatters) {
  std::set<PhiloxBlock> blocks;
  int drawn = 0;
  const auto draw = [&](uint64_t seed, RandomStream stream, uint64_t sequence, uint32_t position,
                        uint32_t index) {
    blocks.insert(RandomSource(seed, stream).block(sequence, position, index));
    ++drawn;
  };
  constexpr uint64_t kHigh = uint64_t{1} << 32;
  draw(0, RandomStream::kLatent, 0, 0, 0);
  draw(1, RandomStream::kLatent, 0, 0, 0);
  draw(kHigh, RandomStream::kLatent, 0, 0, 0);
  draw(0, RandomStream::kToken, 0, 0, 0);
  draw(0, RandomStream::kInit, 0, 0, 0);
  draw(0, RandomStream::kData, 0, 0, 0);
  draw(0, RandomStream::kLatent, 1, 0, 0);
  draw(0, RandomStream::kLatent, kHigh, 0, 0);
  draw(0, RandomStream::kLatent, 0, 1, 0);
  draw(0, RandomStream::kLatent, 0, 0, 1);
  EXPECT_EQ(blocks.size(), size_t(drawn));
}

TEST(RandomSource, ANumberDoesNotDependOnHowManyAreDrawn) {
  const RandomSource source(42, RandomStream::kLatent);
  const auto all = uniforms(source, 3, 5, 23);
  for (int count = 0; count <= 23; ++count) {
    EXPECT_EQ(uniforms(source, 3, 5, count), std::vector<float>(all.begin(), all.begin() + count));
  }
}

TEST(RandomSource, WritesNoFurtherThanAsked) {
  std::vector<float> numbers(8, -1.0f);
  RandomSource(42, RandomStream::kLatent).uniforms(0, 0, 5, numbers.data());
  EXPECT_GE(numbers[4], 0.0f);
  EXPECT_EQ(std::vector<float>(numbers.begin() + 5, numbers.end()), std::vector<float>(3, -1.0f));
}

TEST(RandomSource, PositionsAndSequencesShareNoUniforms) {
  const RandomSource source(42, RandomStream::kLatent);
  const auto here = uniforms(source, 3, 5, 16);
  EXPECT_NE(here, uniforms(source, 3, 6, 16));
  EXPECT_NE(here, uniforms(source, 4, 5, 16));
  EXPECT_NE(here, uniforms(source, 3 + (uint64_t{1} << 32), 5, 16));
  EXPECT_NE(here, uniforms(RandomSource(43, RandomStream::kLatent), 3, 5, 16));
  EXPECT_NE(here, uniforms(RandomSource(42, RandomStream::kToken), 3, 5, 16));
}

TEST(RandomSource, UniformsHaveTheMomentsOfUniforms) {
  constexpr int kCount = 100'000;
  const auto numbers = uniforms(RandomSource(2024, RandomStream::kData), 0, 0, kCount);
  double sum = 0, squares = 0, products = 0;
  for (int i = 0; i < kCount; ++i) {
    ASSERT_GE(numbers[size_t(i)], 0.0f);
    ASSERT_LT(numbers[size_t(i)], 1.0f);
    const double centred = numbers[size_t(i)] - 0.5;
    sum += centred;
    squares += centred * centred;
    if (i > 0) products += centred * (numbers[size_t(i - 1)] - 0.5);
  }
  // Standard errors: 0.29 / sqrt(n), 0.0745 / sqrt(n), 0.083 / sqrt(n). Four of them.
  EXPECT_NEAR(sum / kCount, 0.0, 0.0037);
  EXPECT_NEAR(squares / kCount, 1.0 / 12, 0.00095);
  EXPECT_NEAR(products / kCount, 0.0, 0.00106) << "neighbours are correlated";
}

}  // namespace
}  // namespace freeformer
