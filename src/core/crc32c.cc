#include "core/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace freeformer {
namespace {

// Eight bytes a step ("slicing by 8"): table[k][b] is the checksum of byte b followed by k zeros.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t b = 0; b < 256; ++b) {
      const uint32_t crc = tables[k - 1][b];
      tables[k][b] = crc >> 8 ^ tables[0][crc & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t crc = ~before;
  while (bytes.size() >= 8) {
    uint64_t word = 0;
    for (size_t i = 0; i < 8; ++i)
      word |= uint64_t(bytes[i]) << 8 * i;  // one load on little-endian
    word ^= crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= kTables[7 - i][word >> 8 * i & 0xFF];
    bytes = bytes.subspan(8);
  }
  for (const std::byte b : bytes) crc = crc >> 8 ^ kTables[0][(crc ^ uint32_t(b)) & 0xFF];
  return ~crc;
}

}  // namespace freeformer
