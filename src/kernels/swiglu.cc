// Compiled once per instruction set by Highway: foreach_target includes this file again for each.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/swiglu.cc"
#include <hwy/foreach_target.h>  // first, so that all that follows is seen per target
#include <hwy/highway.h>

#include "kernels/swiglu.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace freeformer::kernels::HWY_NAMESPACE {

// e^-g, at most e^87: then neither it nor σ = 1 / (1 + e^-g) leaves the normal numbers, and the two
// multiply to 1-σ without cancellation. For g < -87 that makes σ 1.6e-38, which is 0 for the sums
// it will be part of.
HWY_INLINE FloatVector exp_of_negative(Floats tag, FloatVector gate) {
  return vector_exp(tag, at_most(hn::Neg(gate), hn::Set(tag, 87.0f)));
}

template <typename T>
static void swiglu_range(const T* gate, const T* up, int64_t count, T* y) {
  const Floats tag;
  const auto one = hn::Set(tag, 1.0f);
  for_each_vector(count, [&](int64_t i, auto part) HWY_ATTR {
    const auto g = load_widened(tag, gate + i, part);
    const auto silu = hn::Div(g, hn::Add(one, exp_of_negative(tag, g)));
    store_narrowed(tag, hn::Mul(silu, load_widened(tag, up + i, part)), y + i, part);
  });
}
constexpr auto& swiglu_range_f32 = swiglu_range<float>;
constexpr auto& swiglu_range_bf16 = swiglu_range<BFloat16>;

template <typename T>
static void swiglu_backward_range(const T* gate, const T* up, const T* dy, int64_t count, T* dgate,
                                  T* dup) {
  const Floats tag;
  const auto one = hn::Set(tag, 1.0f);
  for_each_vector(count, [&](int64_t i, auto part) HWY_ATTR {
    const auto g = load_widened(tag, gate + i, part);
    const auto u = load_widened(tag, up + i, part);
    const auto e = exp_of_negative(tag, g);
    const auto sigmoid = hn::Div(one, hn::Add(one, e));
    const auto derivative = hn::MulAdd(g, hn::Mul(e, sigmoid), one);  // of g σ, over σ
    const auto scaled = hn::Mul(load_widened(tag, dy + i, part), sigmoid);
    store_narrowed(tag, hn::Mul(hn::Mul(scaled, u), derivative), dgate + i, part);
    store_narrowed(tag, hn::Mul(scaled, g), dup + i, part);
  });
}
constexpr auto& swiglu_backward_range_f32 = swiglu_backward_range<float>;
constexpr auto& swiglu_backward_range_bf16 = swiglu_backward_range<BFloat16>;

}  // namespace freeformer::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu.h"
#include "kernels/dispatch.h"
#include "kernels/parallel.h"

namespace freeformer::kernels {
namespace {

HWY_EXPORT(swiglu_range_f32);
HWY_EXPORT(swiglu_range_bf16);
HWY_EXPORT(swiglu_backward_range_f32);
HWY_EXPORT(swiglu_backward_range_bf16);

constexpr int64_t kGrain = 8192;  // whole vectors, so that threads cut no vector in two

}  // namespace

template <typename T>
void swiglu(const T* gate, const T* up, int64_t count, T* y) {
  active_isa();
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    pick<T>(HWY_DYNAMIC_DISPATCH(swiglu_range_f32), HWY_DYNAMIC_DISPATCH(swiglu_range_bf16))(
        gate + begin, up + begin, end - begin, y + begin);
  });
}

template <typename T>
void swiglu_backward(const T* gate, const T* up, const T* dy, int64_t count, T* dgate, T* dup) {
  active_isa();
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    pick<T>(HWY_DYNAMIC_DISPATCH(swiglu_backward_range_f32),
            HWY_DYNAMIC_DISPATCH(swiglu_backward_range_bf16))(
        gate + begin, up + begin, dy + begin, end - begin, dgate + begin, dup + begin);
  });
}

template void swiglu(const float*, const float*, int64_t, float*);
template void swiglu(const BFloat16*, const BFloat16*, int64_t, BFloat16*);
template void swiglu_backward(const float*, const float*, const float*, int64_t, float*, float*);
template void swiglu_backward(const BFloat16*, const BFloat16*, const BFloat16*, int64_t, BFloat16*,
                              BFloat16*);

}  // namespace freeformer::kernels
#endif  // HWY_ONCE
