#include "core/dtype.h"

#include <array>

namespace freeformer {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int bits;
};

constexpr std::array kDTypes = {
    DTypeInfo{DType::kBool, "BOOL", 8},
    DTypeInfo{DType::kF4, "F4", 4},
    DTypeInfo{DType::kF6E2M3, "F6_E2M3", 6},
    DTypeInfo{DType::kF6E3M2, "F6_E3M2", 6},
    DTypeInfo{DType::kU8, "U8", 8},
    DTypeInfo{DType::kI8, "I8", 8},
    DTypeInfo{DType::kF8E5M2, "F8_E5M2", 8},
    DTypeInfo{DType::kF8E4M3, "F8_E4M3", 8},
    DTypeInfo{DType::kF8E8M0, "F8_E8M0", 8},
    DTypeInfo{DType::kF8E4M3FNUZ, "F8_E4M3FNUZ", 8},
    DTypeInfo{DType::kF8E5M2FNUZ, "F8_E5M2FNUZ", 8},
    DTypeInfo{DType::kI16, "I16", 16},
    DTypeInfo{DType::kU16, "U16", 16},
    DTypeInfo{DType::kF16, "F16", 16},
    DTypeInfo{DType::kBF16, "BF16", 16},
    DTypeInfo{DType::kI32, "I32", 32},
    DTypeInfo{DType::kU32, "U32", 32},
    DTypeInfo{DType::kF32, "F32", 32},
    DTypeInfo{DType::kC64, "C64", 64},
    DTypeInfo{DType::kF64, "F64", 64},
    DTypeInfo{DType::kI64, "I64", 64},
    DTypeInfo{DType::kU64, "U64", 64},
};

const DTypeInfo& info(DType dtype) { return kDTypes[size_t(dtype)]; }

}  // namespace

std::string_view name(DType dtype) { return info(dtype).name; }
int bit_size(DType dtype) { return info(dtype).bits; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const DTypeInfo& entry : kDTypes) {
    if (entry.name == name) return entry.dtype;
  }
  return std::nullopt;
}

}  // namespace freeformer
