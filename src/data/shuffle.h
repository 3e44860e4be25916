// A random order of 0..count-1 that is computed, not stored: a Feistel network over the next power
// of four, keyed by Philox, walking its cycle until it falls below count.
#pragma once

#include <cstdint>

namespace freeformer {

// What a block of RandomStream::kData is for, in the upper third of the block's index (24 bits), so
// that no two uses share a number:
//
//                    sequence  position           lower 16 bits
//   kShuffle         epoch     half of the value  round
//   kGridShift       epoch     0                  0
//   kLetters, kCoin  row       which four         0
//
// The values are part of the format of a run: changing one changes every row.
enum class DataUse : uint32_t { kShuffle = 1, kGridShift = 2, kLetters = 3, kCoin = 4 };

inline constexpr uint32_t data_index(DataUse use, uint32_t index) {
  return uint32_t(use) << 16 | index;
}

// A number in [0, limit) from 32 random bits; the bias is below limit / 2^32.
inline constexpr uint32_t scale_bits(uint32_t bits, uint32_t limit) {
  return uint32_t(uint64_t{bits} * limit >> 32);
}

class Shuffle {
 public:
  // Different (seed, epoch): another order. `count` is 1 or more.
  Shuffle(uint64_t count, uint64_t seed, uint64_t epoch);

  // A bijection on [0, count). Under four passes of the network on average, whatever the count.
  uint64_t operator()(uint64_t index) const;

 private:
  uint64_t encrypt(uint64_t value) const;  // a bijection on [0, 4^half_bits)

  uint64_t count_, seed_, epoch_;
  int half_bits_;
};

}  // namespace freeformer
