// Compiled once per instruction set by Highway: foreach_target includes this file again for each.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/add.cc"
#include <hwy/foreach_target.h>  // first, so that all that follows is seen per target
#include <hwy/highway.h>

#include "kernels/add.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace freeformer::kernels::HWY_NAMESPACE {

template <typename T>
static void add_range(const T* a, const T* b, int64_t count, T* out) {
  const Floats tag;
  for_each_vector(count, [&](int64_t i, auto part) HWY_ATTR {
    const auto sum = hn::Add(load_widened(tag, a + i, part), load_widened(tag, b + i, part));
    store_narrowed(tag, sum, out + i, part);
  });
}
constexpr auto& add_range_f32 = add_range<float>;
constexpr auto& add_range_bf16 = add_range<BFloat16>;

}  // namespace freeformer::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu.h"
#include "kernels/dispatch.h"
#include "kernels/parallel.h"
#include "kernels/vector_ops.h"

namespace freeformer::kernels {
namespace {

HWY_EXPORT(add_range_f32);
HWY_EXPORT(add_range_bf16);

constexpr int64_t kGrain = 16384;
constexpr int64_t kColumns = 64;  // of a table's rows: a few cache lines

}  // namespace

template <typename T>
void add(const T* a, const T* b, int64_t count, T* out) {
  active_isa();
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    pick<T>(HWY_DYNAMIC_DISPATCH(add_range_f32), HWY_DYNAMIC_DISPATCH(add_range_bf16))(
        a + begin, b + begin, end - begin, out + begin);
  });
}

template <typename T>
void embedding_backward(const int64_t* index_M, const T* grad_MD, int64_t M, int64_t D,
                        float* dtable_VD) {
  active_isa();
  // Each thread has its own columns of all rows, so tokens with the same index never meet.
  parallel_for(D, kColumns, [&](int64_t begin, int64_t end) {
    for (int64_t m = 0; m < M; ++m) {
      accumulate(grad_MD + m * D + begin, end - begin, dtable_VD + index_M[m] * D + begin);
    }
  });
}

template void add(const float*, const float*, int64_t, float*);
template void add(const BFloat16*, const BFloat16*, int64_t, BFloat16*);
template void embedding_backward(const int64_t*, const float*, int64_t, int64_t, float*);
template void embedding_backward(const int64_t*, const BFloat16*, int64_t, int64_t, float*);

}  // namespace freeformer::kernels
#endif  // HWY_ONCE
