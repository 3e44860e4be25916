// The project's only source of randomness: Philox 4x32-10 (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). A number is a pure function of what it is for, never of
// how many were drawn before, so the bits of token t of sequence i are the same whatever the batch,
// the threads, the ranks or the backend.
#pragma once

#include <array>
#include <cstdint>

namespace freeformer {

using PhiloxBlock = std::array<uint32_t, 4>;

// Ten rounds on a 128-bit counter under a 64-bit key.
inline PhiloxBlock philox(PhiloxBlock counter, uint64_t key) {
  auto k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {uint32_t(b >> 32) ^ counter[1] ^ k0, uint32_t(b),
               uint32_t(a >> 32) ^ counter[3] ^ k1, uint32_t(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

// What a number is for. Streams never share a counter, so adding one leaves the others as they are.
enum class RandomStream : uint8_t {
  kLatent = 0,    // bits of the codes, from the posterior or the prior
  kToken = 1,     // choosing the next token
  kInit = 2,      // initial weights
  kData = 3,      // order of the data, synthetic tasks
  kGradient = 4,  // which tokens teach the encoder, where not all do
};

// The top 24 bits as a float in [0, 1): every value is exact and 1 is never reached.
inline float unit_float(uint32_t bits) { return float(bits >> 8) * 0x1p-24f; }

// The numbers of one stream under one seed. Key = seed; counter = (sequence, position, stream and
// index): all of it is in plain sight of the cipher, so no two uses can collide.
class RandomSource {
 public:
  RandomSource(uint64_t seed, RandomStream stream) : seed_(seed), stream_(stream) {}

  // Four numbers at once: index counts blocks of four and is below 2^24.
  PhiloxBlock block(uint64_t sequence, uint32_t position, uint32_t index) const {
    return philox({uint32_t(sequence), uint32_t(sequence >> 32), position,
                   uint32_t(stream_) << 24 | (index & 0xFFFFFF)},
                  seed_);
  }

  // `count` uniforms in [0, 1) for one position.
  void uniforms(uint64_t sequence, uint32_t position, int count, float* out) const {
    for (int i = 0; i < count; i += 4) {
      const PhiloxBlock numbers = block(sequence, position, uint32_t(i / 4));
      for (int j = i; j < i + 4 && j < count; ++j) out[j] = unit_float(numbers[j - i]);
    }
  }

 private:
  uint64_t seed_;
  RandomStream stream_;
};

}  // namespace freeformer
