#include "data/shuffle.h"

#include <bit>
#include <utility>

#include "core/error.h"
#include "core/philox.h"

namespace freeformer {
namespace {

// Four make a Feistel network of random functions hard to tell from a random permutation (Luby and
// Rackoff, 1988) when the halves are long. Ours may be two bits, which need more.
constexpr uint32_t kRounds = 8;

}  // namespace

Shuffle::Shuffle(uint64_t count, uint64_t seed, uint64_t epoch)
    : count_(count), seed_(seed), epoch_(epoch), half_bits_(0) {
  FF_CHECK(count > 0);
  half_bits_ = (int(std::bit_width(count - 1)) + 1) / 2;
}

uint64_t Shuffle::operator()(uint64_t index) const {
  FF_DCHECK(index < count_);
  // The walk ends: the cycle through `index` comes back to it, and it is below count.
  uint64_t value = encrypt(index);
  while (value >= count_) value = encrypt(value);
  return value;
}

uint64_t Shuffle::encrypt(uint64_t value) const {
  const RandomSource random(seed_, RandomStream::kData);
  const auto mask = uint32_t((uint64_t{1} << half_bits_) - 1);
  uint32_t left = uint32_t(value >> half_bits_), right = uint32_t(value) & mask;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const uint32_t noise = random.block(epoch_, right, data_index(DataUse::kShuffle, round))[0];
    left ^= noise & mask;
    std::swap(left, right);
  }
  return uint64_t{left} << half_bits_ | right;
}

}  // namespace freeformer
