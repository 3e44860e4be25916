// CRC-32C (Castagnoli): the checksum of TensorBoard's records and of our checkpoints' files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace freeformer {

// Of `bytes`, going on from the checksum of what came before them.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace freeformer
