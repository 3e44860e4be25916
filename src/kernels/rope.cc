// Compiled once per instruction set by Highway: foreach_target includes this file again for each.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope.cc"
#include <hwy/foreach_target.h>  // first, so that all that follows is seen per target
#include <hwy/highway.h>

#include "kernels/rope.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace freeformer::kernels::HWY_NAMESPACE {

// One position: all heads x and y [N, H] turn by the same angles, cos and sin [H/2].
template <typename T>
static void rope_position(const T* x_NH, const float* cos, const float* sin, int64_t N, int64_t H,
                          float direction, T* y_NH) {
  const Floats tag;
  const int64_t half = H / 2;
  const auto direction_vector = hn::Set(tag, direction);
  for (int64_t n = 0; n < N; ++n) {
    const T* x = x_NH + n * H;
    T* y = y_NH + n * H;
    for_each_vector(half, [&](int64_t i, auto part) HWY_ATTR {
      const auto c = load_widened(tag, cos + i, part);
      const auto s = hn::Mul(load_widened(tag, sin + i, part), direction_vector);
      const auto x1 = load_widened(tag, x + i, part);
      const auto x2 = load_widened(tag, x + half + i, part);
      store_narrowed(tag, hn::NegMulAdd(x2, s, hn::Mul(x1, c)), y + i, part);
      store_narrowed(tag, hn::MulAdd(x1, s, hn::Mul(x2, c)), y + half + i, part);
    });
  }
}
constexpr auto& rope_position_f32 = rope_position<float>;
constexpr auto& rope_position_bf16 = rope_position<BFloat16>;

}  // namespace freeformer::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/error.h"
#include "kernels/cpu.h"
#include "kernels/dispatch.h"
#include "kernels/parallel.h"

namespace freeformer::kernels {
namespace {

HWY_EXPORT(rope_position_f32);
HWY_EXPORT(rope_position_bf16);

constexpr int64_t kGrain = 16;

}  // namespace

template <typename T>
void rope(const T* x_BTNH, const float* cos, const float* sin, int64_t B, int64_t positions,
          int64_t N, int64_t H, int64_t rows_of_table, bool inverse, T* y_BTNH) {
  FF_CHECK(H % 2 == 0 && (rows_of_table == 1 || rows_of_table == B));
  active_isa();
  const int64_t table_positions = rows_of_table * positions;
  parallel_for(B * positions, kGrain, [&](int64_t begin, int64_t end) {
    const auto turn =
        pick<T>(HWY_DYNAMIC_DISPATCH(rope_position_f32), HWY_DYNAMIC_DISPATCH(rope_position_bf16));
    for (int64_t position = begin; position < end; ++position) {
      const int64_t angles = position % table_positions * (H / 2);
      turn(x_BTNH + position * N * H, cos + angles, sin + angles, N, H, inverse ? -1.0f : 1.0f,
           y_BTNH + position * N * H);
    }
  });
}

template void rope(const float*, const float*, const float*, int64_t, int64_t, int64_t, int64_t,
                   int64_t, bool, float*);
template void rope(const BFloat16*, const float*, const float*, int64_t, int64_t, int64_t, int64_t,
                   int64_t, bool, BFloat16*);

}  // namespace freeformer::kernels
#endif  // HWY_ONCE
