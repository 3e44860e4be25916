// A row is read from memory once: the second loop over it finds it in the cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm.cc"
#include <hwy/cache_control.h>   // Prefetch
#include <hwy/foreach_target.h>  // first, so that all that follows is seen per target
#include <hwy/highway.h>

#include <cmath>

#include "kernels/rms_norm.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace freeformer::kernels::HWY_NAMESPACE {

// Rows begin to end.
template <typename T>
static void rms_norm_rows(const T* x_MD, const T* weight_D, int64_t begin, int64_t end, int64_t D,
                          float eps, T* y_MD, float* inverse_rms_M) {
  const Floats tag;
  for (int64_t m = begin; m < end; ++m) {
    const T* x = x_MD + m * D;
    T* y = y_MD + m * D;
    const float sum = sum_of_vectors(D, [&](int64_t i, auto part) HWY_ATTR {
      const auto value = load_widened(tag, x + i, part);
      return hn::Mul(value, value);
    });
    const float inverse_rms = 1.0f / std::sqrt(sum / float(D) + eps);
    if (inverse_rms_M != nullptr) inverse_rms_M[m] = inverse_rms;
    const auto factor = hn::Set(tag, inverse_rms);
    for_each_vector(D, [&](int64_t i, auto part) HWY_ATTR {
      hwy::Prefetch(x + i + D);  // the next row
      const auto normal = hn::Mul(load_widened(tag, x + i, part), factor);
      store_narrowed(tag, hn::Mul(normal, load_widened(tag, weight_D + i, part)), y + i, part);
    });
  }
}
constexpr auto& rms_norm_rows_f32 = rms_norm_rows<float>;
constexpr auto& rms_norm_rows_bf16 = rms_norm_rows<BFloat16>;

// Rows begin to end; adds their part of the weight's gradient to dweight_D.
template <typename T>
static void rms_norm_backward_rows(const T* x_MD, const T* weight_D, const float* inverse_rms_M,
                                   const T* dy_MD, int64_t begin, int64_t end, int64_t D, T* dx_MD,
                                   float* dweight_D) {
  const Floats tag;
  for (int64_t m = begin; m < end; ++m) {
    const T *x = x_MD + m * D, *dy = dy_MD + m * D;
    const float r = inverse_rms_M[m];
    const auto r_vector = hn::Set(tag, r);
    const float sum = sum_of_vectors(D, [&](int64_t i, auto part) HWY_ATTR {
      const auto product = hn::Mul(load_widened(tag, x + i, part), load_widened(tag, dy + i, part));
      if (dweight_D != nullptr) {
        const auto before = load_widened(tag, dweight_D + i, part);
        store_narrowed(tag, hn::MulAdd(product, r_vector, before), dweight_D + i, part);
      }
      return hn::Mul(product, load_widened(tag, weight_D + i, part));
    });
    if (dx_MD == nullptr) continue;
    T* dx = dx_MD + m * D;
    const auto along_x = hn::Set(tag, r * r * (sum / float(D)));
    for_each_vector(D, [&](int64_t i, auto part) HWY_ATTR {
      hwy::Prefetch(x + i + D);
      hwy::Prefetch(dy + i + D);
      const auto direct =
          hn::Mul(load_widened(tag, weight_D + i, part), load_widened(tag, dy + i, part));
      const auto inner = hn::NegMulAdd(load_widened(tag, x + i, part), along_x, direct);
      store_narrowed(tag, hn::Mul(inner, r_vector), dx + i, part);
    });
  }
}
constexpr auto& rms_norm_backward_rows_f32 = rms_norm_backward_rows<float>;
constexpr auto& rms_norm_backward_rows_bf16 = rms_norm_backward_rows<BFloat16>;

}  // namespace freeformer::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <vector>

#include "kernels/cpu.h"
#include "kernels/dispatch.h"
#include "kernels/parallel.h"
#include "kernels/vector_ops.h"

namespace freeformer::kernels {
namespace {

HWY_EXPORT(rms_norm_rows_f32);
HWY_EXPORT(rms_norm_rows_bf16);
HWY_EXPORT(rms_norm_backward_rows_f32);
HWY_EXPORT(rms_norm_backward_rows_bf16);

constexpr int64_t kGrain = 16;
// Rows whose gradients of the weight are summed before blocks are, in their order: the same sums
// whoever computes the blocks.
constexpr int64_t kBlock = 64;

}  // namespace

template <typename T>
void rms_norm(const T* x_MD, const T* weight_D, int64_t M, int64_t D, float eps, T* y_MD,
              float* inverse_rms_M) {
  active_isa();
  parallel_for(M, kGrain, [&](int64_t begin, int64_t end) {
    pick<T>(HWY_DYNAMIC_DISPATCH(rms_norm_rows_f32), HWY_DYNAMIC_DISPATCH(rms_norm_rows_bf16))(
        x_MD, weight_D, begin, end, D, eps, y_MD, inverse_rms_M);
  });
}

template <typename T>
void rms_norm_backward(const T* x_MD, const T* weight_D, const float* inverse_rms_M, const T* dy_MD,
                       int64_t M, int64_t D, T* dx_MD, float* dweight_D) {
  active_isa();
  const int64_t blocks = (M + kBlock - 1) / kBlock;
  std::vector<float> sums;  // [blocks, D]
  if (dweight_D != nullptr) sums.assign(size_t(blocks * D), 0.0f);
  parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      pick<T>(HWY_DYNAMIC_DISPATCH(rms_norm_backward_rows_f32),
              HWY_DYNAMIC_DISPATCH(rms_norm_backward_rows_bf16))(
          x_MD, weight_D, inverse_rms_M, dy_MD, block * kBlock, std::min(M, (block + 1) * kBlock),
          D, dx_MD, dweight_D == nullptr ? nullptr : sums.data() + block * D);
    }
  });
  if (dweight_D == nullptr) return;
  std::fill_n(dweight_D, D, 0.0f);
  for (int64_t block = 0; block < blocks; ++block) {
    accumulate(sums.data() + block * D, D, dweight_D);
  }
}

template void rms_norm(const float*, const float*, int64_t, int64_t, float, float*, float*);
template void rms_norm(const BFloat16*, const BFloat16*, int64_t, int64_t, float, BFloat16*,
                       float*);
template void rms_norm_backward(const float*, const float*, const float*, const float*, int64_t,
                                int64_t, float*, float*);
template void rms_norm_backward(const BFloat16*, const BFloat16*, const float*, const BFloat16*,
                                int64_t, int64_t, BFloat16*, float*);

}  // namespace freeformer::kernels
#endif  // HWY_ONCE
