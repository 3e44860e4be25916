// The product that all others are made of, per instruction set: a small matrix against rows that
// are contiguous, held in registers. To be included like vectors-inl.h.
#if defined(FREEFORMER_KERNELS_MULTIPLY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FREEFORMER_KERNELS_MULTIPLY_INL_H_
#undef FREEFORMER_KERNELS_MULTIPLY_INL_H_
#else
#define FREEFORMER_KERNELS_MULTIPLY_INL_H_
#endif

#include <hwy/highway.h>
#include <cstdint>

#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace freeformer::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// c [R, C vectors] (+)= a [R, K] · b [K, C vectors], held in registers.
template <int R, int C>
HWY_INLINE void multiply_tile(const float* HWY_RESTRICT a, int64_t a_row, int64_t a_column,
                              const float* HWY_RESTRICT b, int64_t b_row, float* HWY_RESTRICT c,
                              int64_t c_row, int64_t K, bool accumulate) {
  const Floats tag;
  const auto lanes = int64_t(hn::Lanes(tag));
  FloatVector sum[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < C; ++i) {
      sum[r][i] = accumulate ? hn::LoadU(tag, c + r * c_row + i * lanes) : hn::Zero(tag);
    }
  }
  for (int64_t k = 0; k < K; ++k) {
    FloatVector row[C];
#pragma GCC unroll 8
    for (int i = 0; i < C; ++i) row[i] = hn::LoadU(tag, b + k * b_row + i * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const auto factor = hn::Set(tag, a[r * a_row + k * a_column]);
#pragma GCC unroll 8
      for (int i = 0; i < C; ++i) sum[r][i] = hn::MulAdd(factor, row[i], sum[r][i]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int i = 0; i < C; ++i) hn::StoreU(sum[r][i], tag, c + r * c_row + i * lanes);
  }
}

template <int C>
HWY_INLINE void multiply_columns(const float* a, int64_t a_row, int64_t a_column, const float* b,
                                 int64_t b_row, float* c, int64_t c_row, int64_t rows, int64_t K,
                                 bool accumulate) {
  int64_t r = 0;
  for (; r + 6 <= rows; r += 6) {
    multiply_tile<6, C>(a + r * a_row, a_row, a_column, b, b_row, c + r * c_row, c_row, K,
                        accumulate);
  }
  for (; r + 2 <= rows; r += 2) {
    multiply_tile<2, C>(a + r * a_row, a_row, a_column, b, b_row, c + r * c_row, c_row, K,
                        accumulate);
  }
  if (r < rows) {
    multiply_tile<1, C>(a + r * a_row, a_row, a_column, b, b_row, c + r * c_row, c_row, K,
                        accumulate);
  }
}

// c [rows, columns] (+)= a [rows, K] · b [K, columns]; a's element (r, k) is at r·a_row +
// k·a_column; columns is a multiple of the vector.
static void multiply(const float* a, int64_t a_row, int64_t a_column, const float* b, int64_t b_row,
                     float* c, int64_t c_row, int64_t rows, int64_t columns, int64_t K,
                     bool accumulate) {
  const auto lanes = int64_t(hn::Lanes(Floats()));
  // As many accumulators as there are registers: 6·4 of 32, or 6·2 of 16.
  constexpr int kWide = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
  const int64_t whole = columns / (kWide * lanes) * (kWide * lanes);
  for (int64_t i = 0; i < whole; i += kWide * lanes) {
    multiply_columns<kWide>(a, a_row, a_column, b + i, b_row, c + i, c_row, rows, K, accumulate);
  }
  for (int64_t i = whole; i < columns; i += lanes) {
    multiply_columns<1>(a, a_row, a_column, b + i, b_row, c + i, c_row, rows, K, accumulate);
  }
}

}  // namespace freeformer::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the guard
