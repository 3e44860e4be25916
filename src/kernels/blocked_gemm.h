// Our own matrix product in fp32 arithmetic, for processors that do not multiply bf16: operands of
// either type are widened while they are packed, which has to touch them anyway.
#pragma once

#include "kernels/gemm.h"

namespace freeformer::kernels {

template <typename In, typename Out>
void blocked_gemm(const GemmShape& shape, const In* a, const In* b, Out* c);

// The same by hand, on the calling thread alone, where one B serves many products: rows of B
// [N, K] as panels (panel_floats of them), then C [M, N] = A [M, K] · Bᵀ.
int64_t panel_floats(int64_t N, int64_t K);
template <typename In>
void pack_rows(const In* b_NK, int64_t N, int64_t K, float* panels);
void multiply_by_panels(const float* a_MK, const float* panels, int64_t M, int64_t N, int64_t K,
                        float* c_MN);

}  // namespace freeformer::kernels
