// The element types of safetensors, by the format's own names and in its own order: narrow to wide.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace freeformer {

enum class DType : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

std::string_view name(DType dtype);
int bit_size(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);

}  // namespace freeformer
