// Rotary positions: in every head the pairs (x_i, x_{i+H/2}) are turned by their position's angles,
//
//   y_i = x_i cos - x_{i+H/2} sin      y_{i+H/2} = x_{i+H/2} cos + x_i sin.
//
// The backward pass is the inverse rotation. T is float or BFloat16; arithmetic is in fp32. Results
// do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "core/bfloat16.h"

namespace freeformer::kernels {

// x and y are [B, positions, N, H], dense; y may be x. cos and sin are [rows_of_table, positions,
// H/2]: one row for each sequence (B) or one for all (1). `inverse` turns back.
template <typename T>
void rope(const T* x_BTNH, const float* cos, const float* sin, int64_t B, int64_t positions,
          int64_t N, int64_t H, int64_t rows_of_table, bool inverse, T* y_BTNH);

}  // namespace freeformer::kernels
