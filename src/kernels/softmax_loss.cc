// Compiled once per instruction set by Highway: foreach_target includes this file again for each.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/softmax_loss.cc"
#include <hwy/cache_control.h>   // Prefetch
#include <hwy/foreach_target.h>  // first, so that all that follows is seen per target
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/softmax_loss.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace freeformer::kernels::HWY_NAMESPACE {

// A tail is filled with -inf, which neither the largest nor the sum of exponentials notices.
HWY_INLINE FloatVector load_logits(Floats tag, const float* from, Whole) {
  return hn::LoadU(tag, from);
}
HWY_INLINE FloatVector load_logits(Floats tag, const float* from, Part part) {
  return load_widened(tag, from, part, -std::numeric_limits<float>::infinity());
}

HWY_INLINE float largest_of(const float* values, int64_t count) {
  const Floats tag;
  const auto lanes = int64_t(hn::Lanes(tag));
  auto max0 = hn::Set(tag, -std::numeric_limits<float>::infinity()), max1 = max0;
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    max0 = hn::Max(max0, hn::LoadU(tag, values + i));
    max1 = hn::Max(max1, hn::LoadU(tag, values + i + lanes));
  }
  for_each_vector(count - i, [&](int64_t j, auto part) HWY_ATTR {
    max0 = hn::Max(max0, load_logits(tag, values + i + j, part));
  });
  return hn::GetLane(hn::MaxOfLanes(tag, hn::Max(max0, max1)));
}

// Returns the row's loss. gradient may be nullptr, or logits.
template <typename T>
static float softmax_loss_row(const float* logits, int64_t target, int64_t V, T* gradient) {
  constexpr int64_t kChunk = 1024;  // stays in the L1 cache between the search and the sum
  const Floats tag;
  float largest = -std::numeric_limits<float>::infinity();
  float shift = 0.0f;  // the largest, but finite as long as that is -inf
  double sum = 0.0;    // of exp(logit - shift), over what was read
  for (int64_t begin = 0; begin < V; begin += kChunk) {
    const float* chunk = logits + begin;
    const int64_t count = std::min(kChunk, V - begin);
    if (const float found = largest_of(chunk, count); found > largest) {
      if (sum > 0) sum *= std::exp(double(shift) - double(found));  // else 0 · inf, far below 0
      largest = shift = found;
    }
    const auto shift_vector = hn::Set(tag, shift);
    sum += sum_of_vectors(count, [&](int64_t i, auto part) HWY_ATTR {
      hwy::Prefetch(chunk + i + kChunk);  // the next search's memory, while this is arithmetic
      return vector_exp(tag, hn::Sub(load_logits(tag, chunk + i, part), shift_vector));
    });
  }
  const double nll = std::log(sum) + (double(shift) - double(logits[target]));
  if (gradient != nullptr) {
    const auto shift_vector = hn::Set(tag, shift), scale = hn::Set(tag, float(1.0 / sum));
    for_each_vector(V, [&](int64_t i, auto part) HWY_ATTR {
      const auto power =
          vector_exp(tag, hn::Sub(load_widened(tag, logits + i, part), shift_vector));
      store_narrowed(tag, hn::Mul(power, scale), gradient + i, part);
    });
    // p - 1 = e^-nll - 1, without the cancellation that p in few bits would suffer.
    gradient[target] = from_float<T>(float(std::expm1(-nll)));
  }
  return float(nll);
}
constexpr auto& softmax_loss_row_f32 = softmax_loss_row<float>;
constexpr auto& softmax_loss_row_bf16 = softmax_loss_row<BFloat16>;

}  // namespace freeformer::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/error.h"
#include "kernels/cpu.h"
#include "kernels/dispatch.h"
#include "kernels/parallel.h"

namespace freeformer::kernels {
namespace {

HWY_EXPORT(softmax_loss_row_f32);
HWY_EXPORT(softmax_loss_row_bf16);

constexpr int64_t kGrain = 8192;  // logits: less is done before another thread has woken up

}  // namespace

template <typename T>
void softmax_loss(const float* logits_MV, int64_t logits_stride, const int64_t* targets_M,
                  int64_t M, int64_t V, float* nll_M, T* gradient_MV, int64_t gradient_stride) {
  active_isa();
  parallel_for(M, std::max<int64_t>(1, kGrain / V), [&](int64_t begin, int64_t end) {
    const auto row = pick<T>(HWY_DYNAMIC_DISPATCH(softmax_loss_row_f32),
                             HWY_DYNAMIC_DISPATCH(softmax_loss_row_bf16));
    for (int64_t m = begin; m < end; ++m) {
      T* gradient = gradient_MV == nullptr ? nullptr : gradient_MV + m * gradient_stride;
      if (targets_M[m] == kIgnoredTarget) {
        nll_M[m] = 0.0f;
        if (gradient != nullptr) std::fill_n(gradient, V, T());
        continue;
      }
      if (targets_M[m] < 0 || targets_M[m] >= V) {
        fail(ErrorCode::kInvalidArgument,
             "target {} of row {}, expected 0 to {} or {} to ignore it", targets_M[m], m, V - 1,
             kIgnoredTarget);
      }
      nll_M[m] = row(logits_MV + m * logits_stride, targets_M[m], V, gradient);
    }
  });
}

void softmax_loss(const float* logits_MV, int64_t logits_stride, const int64_t* targets_M,
                  int64_t M, int64_t V, float* nll_M) {
  softmax_loss<float>(logits_MV, logits_stride, targets_M, M, V, nll_M, nullptr, 0);
}

template void softmax_loss(const float*, int64_t, const int64_t*, int64_t, int64_t, float*, float*,
                           int64_t);
template void softmax_loss(const float*, int64_t, const int64_t*, int64_t, int64_t, float*,
                           BFloat16*, int64_t);

}  // namespace freeformer::kernels
#endif  // HWY_ONCE
