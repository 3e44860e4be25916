// Our own matrix product in fp32 arithmetic, for processors that do not multiply bf16: operands of
// either type are widened while they are packed, which has to touch them anyway.
#pragma once

#include "kernels/gemm.h"

namespace freeformer::kernels {

template <typename In, typename Out>
void blocked_gemm(const GemmShape& shape, const In* a, const In* b, Out* c);

}  // namespace freeformer::kernels
