#include "core/crc32c.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace freeformer {
namespace {

using Bytes = std::vector<std::byte>;

// One bit at a time, straight from the definition.
uint32_t bitwise_crc32c(std::span<const std::byte> bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const std::byte b : bytes) {
    crc ^= uint32_t(b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
  }
  return ~crc;
}

// No two bytes near each other are alike, and the high bits are in use.
Bytes scrambled(size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = std::byte(i * 167 + 91);
  return bytes;
}

uint32_t of_text(std::string_view text) { return crc32c(std::as_bytes(std::span(text))); }

// RFC 3720, appendix B.4; the checksum's bytes are printed there in the order they are sent, least
// significant first.
TEST(Crc32c, GivesTheExamplesOfRfc3720) {
  EXPECT_EQ(crc32c(Bytes(32, std::byte(0))), 0x8A9136AA);
  EXPECT_EQ(crc32c(Bytes(32, std::byte(0xFF))), 0x62A8AB43);
  Bytes rising(32), falling(32);
  for (size_t i = 0; i < 32; ++i) rising[i] = falling[31 - i] = std::byte(i);
  EXPECT_EQ(crc32c(rising), 0x46DD794E);
  EXPECT_EQ(crc32c(falling), 0x113FDB5C);
  Bytes read_command(48, std::byte(0));
  read_command[0] = std::byte(0x01);
  read_command[1] = std::byte(0xC0);
  read_command[16] = std::byte(0x14);
  read_command[22] = std::byte(0x04);
  read_command[27] = std::byte(0x14);
  read_command[31] = std::byte(0x18);
  read_command[32] = std::byte(0x28);
  read_command[40] = std::byte(0x02);
  EXPECT_EQ(crc32c(read_command), 0xD9963A56);
}

TEST(Crc32c, GivesTheUsualCheckValue) { EXPECT_EQ(of_text("123456789"), 0xE3069283); }

TEST(Crc32c, OfNothingIsZero) { EXPECT_EQ(of_text(""), 0); }

TEST(Crc32c, AgreesWithTheDefinitionForEveryLengthAndAddress) {
  const Bytes bytes = scrambled(48);
  for (size_t begin = 0; begin < 8; ++begin) {
    for (size_t size = 0; size <= 40; ++size) {
      const auto part = std::span(bytes).subspan(begin, size);
      EXPECT_EQ(crc32c(part), bitwise_crc32c(part)) << size << " bytes from " << begin;
    }
  }
}

TEST(Crc32c, GoesOnFromWhereItStopped) {
  const Bytes bytes = scrambled(40);
  const std::span<const std::byte> all(bytes);
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), bitwise_crc32c(all)) << cut;
  }
}

TEST(Crc32c, SeesEveryFlippedBit) {
  Bytes bytes = scrambled(21);
  const uint32_t before = crc32c(bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
    EXPECT_NE(crc32c(bytes), before) << bit;
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
  }
}

}  // namespace
}  // namespace freeformer
