// Deterministic numbers for tests.
#pragma once

#include <cstdint>
#include <vector>

#include "core/philox.h"

namespace freeformer {

// Uniform in [-scale, scale).
inline std::vector<float> random_floats(int64_t count, float scale, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  const RandomSource source(seed, RandomStream::kData);
  for (int64_t i = 0; i < count; ++i) {
    values[size_t(i)] = scale * (2 * unit_float(source.block(0, uint32_t(i), 0)[0]) - 1);
  }
  return values;
}

inline std::vector<int64_t> random_codes(int64_t count, int64_t limit, uint64_t seed) {
  std::vector<int64_t> codes(static_cast<size_t>(count));
  const RandomSource source(seed, RandomStream::kLatent);
  for (int64_t i = 0; i < count; ++i) {
    codes[size_t(i)] = int64_t(source.block(0, uint32_t(i), 0)[0]) % limit;
  }
  return codes;
}

}  // namespace freeformer
