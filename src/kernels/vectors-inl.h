// What the vector kernels share, per instruction set: loads and stores that convert bf16, loops
// that treat a row's tail like the rest of it, and exp. To be included after <hwy/highway.h> in a
// file that foreach_target compiles once per target; the guard is Highway's, and toggles.
#if defined(FREEFORMER_KERNELS_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FREEFORMER_KERNELS_VECTORS_INL_H_
#undef FREEFORMER_KERNELS_VECTORS_INL_H_
#else
#define FREEFORMER_KERNELS_VECTORS_INL_H_
#endif

#include <hwy/highway.h>
#include <cstdint>
#include <cstring>

#include "core/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace freeformer::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using FloatVector = hn::Vec<Floats>;

// --- Loads and stores, at any address ------------------------------------------------------------

// A bf16 is the upper half of a float.
HWY_INLINE FloatVector load_widened(Floats tag, const BFloat16* from) {
  const hn::Rebind<uint16_t, Floats> half;
  const hn::RebindToUnsigned<Floats> whole;
  const auto bits = hn::LoadU(half, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(tag, hn::ShiftLeft<16>(hn::PromoteTo(whole, bits)));
}
HWY_INLINE FloatVector load_widened(Floats tag, const float* from) { return hn::LoadU(tag, from); }

// Rounds as to_bfloat16 does: to nearest, ties to even, and a NaN stays one.
HWY_INLINE void store_narrowed(Floats, FloatVector value, BFloat16* to) {
  const hn::Rebind<uint16_t, Floats> half;
  const hn::RebindToUnsigned<Floats> whole;
  const hn::RebindToSigned<Floats> whole_signed;  // what DemoteTo takes
  const auto bits = hn::BitCast(whole, value);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(whole, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(whole, 0x7FFFu))));
  const auto quiet_nan = hn::Or(upper, hn::Set(whole, 0x40u));
  const auto result = hn::IfThenElse(hn::RebindMask(whole, hn::IsNaN(value)), quiet_nan, rounded);
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(whole_signed, result)), half,
             reinterpret_cast<uint16_t*>(to));
}
HWY_INLINE void store_narrowed(Floats tag, FloatVector value, float* to) {
  hn::StoreU(value, tag, to);
}

// --- Rows whose length is no multiple of the vector ----------------------------------------------

// How much of a vector there is.
struct Whole {};
struct Part {
  int64_t count;  // at least 1
};

template <typename T>
HWY_INLINE FloatVector load_widened(Floats tag, const T* from, Whole) {
  return load_widened(tag, from);
}
// Lanes beyond the part hold `fill`.
template <typename T>
HWY_INLINE FloatVector load_widened(Floats tag, const T* from, Part part, float fill = 0.0f) {
  HWY_ALIGN T lanes[hn::MaxLanes(Floats())];
  for (T& lane : lanes) lane = from_float<T>(fill);
  std::memcpy(lanes, from, size_t(part.count) * sizeof(T));
  return load_widened(tag, lanes);
}

template <typename T>
HWY_INLINE void store_narrowed(Floats tag, FloatVector value, T* to, Whole) {
  store_narrowed(tag, value, to);
}
template <typename T>
HWY_INLINE void store_narrowed(Floats tag, FloatVector value, T* to, Part part) {
  HWY_ALIGN T lanes[hn::MaxLanes(Floats())];
  store_narrowed(tag, value, lanes);
  std::memcpy(to, lanes, size_t(part.count) * sizeof(T));
}

// Calls body(i, Whole or Part) for every vector of [0, count), so that one body is both the loop
// and its tail, with the same arithmetic: [&](int64_t i, auto part) HWY_ATTR { … }.
template <typename Body>
HWY_INLINE void for_each_vector(int64_t count, const Body& body) {
  const auto lanes = int64_t(hn::Lanes(Floats()));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, Whole{});
  if (i < count) body(i, Part{count - i});
}

// The sum of body(i, Whole or Part) over all lanes of all vectors of [0, count). Four partial sums,
// so that additions need not wait for each other.
template <typename Body>
HWY_INLINE float sum_of_vectors(int64_t count, const Body& body) {
  const Floats tag;
  const auto lanes = int64_t(hn::Lanes(tag));
  auto sum0 = hn::Zero(tag), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    sum0 = hn::Add(sum0, body(i, Whole{}));
    sum1 = hn::Add(sum1, body(i + lanes, Whole{}));
    sum2 = hn::Add(sum2, body(i + 2 * lanes, Whole{}));
    sum3 = hn::Add(sum3, body(i + 3 * lanes, Whole{}));
  }
  for (; i + lanes <= count; i += lanes) sum0 = hn::Add(sum0, body(i, Whole{}));
  if (i < count) sum1 = hn::Add(sum1, body(i, Part{count - i}));
  return hn::GetLane(hn::SumOfLanes(tag, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

// --- Functions -----------------------------------------------------------------------------------

// max(x, bound) and min(x, bound), where a NaN in x stays one. That is what x86's instructions do,
// which return the second operand if either is NaN; elsewhere Highway drops the NaN.
HWY_INLINE FloatVector at_least(FloatVector x, FloatVector bound) {
#if HWY_ARCH_X86 && !(HWY_TARGET & (HWY_SCALAR | HWY_EMU128))
  return hn::Max(bound, x);
#else
  return hn::IfThenElse(hn::Lt(x, bound), bound, x);
#endif
}
HWY_INLINE FloatVector at_most(FloatVector x, FloatVector bound) {
#if HWY_ARCH_X86 && !(HWY_TARGET & (HWY_SCALAR | HWY_EMU128))
  return hn::Min(bound, x);
#else
  return hn::IfThenElse(hn::Gt(x, bound), bound, x);
#endif
}

// e^x for x <= 88 (beyond 88.37 the result is not defined), relative error below 2e-7; e^0 is 1.
// Below -87.3, where e^x is no longer a normal number, it is 0 or as good as that; so is e^-inf.
// A NaN stays one. Twelve instructions with FMA.
//
// x = n ln2 + r with |r| <= ln2 / 2; e^x = 2^n p(r). The minimax polynomial p = 1 + r + c2 r² + …
// has a relative error of 1.05e-7; ln2 is split so that n times its first part is exact.
HWY_INLINE FloatVector vector_exp(Floats tag, FloatVector x) {
  const hn::RebindToUnsigned<Floats> bits;
  x = at_least(x, hn::Set(tag, -88.0f));  // rounds to n = -127, whose 2^n is 0 below
  // Adding 1.5·2^23 leaves no bits for fractions: the sum's lowest bits are the rounded n, here
  // plus the exponent's bias, and a shift makes them the exponent of 2^n.
  const auto magic = hn::Set(tag, 12582912.0f + 127.0f);
  const auto shifted = hn::MulAdd(x, hn::Set(tag, 1.44269504f), magic);
  const auto n = hn::Sub(shifted, magic);
  auto r = hn::NegMulAdd(n, hn::Set(tag, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(tag, -2.12194440e-4f), r);
  auto p = hn::MulAdd(r, hn::Set(tag, 0.00831250101f), hn::Set(tag, 0.0418903306f));
  p = hn::MulAdd(p, r, hn::Set(tag, 0.166671157f));
  p = hn::MulAdd(p, r, hn::Set(tag, 0.499992311f));
  p = hn::MulAdd(p, r, hn::Set(tag, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(tag, 1.0f));
  return hn::Mul(p, hn::BitCast(tag, hn::ShiftLeft<23>(hn::BitCast(bits, shifted))));
}

}  // namespace freeformer::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
