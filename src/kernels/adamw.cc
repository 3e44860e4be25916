// Compiled once per instruction set by Highway: foreach_target includes this file again for each.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw.cc"
#include <hwy/cache_control.h>   // Prefetch
#include <hwy/foreach_target.h>  // first, so that all that follows is seen per target
#include <hwy/highway.h>

#include "kernels/adamw.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace freeformer::kernels::HWY_NAMESPACE {

// Elements begin to end.
static void adamw_range(const AdamWTensor& tensor, int64_t begin, int64_t end) {
  const Floats tag;
  float *master = tensor.master + begin, *m = tensor.m + begin, *v = tensor.v + begin;
  const float* gradient = tensor.gradient + begin;
  BFloat16* rounded = tensor.rounded == nullptr ? nullptr : tensor.rounded + begin;
  const auto gradient_scale = hn::Set(tag, tensor.gradient_scale);
  const auto beta1 = hn::Set(tag, tensor.beta1), rest1 = hn::Set(tag, tensor.rest1);
  const auto beta2 = hn::Set(tag, tensor.beta2), rest2 = hn::Set(tag, tensor.rest2);
  const auto kept = hn::Set(tag, float(1.0 - double(tensor.learning_rate) * double(tensor.decay)));
  const auto rate = hn::Set(tag, tensor.learning_rate / tensor.correction1);
  const auto inverse_correction2 = hn::Set(tag, 1.0f / tensor.correction2);
  const auto epsilon = hn::Set(tag, tensor.epsilon);
  for_each_vector(end - begin, [&](int64_t i, auto part) HWY_ATTR {
    const auto g = hn::Mul(load_widened(tag, gradient + i, part), gradient_scale);
    const auto new_m = hn::MulAdd(beta1, load_widened(tag, m + i, part), hn::Mul(rest1, g));
    const auto new_v =
        hn::MulAdd(beta2, load_widened(tag, v + i, part), hn::Mul(hn::Mul(rest2, g), g));
    const auto root = hn::Sqrt(hn::Mul(new_v, inverse_correction2));
    const auto step = hn::Div(hn::Mul(rate, new_m), hn::Add(root, epsilon));
    const auto w = hn::MulSub(kept, load_widened(tag, master + i, part), step);
    store_narrowed(tag, new_m, m + i, part);
    store_narrowed(tag, new_v, v + i, part);
    store_narrowed(tag, w, master + i, part);
    if (rounded != nullptr) store_narrowed(tag, w, rounded + i, part);
  });
}

static double sum_of_squares_range(const float* values, int64_t count) {
  // A page ahead, where the processor's own prefetching stops: half as much again in speed.
  constexpr int64_t kAhead = 1024;
  const hn::ScalableTag<double> wide;
  const hn::Rebind<float, decltype(wide)> narrow;
  const auto lanes = int64_t(hn::Lanes(wide));
  const auto load = [&](int64_t i)
                        HWY_ATTR { return hn::PromoteTo(wide, hn::LoadU(narrow, values + i)); };
  auto sum0 = hn::Zero(wide), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    hwy::Prefetch(values + i + kAhead);
    hwy::Prefetch(values + i + kAhead + 16);
    const auto v0 = load(i), v1 = load(i + lanes), v2 = load(i + 2 * lanes),
               v3 = load(i + 3 * lanes);
    sum0 = hn::MulAdd(v0, v0, sum0);
    sum1 = hn::MulAdd(v1, v1, sum1);
    sum2 = hn::MulAdd(v2, v2, sum2);
    sum3 = hn::MulAdd(v3, v3, sum3);
  }
  double sum = hn::GetLane(hn::SumOfLanes(wide, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  for (; i < count; ++i) sum += double(values[i]) * double(values[i]);
  return sum;
}

}  // namespace freeformer::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cpu.h"
#include "kernels/parallel.h"

namespace freeformer::kernels {
namespace {

HWY_EXPORT(adamw_range);
HWY_EXPORT(sum_of_squares_range);

// All tensors in pieces of kPiece elements, numbered through; only a tensor's last is shorter. The
// cuts are the same for any number of threads.
class Pieces {
 public:
  // count_of(i) elements in tensor i.
  template <typename CountOf>
  Pieces(size_t tensors, const CountOf& count_of) : first_(tensors + 1, 0) {
    for (size_t i = 0; i < tensors; ++i) {
      first_[i + 1] = first_[i] + (count_of(i) + kPiece - 1) / kPiece;
    }
  }

  int64_t count() const { return first_.back(); }

  // Calls body(piece, tensor, offset of the piece in it) for every piece, in parallel.
  template <typename Body>
  void for_each(const Body& body) const {
    parallel_for(count(), 1, [&](int64_t begin, int64_t end) {
      auto next = std::upper_bound(first_.begin(), first_.end(), begin);
      for (int64_t piece = begin; piece < end; ++piece) {
        while (*next <= piece) ++next;  // tensors without elements have no pieces
        const auto tensor = size_t(next - first_.begin() - 1);
        body(piece, tensor, (piece - first_[tensor]) * kPiece);
      }
    });
  }

  static constexpr int64_t kPiece = 16384;

 private:
  std::vector<int64_t> first_;  // piece of each tensor, and the end
};

}  // namespace

void adamw_update(std::span<const AdamWTensor> tensors) {
  active_isa();
  const Pieces pieces(tensors.size(), [&](size_t i) { return tensors[i].count; });
  pieces.for_each([&](int64_t, size_t i, int64_t begin) {
    HWY_DYNAMIC_DISPATCH(adamw_range)
    (tensors[i], begin, std::min(tensors[i].count, begin + Pieces::kPiece));
  });
}

double sum_of_squares(std::span<const std::span<const float>> tensors) {
  active_isa();
  const Pieces pieces(tensors.size(), [&](size_t i) { return int64_t(tensors[i].size()); });
  std::vector<double> sums(size_t(pieces.count()), 0.0);
  pieces.for_each([&](int64_t piece, size_t i, int64_t begin) {
    const auto count = std::min(Pieces::kPiece, int64_t(tensors[i].size()) - begin);
    sums[size_t(piece)] =
        HWY_DYNAMIC_DISPATCH(sum_of_squares_range)(tensors[i].data() + begin, count);
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace freeformer::kernels
#endif  // HWY_ONCE
