// Small vector kernels that others are made of; one implementation per instruction set.
#pragma once

#include <cstdint>

#include "core/bfloat16.h"

namespace freeformer::kernels {

void widen(const BFloat16* from, int64_t count, float* to);

// Rounds to nearest, ties to even; a NaN stays one.
void narrow(const float* from, int64_t count, BFloat16* to);

// to[i] += from[i]
void accumulate(const float* from, int64_t count, float* to);
void accumulate(const BFloat16* from, int64_t count, float* to);

// The probabilities of all settings of the low bits, as a heap: heap[2^h + j] is the probability
// that bits 0..h-1 spell j, for h < bits. heap has room for 2^bits floats; heap[1] = 1.
void bit_probability_heap(const float* p, const float* q, int bits, float* heap);

// Folds values [2^bits] with the given bits' p and q = 1-p; scratch has room for 2^(bits-1).
// Adds ∂E/∂p_h, times weight, to derivatives[h] and returns E, the expected value.
float fold_bits(const float* values, int bits, const float* p, const float* q, const float* heap,
                float weight, float* scratch, float* derivatives);

}  // namespace freeformer::kernels
