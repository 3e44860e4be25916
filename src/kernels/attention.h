// Attention in blocks with an online softmax, forward and backward: memory linear in the length,
// all arithmetic in fp32 whatever the type of the tensors.
//
//   S = q·kᵀ / sqrt(H)    P = exp(S - lse)    out = P·v            lse = log Σ_s exp(S_s)
//   dv = Pᵀ·dout    dP = dout·vᵀ    dS = P (dP - Σ_h dout·out)    dq = dS·k / sqrt(H)    dk = dSᵀ·q
//
// A query sees one run of keys (key_ranges): all of them, those up to itself, or those of its
// document. Blocks that nobody sees cost nothing. Results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "core/bfloat16.h"

namespace freeformer::kernels {

struct KeyRange {
  int32_t begin = 0, end = 0;
};

struct AttentionShape {
  int64_t B, T, S;  // sequences, queries, keys: the queries are the last T of S positions
  int64_t N, K, H;  // query heads, key-value heads (query head n reads n·K/N), their size
};

// What each query sees, [B, T]. With `documents_BS` (runs of equal ids; nullptr: one document) only
// its own; with `causal` nothing after itself.
std::vector<KeyRange> key_ranges(const AttentionShape& shape, bool causal,
                                 const int64_t* documents_BS);

// All tensors dense in the order of their suffix. lse_BNT is what the backward pass needs.
template <typename T>
void attention(const AttentionShape& shape, const KeyRange* ranges_BT, const T* q_BTNH,
               const T* k_BSKH, const T* v_BSKH, T* out_BTNH, float* lse_BNT);

template <typename T>
void attention_backward(const AttentionShape& shape, const KeyRange* ranges_BT, const T* q_BTNH,
                        const T* k_BSKH, const T* v_BSKH, const T* out_BTNH, const float* lse_BNT,
                        const T* dout_BTNH, T* dq_BTNH, T* dk_BSKH, T* dv_BSKH);

}  // namespace freeformer::kernels
