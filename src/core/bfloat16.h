// bfloat16 as storage: the upper half of a float. Arithmetic happens in float.
#pragma once

#include <bit>
#include <cstdint>

namespace freeformer {

struct BFloat16 {
  uint16_t bits = 0;
};

inline float to_float(BFloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }
inline float to_float(float value) { return value; }

// Rounds to nearest, ties to even; a NaN stays one (its quiet bit is set).
inline BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return {uint16_t(bits >> 16 | 0x40)};
  return {uint16_t((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

template <typename T>
T from_float(float value);
template <>
inline float from_float(float value) {
  return value;
}
template <>
inline BFloat16 from_float(float value) {
  return to_bfloat16(value);
}

}  // namespace freeformer
