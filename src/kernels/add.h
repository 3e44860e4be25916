// Sums of activations and of their gradients. T is float or BFloat16; arithmetic is in fp32.
// Results do not depend on the number of threads.
#pragma once

#include <cstdint>

#include "core/bfloat16.h"

namespace freeformer::kernels {

// out = a + b; out may be a or b.
template <typename T>
void add(const T* a, const T* b, int64_t count, T* out);

// The gradient of a look-up in a table [V, D] at rows index_M: dtable[index_m] += grad_m, in the
// order of the tokens.
template <typename T>
void embedding_backward(const int64_t* index_M, const T* grad_MD, int64_t M, int64_t D,
                        float* dtable_VD);

}  // namespace freeformer::kernels
