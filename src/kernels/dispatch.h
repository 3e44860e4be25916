// For kernels that exist in two types: HWY_EXPORT knows names alone, so each of the two gets one,
//
//   constexpr auto& rows_f32 = rows<float>;      // per target
//   constexpr auto& rows_bf16 = rows<BFloat16>;
//
// and the template that callers use picks its own:
//
//   pick<T>(HWY_DYNAMIC_DISPATCH(rows_f32), HWY_DYNAMIC_DISPATCH(rows_bf16))(…)
#pragma once

#include <type_traits>

#include "core/bfloat16.h"

namespace freeformer::kernels {

template <typename T, typename F32, typename BF16>
auto pick(F32 f32, BF16 bf16) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, BFloat16>);
  if constexpr (std::is_same_v<T, float>) {
    return f32;
  } else {
    return bf16;
  }
}

}  // namespace freeformer::kernels
