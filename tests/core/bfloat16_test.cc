// The conversion against an oracle that looks for the nearest of the two neighbours in double.
#include "core/bfloat16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/philox.h"

namespace freeformer {
namespace {

float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

// For finite values whose neighbours are finite.
uint16_t nearest_even(float value) {
  const auto below = uint16_t(std::bit_cast<uint32_t>(value) >> 16);  // towards zero
  const auto above = uint16_t(below + 1);
  const double to_below = std::abs(double(value) - to_float(BFloat16{below}));
  const double to_above = std::abs(double(value) - to_float(BFloat16{above}));
  if (to_below != to_above) return to_below < to_above ? below : above;
  return below % 2 == 0 ? below : above;
}

TEST(BFloat16, AllValuesSurviveTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = to_float(BFloat16{uint16_t(bits)});
    if (std::isnan(value)) {
      EXPECT_EQ(to_bfloat16(value).bits, bits | 0x40) << bits;  // made quiet, payload kept
    } else {
      EXPECT_EQ(to_bfloat16(value).bits, bits) << value;
    }
  }
}

TEST(BFloat16, TiesGoToEven) {
  EXPECT_EQ(to_bfloat16(float_of(0x3F808000)).bits, 0x3F80);  // between 0x3F80 and 0x3F81
  EXPECT_EQ(to_bfloat16(float_of(0x3F818000)).bits, 0x3F82);
  EXPECT_EQ(to_bfloat16(float_of(0xBF808000)).bits, 0xBF80);
  EXPECT_EQ(to_bfloat16(float_of(0xBF818000)).bits, 0xBF82);
  EXPECT_EQ(to_bfloat16(float_of(0x3FFF8000)).bits, 0x4000);  // the carry reaches the exponent
}

TEST(BFloat16, OneBitFromATieGoesToTheNearest) {
  EXPECT_EQ(to_bfloat16(float_of(0x3F808001)).bits, 0x3F81);
  EXPECT_EQ(to_bfloat16(float_of(0x3F817FFF)).bits, 0x3F81);
}

TEST(BFloat16, RoundsLikeTheOracle) {
  for (uint32_t i = 0; i < 50'000; ++i) {
    for (const uint32_t bits : philox({i, 0, 0, 0}, 1)) {
      const float value = float_of(bits);
      if (!(std::abs(value) < float_of(0x7F7F0000))) continue;  // next to the infinities, NaN
      ASSERT_EQ(to_bfloat16(value).bits, nearest_even(value)) << value;
    }
  }
}

TEST(BFloat16, SubnormalsRoundToo) {
  EXPECT_EQ(to_bfloat16(float_of(0x00000001)).bits, 0x0000);
  EXPECT_EQ(to_bfloat16(float_of(0x00008001)).bits, 0x0001);
  EXPECT_EQ(to_bfloat16(float_of(0x007FFFFF)).bits, 0x0080);  // up to the smallest normal one
}

TEST(BFloat16, NanStaysNan) {
  // A payload that lives in the lower half alone would be lost by cutting.
  for (const uint32_t bits : {0x7F800001u, 0xFF800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
    const BFloat16 converted = to_bfloat16(float_of(bits));
    EXPECT_TRUE(std::isnan(to_float(converted))) << bits;
    EXPECT_EQ(converted.bits >> 15, bits >> 31) << "the sign is kept";
  }
}

TEST(BFloat16, InfinitiesAndZerosKeepTheirSign) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_bfloat16(kInfinity).bits, 0x7F80);
  EXPECT_EQ(to_bfloat16(-kInfinity).bits, 0xFF80);
  EXPECT_EQ(to_bfloat16(0.0f).bits, 0x0000);
  EXPECT_EQ(to_bfloat16(-0.0f).bits, 0x8000);
}

TEST(BFloat16, OverflowsToInfinity) {
  EXPECT_EQ(to_bfloat16(float_of(0x7F7F7FFF)).bits, 0x7F7F);  // the last that fits
  EXPECT_EQ(to_bfloat16(float_of(0x7F7F8000)).bits, 0x7F80);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::lowest()).bits, 0xFF80);
}

}  // namespace
}  // namespace freeformer
