// Compiled once per instruction set by Highway: foreach_target includes this file again for each.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/vector_ops.cc"
#include <hwy/foreach_target.h>  // first, so that all that follows is seen per target
#include <hwy/highway.h>

#include "kernels/vector_ops.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace freeformer::kernels::HWY_NAMESPACE {
static void widen(const BFloat16* from, int64_t count, float* to) {
  const Floats tag;
  const auto lanes = int64_t(hn::Lanes(tag));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load_widened(tag, from + i), tag, to + i);
  for (; i < count; ++i) to[i] = to_float(from[i]);
}

static void narrow(const float* from, int64_t count, BFloat16* to) {
  const Floats tag;
  const auto lanes = int64_t(hn::Lanes(tag));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store_narrowed(tag, hn::LoadU(tag, from + i), to + i);
  for (; i < count; ++i) to[i] = to_bfloat16(from[i]);
}

template <typename T>
HWY_INLINE void accumulate_any(const T* from, int64_t count, float* to) {
  const Floats tag;
  const auto lanes = int64_t(hn::Lanes(tag));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(tag, to + i), load_widened(tag, from + i)), tag, to + i);
  }
  for (; i < count; ++i) to[i] += to_float(from[i]);
}
static void accumulate_f32(const float* from, int64_t count, float* to) {
  accumulate_any(from, count, to);
}
static void accumulate_bf16(const BFloat16* from, int64_t count, float* to) {
  accumulate_any(from, count, to);
}

static void bit_probability_heap(const float* p, const float* q, int bits, float* heap) {
  const Floats tag;
  const auto lanes = int64_t(hn::Lanes(tag));
  heap[1] = 1.0f;
  for (int h = 1; h < bits; ++h) {
    // The lower half of the new level has bit h-1 clear, the upper half has it set.
    const int64_t half = int64_t{1} << (h - 1);
    const float* from = heap + half;
    float* low = heap + 2 * half;
    float* high = low + half;
    const auto p_vector = hn::Set(tag, p[h - 1]), q_vector = hn::Set(tag, q[h - 1]);
    int64_t j = 0;
    for (; j + lanes <= half; j += lanes) {
      const auto value = hn::LoadU(tag, from + j);
      hn::StoreU(hn::Mul(value, q_vector), tag, low + j);
      hn::StoreU(hn::Mul(value, p_vector), tag, high + j);
    }
    for (; j < half; ++j) {
      low[j] = from[j] * q[h - 1];
      high[j] = from[j] * p[h - 1];
    }
  }
}

static float fold_bits(const float* values, int bits, const float* p, const float* q,
                       const float* heap, float weight, float* scratch, float* derivatives) {
  const Floats tag;
  const auto lanes = int64_t(hn::Lanes(tag));
  const float* from = values;
  for (int h = bits - 1; h >= 0; --h) {
    // The highest bit left pairs j with j + half: both sides are contiguous.
    const int64_t half = int64_t{1} << h;
    const float* high = from + half;
    const float* weights = heap + half;
    const auto p_vector = hn::Set(tag, p[h]), q_vector = hn::Set(tag, q[h]);
    auto sum = hn::Zero(tag);
    int64_t j = 0;
    for (; j + lanes <= half; j += lanes) {
      const auto v0 = hn::LoadU(tag, from + j), v1 = hn::LoadU(tag, high + j);
      sum = hn::MulAdd(hn::LoadU(tag, weights + j), hn::Sub(v1, v0), sum);
      hn::StoreU(hn::MulAdd(v1, p_vector, hn::Mul(v0, q_vector)), tag, scratch + j);
    }
    float derivative = j == 0 ? 0.0f : hn::GetLane(hn::SumOfLanes(tag, sum));
    for (; j < half; ++j) {
      const float v0 = from[j], v1 = high[j];
      derivative += weights[j] * (v1 - v0);
      scratch[j] = v1 * p[h] + v0 * q[h];
    }
    derivatives[h] += weight * derivative;
    from = scratch;
  }
  return from[0];
}

}  // namespace freeformer::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace freeformer::kernels {

HWY_EXPORT(widen);
HWY_EXPORT(narrow);
HWY_EXPORT(accumulate_f32);
HWY_EXPORT(accumulate_bf16);
HWY_EXPORT(bit_probability_heap);
HWY_EXPORT(fold_bits);

void widen(const BFloat16* from, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(widen)(from, count, to);
}
void narrow(const float* from, int64_t count, BFloat16* to) {
  HWY_DYNAMIC_DISPATCH(narrow)(from, count, to);
}
void accumulate(const float* from, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(accumulate_f32)(from, count, to);
}
void accumulate(const BFloat16* from, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(accumulate_bf16)(from, count, to);
}
void bit_probability_heap(const float* p, const float* q, int bits, float* heap) {
  HWY_DYNAMIC_DISPATCH(bit_probability_heap)(p, q, bits, heap);
}
float fold_bits(const float* values, int bits, const float* p, const float* q, const float* heap,
                float weight, float* scratch, float* derivatives) {
  return HWY_DYNAMIC_DISPATCH(fold_bits)(values, bits, p, q, heap, weight, scratch, derivatives);
}

}  // namespace freeformer::kernels
#endif  // HWY_ONCE
