// Everything is packed to fp32 first: keys and values also transposed, block by block, so that all
// five products have the form C += A·B with B's rows contiguous, and one register-blocked kernel
// serves them. Packing is linear in the length, the products are not.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include <hwy/foreach_target.h>  // first, so that all that follows is seen per target
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/attention.h"
#include "kernels/multiply-inl.h"

#ifndef FREEFORMER_KERNELS_ATTENTION_ONCE
#define FREEFORMER_KERNELS_ATTENTION_ONCE
namespace freeformer::kernels::attention_detail {

constexpr int64_t kQueries = 48;  // rows of a block of scores
constexpr int64_t kKeys = 256;    // its columns, at most
constexpr int64_t kPad = 16;      // heads are padded to the widest vector

// One head of one sequence, packed: blocks of so many keys, the last padded with zeros.
struct PackedHead {
  int64_t block;                   // kKeys, or all keys of a short sequence
  const float* keys_SH;            // [blocks · block, P]
  const float* values_SH;          // [blocks · block, P]
  const float* transposed_keys;    // [blocks, P, block]
  const float* transposed_values;  // [blocks, P, block]
};

// Queries first..first+count of one head.
struct ForwardBlock {
  PackedHead head;
  int64_t P;              // padded head size
  const KeyRange* range;  // of the first query
  int64_t count;
  float* q;       // [count, P], scaled
  float* scores;  // [kQueries, kKeys]
  float* out;     // [count, P]
  float* lse;     // [count]
};

// All queries and keys of one head.
struct BackwardHead {
  PackedHead head;
  int64_t P, T, S;
  const KeyRange* ranges_T;
  const float* q_TP;  // scaled
  const float* dout_TP;
  const float* lse_T;
  const float* dot_T;    // Σ_h dout · out
  float *p, *dp;         // [kQueries, kKeys]
  float* dq_TP;          // of the scaled queries
  float *dk_SP, *dv_SP;  // [blocks · block, P]
};

// The keys that any of the queries sees.
inline KeyRange hull(const KeyRange* ranges, int64_t count) {
  KeyRange all = ranges[0];
  for (int64_t t = 1; t < count; ++t) {
    all.begin = std::min(all.begin, ranges[t].begin);
    all.end = std::max(all.end, ranges[t].end);
  }
  return all;
}

}  // namespace freeformer::kernels::attention_detail
#endif

HWY_BEFORE_NAMESPACE();
namespace freeformer::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using namespace attention_detail;

// The columns of a block beginning at key `first` that a query sees, within `columns`.
HWY_INLINE KeyRange seen(const KeyRange& range, int64_t first, int64_t columns) {
  return {int32_t(std::clamp<int64_t>(range.begin - first, 0, columns)),
          int32_t(std::clamp<int64_t>(range.end - first, 0, columns))};
}

HWY_INLINE int64_t padded(int64_t count) { return (count + kPad - 1) / kPad * kPad; }

static void forward_block(const ForwardBlock& f) {
  const Floats tag;
  const auto lanes = int64_t(hn::Lanes(tag));
  const int64_t P = f.P, block = f.head.block;
  float maximum[kQueries], sum[kQueries];
  for (int64_t r = 0; r < f.count; ++r) {
    maximum[r] = -std::numeric_limits<float>::infinity();
    sum[r] = 0;
  }
  std::memset(f.out, 0, size_t(f.count * P) * sizeof(float));
  const KeyRange all = hull(f.range, f.count);
  for (int64_t first = all.begin / block * block; first < all.end; first += block) {
    const int64_t columns = padded(std::min<int64_t>(block, all.end - first));
    multiply(f.q, P, 1, f.head.transposed_keys + first * P, block, f.scores, kKeys, f.count,
             columns, P, false);
    for (int64_t r = 0; r < f.count; ++r) {
      float* row = f.scores + r * kKeys;
      const KeyRange visible = seen(f.range[r], first, columns);
      if (visible.begin >= visible.end) {
        std::memset(row, 0, size_t(columns) * sizeof(float));
        continue;
      }
      for (int64_t s = 0; s < visible.begin; ++s) row[s] = -std::numeric_limits<float>::infinity();
      for (int64_t s = visible.end; s < columns; ++s) {
        row[s] = -std::numeric_limits<float>::infinity();
      }
      auto largest = hn::LoadU(tag, row);
      for (int64_t s = lanes; s < columns; s += lanes) {
        largest = hn::Max(largest, hn::LoadU(tag, row + s));
      }
      const float now = std::max(maximum[r], hn::GetLane(hn::MaxOfLanes(tag, largest)));
      const auto shift = hn::Set(tag, now);
      auto total = hn::Zero(tag);
      for (int64_t s = 0; s < columns; s += lanes) {
        const auto p = vector_exp(tag, hn::Sub(hn::LoadU(tag, row + s), shift));
        hn::StoreU(p, tag, row + s);
        total = hn::Add(total, p);
      }
      const float block_sum = hn::GetLane(hn::SumOfLanes(tag, total));
      if (now > maximum[r] && sum[r] > 0) {
        const float correction = std::exp(maximum[r] - now);
        sum[r] *= correction;
        const auto factor = hn::Set(tag, correction);
        for (int64_t h = 0; h < P; h += lanes) {
          hn::StoreU(hn::Mul(hn::LoadU(tag, f.out + r * P + h), factor), tag, f.out + r * P + h);
        }
      }
      maximum[r] = now;
      sum[r] += block_sum;
    }
    multiply(f.scores, kKeys, 1, f.head.values_SH + first * P, P, f.out, P, f.count, P, columns,
             true);
  }
  for (int64_t r = 0; r < f.count; ++r) {
    const auto factor = hn::Set(tag, 1.0f / sum[r]);
    for (int64_t h = 0; h < P; h += lanes) {
      hn::StoreU(hn::Mul(hn::LoadU(tag, f.out + r * P + h), factor), tag, f.out + r * P + h);
    }
    f.lse[r] = maximum[r] + std::log(sum[r]);
  }
}

// P and dS of one block, in place of S and dP.
static void backward_scores(const BackwardHead& b, int64_t query, int64_t count, int64_t first,
                            int64_t columns) {
  const Floats tag;
  const auto lanes = int64_t(hn::Lanes(tag));
  for (int64_t r = 0; r < count; ++r) {
    float *p = b.p + r * kKeys, *dp = b.dp + r * kKeys;
    const KeyRange visible = seen(b.ranges_T[query + r], first, columns);
    const auto lse = hn::Set(tag, b.lse_T[query + r]), dot = hn::Set(tag, b.dot_T[query + r]);
    // What is not seen is set before exp, so that nothing there can overflow.
    for (int64_t s = 0; s < visible.begin; ++s) p[s] = -std::numeric_limits<float>::infinity();
    for (int64_t s = visible.end; s < columns; ++s) p[s] = -std::numeric_limits<float>::infinity();
    for (int64_t s = 0; s < columns; s += lanes) {
      const auto probability = vector_exp(tag, hn::Sub(hn::LoadU(tag, p + s), lse));
      hn::StoreU(probability, tag, p + s);
      hn::StoreU(hn::Mul(probability, hn::Sub(hn::LoadU(tag, dp + s), dot)), tag, dp + s);
    }
  }
}

static void backward_head(const BackwardHead& b) {
  const int64_t P = b.P, keys_of_block = b.head.block;
  std::memset(b.dq_TP, 0, size_t(b.T * P) * sizeof(float));
  for (int64_t first = 0; first < b.S; first += keys_of_block) {
    const int64_t keys = std::min<int64_t>(keys_of_block, b.S - first);
    float *dk = b.dk_SP + first * P, *dv = b.dv_SP + first * P;
    bool visited = false;
    for (int64_t block = 0; block < b.T; block += kQueries) {
      int64_t query = block, end = std::min(block + kQueries, b.T);
      // Queries at either end that see none of these keys.
      const auto sees = [&](const KeyRange& range) {
        return range.end > first && range.begin < first + keys;
      };
      while (query < end && !sees(b.ranges_T[query])) ++query;
      while (end > query && !sees(b.ranges_T[end - 1])) --end;
      if (query == end) continue;
      const int64_t count = end - query;
      const KeyRange all = hull(b.ranges_T + query, count);
      const int64_t columns = padded(std::min<int64_t>(keys, all.end - first));
      const float *q = b.q_TP + query * P, *dout = b.dout_TP + query * P;
      multiply(q, P, 1, b.head.transposed_keys + first * P, keys_of_block, b.p, kKeys, count,
               columns, P, false);
      multiply(dout, P, 1, b.head.transposed_values + first * P, keys_of_block, b.dp, kKeys, count,
               columns, P, false);
      backward_scores(b, query, count, first, columns);
      multiply(b.dp, kKeys, 1, b.head.keys_SH + first * P, P, b.dq_TP + query * P, P, count, P,
               columns, true);
      if (!visited && columns < keys_of_block) {
        std::memset(dk, 0, size_t(keys_of_block * P) * sizeof(float));
        std::memset(dv, 0, size_t(keys_of_block * P) * sizeof(float));
        visited = true;
      }
      multiply(b.p, 1, kKeys, dout, P, dv, P, columns, P, count, visited);
      multiply(b.dp, 1, kKeys, q, P, dk, P, columns, P, count, visited);
      visited = true;
    }
    if (!visited) {
      std::memset(dk, 0, size_t(keys_of_block * P) * sizeof(float));
      std::memset(dv, 0, size_t(keys_of_block * P) * sizeof(float));
    }
  }
}

// dot[t] = Σ_h a[t, h] b[t, h]
static void dot_rows(const float* a_TP, const float* b_TP, int64_t T, int64_t P, float* dot_T) {
  const Floats tag;
  for (int64_t t = 0; t < T; ++t) {
    const float *a = a_TP + t * P, *b = b_TP + t * P;
    dot_T[t] = sum_of_vectors(P, [&](int64_t i, auto part) HWY_ATTR {
      return hn::Mul(load_widened(tag, a + i, part), load_widened(tag, b + i, part));
    });
  }
}

// [count, P] from rows `stride` apart, times `scale`; columns beyond H are zero.
template <typename T>
HWY_INLINE void pack_rows(const T* from, int64_t stride, int64_t count, int64_t H, int64_t P,
                          float scale, float* to) {
  const Floats tag;
  const auto lanes = int64_t(hn::Lanes(tag));
  const auto factor = hn::Set(tag, scale);
  for (int64_t t = 0; t < count; ++t, from += stride, to += P) {
    int64_t h = 0;
    for (; h + lanes <= H; h += lanes) {
      hn::StoreU(hn::Mul(load_widened(tag, from + h), factor), tag, to + h);
    }
    for (; h < H; ++h) to[h] = to_float(from[h]) * scale;
    for (; h < P; ++h) to[h] = 0;
  }
}
static void pack_rows_f32(const float* from, int64_t stride, int64_t count, int64_t H, int64_t P,
                          float scale, float* to) {
  pack_rows(from, stride, count, H, P, scale, to);
}
static void pack_rows_bf16(const BFloat16* from, int64_t stride, int64_t count, int64_t H,
                           int64_t P, float scale, float* to) {
  pack_rows(from, stride, count, H, P, scale, to);
}

// out [count] rows `stride` apart from [count, P], times `scale`.
template <typename T>
HWY_INLINE void unpack_rows(const float* from, int64_t P, float scale, int64_t count, int64_t H,
                            T* to, int64_t stride) {
  const Floats tag;
  const auto lanes = int64_t(hn::Lanes(tag));
  const auto factor = hn::Set(tag, scale);
  for (int64_t t = 0; t < count; ++t, from += P, to += stride) {
    int64_t h = 0;
    for (; h + lanes <= H; h += lanes) {
      store_narrowed(tag, hn::Mul(hn::LoadU(tag, from + h), factor), to + h);
    }
    for (; h < H; ++h) to[h] = from_float<T>(from[h] * scale);
  }
}
static void unpack_rows_f32(const float* from, int64_t P, float scale, int64_t count, int64_t H,
                            float* to, int64_t stride) {
  unpack_rows(from, P, scale, count, H, to, stride);
}
static void unpack_rows_bf16(const float* from, int64_t P, float scale, int64_t count, int64_t H,
                             BFloat16* to, int64_t stride) {
  unpack_rows(from, P, scale, count, H, to, stride);
}

}  // namespace freeformer::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu.h"
#include "kernels/parallel.h"
#include "kernels/vector_ops.h"
#include "kernels/workspace.h"

namespace freeformer::kernels {
namespace {

using namespace attention_detail;

HWY_EXPORT(forward_block);
HWY_EXPORT(backward_head);
HWY_EXPORT(dot_rows);
HWY_EXPORT(pack_rows_f32);
HWY_EXPORT(pack_rows_bf16);
HWY_EXPORT(unpack_rows_f32);
HWY_EXPORT(unpack_rows_bf16);

void pack_rows(const float* from, int64_t stride, int64_t count, int64_t H, int64_t P, float scale,
               float* to) {
  HWY_DYNAMIC_DISPATCH(pack_rows_f32)(from, stride, count, H, P, scale, to);
}
void pack_rows(const BFloat16* from, int64_t stride, int64_t count, int64_t H, int64_t P,
               float scale, float* to) {
  HWY_DYNAMIC_DISPATCH(pack_rows_bf16)(from, stride, count, H, P, scale, to);
}
void unpack_rows(const float* from, int64_t P, float scale, int64_t count, int64_t H, float* to,
                 int64_t stride) {
  HWY_DYNAMIC_DISPATCH(unpack_rows_f32)(from, P, scale, count, H, to, stride);
}
void unpack_rows(const float* from, int64_t P, float scale, int64_t count, int64_t H, BFloat16* to,
                 int64_t stride) {
  HWY_DYNAMIC_DISPATCH(unpack_rows_bf16)(from, P, scale, count, H, to, stride);
}

// [block, P] to [P, block], in squares that fit the cache's lines.
void transpose_block(const float* from, int64_t block, int64_t P, float* to) {
  for (int64_t s0 = 0; s0 < block; s0 += 16) {
    for (int64_t h0 = 0; h0 < P; h0 += 16) {
      for (int64_t h = h0; h < h0 + 16; ++h) {
        for (int64_t s = s0; s < s0 + 16; ++s) to[h * block + s] = from[s * P + h];
      }
    }
  }
}

// Keys and values of all heads, packed.
class PackedKeysAndValues {
 public:
  template <typename T>
  PackedKeysAndValues(const AttentionShape& shape, const T* k_BSKH, const T* v_BSKH,
                      bool transposed_values, Workspace& workspace)
      : K_(shape.K),
        G_(shape.N / shape.K),
        P_((shape.H + kPad - 1) / kPad * kPad),
        block_(std::clamp((shape.S + kPad - 1) / kPad * kPad, kPad, kKeys)),
        blocks_((shape.S + block_ - 1) / block_),
        size_(blocks_ * block_ * P_) {
    const int64_t heads = shape.B * K_;
    keys_ = workspace.floats(heads * size_);
    values_ = workspace.floats(heads * size_);
    transposed_keys_ = workspace.floats(heads * size_);
    transposed_values_ = transposed_values ? workspace.floats(heads * size_) : nullptr;
    parallel_tasks(heads * blocks_, [&](int64_t task) {
      const int64_t head = task / blocks_, first = task % blocks_ * block_;
      const int64_t b = head / K_, k = head % K_, count = std::min(block_, shape.S - first);
      const int64_t from = (b * shape.S + first) * K_ * shape.H + k * shape.H;
      const int64_t to = head * size_ + first * P_;
      pack(k_BSKH + from, count, shape.H, keys_ + to, transposed_keys_ + to);
      pack(v_BSKH + from, count, shape.H, values_ + to,
           transposed_values ? transposed_values_ + to : nullptr);
    });
  }

  int64_t padded_head() const { return P_; }
  int64_t padded_keys() const { return blocks_ * block_; }

  PackedHead head(int64_t b, int64_t n) const {
    const int64_t at = (b * K_ + n / G_) * size_;
    return {block_, keys_ + at, values_ + at, transposed_keys_ + at,
            transposed_values_ == nullptr ? nullptr : transposed_values_ + at};
  }

 private:
  template <typename T>
  void pack(const T* from, int64_t count, int64_t H, float* rows, float* transposed) const {
    pack_rows(from, K_ * H, count, H, P_, 1.0f, rows);
    std::fill(rows + count * P_, rows + block_ * P_, 0.0f);
    if (transposed != nullptr) transpose_block(rows, block_, P_, transposed);
  }

  int64_t K_, G_, P_, block_, blocks_, size_;
  float *keys_, *values_, *transposed_keys_, *transposed_values_;
};

float scale_of(const AttentionShape& shape) { return 1.0f / std::sqrt(float(shape.H)); }

}  // namespace

std::vector<KeyRange> key_ranges(const AttentionShape& shape, bool causal,
                                 const int64_t* documents_BS) {
  const int64_t T = shape.T, S = shape.S;
  std::vector<KeyRange> ranges(size_t(shape.B * T));
  for (int64_t b = 0; b < shape.B; ++b) {
    const int64_t* documents = documents_BS == nullptr ? nullptr : documents_BS + b * S;
    // From the last position backwards for ends, forwards for beginnings.
    int64_t end = S;
    for (int64_t s = S - 1; s >= S - T; --s) {
      if (documents != nullptr && s + 1 < S && documents[s] != documents[s + 1]) end = s + 1;
      ranges[size_t(b * T + s - (S - T))].end = int32_t(causal ? s + 1 : end);
    }
    int64_t begin = 0;
    for (int64_t s = 0; s < S; ++s) {
      if (documents != nullptr && s > 0 && documents[s] != documents[s - 1]) begin = s;
      if (s >= S - T) ranges[size_t(b * T + s - (S - T))].begin = int32_t(begin);
    }
  }
  return ranges;
}

template <typename T>
void attention(const AttentionShape& shape, const KeyRange* ranges_BT, const T* q_BTNH,
               const T* k_BSKH, const T* v_BSKH, T* out_BTNH, float* lse_BNT) {
  active_isa();
  Workspace workspace;
  const PackedKeysAndValues packed(shape, k_BSKH, v_BSKH, false, workspace);
  const int64_t N = shape.N, H = shape.H, P = packed.padded_head();
  const int64_t blocks = (shape.T + kQueries - 1) / kQueries;
  parallel_tasks(shape.B * N * blocks, [&](int64_t task) {
    // Late queries see most: they begin.
    const int64_t first = (blocks - 1 - task / (shape.B * N)) * kQueries;
    const int64_t b = task % (shape.B * N) / N, n = task % N;
    const int64_t count = std::min(kQueries, shape.T - first);
    Workspace own;
    float *q = own.floats(kQueries * P), *out = own.floats(kQueries * P);
    const int64_t at = ((b * shape.T + first) * N + n) * H;
    pack_rows(q_BTNH + at, N * H, count, H, P, scale_of(shape), q);
    HWY_DYNAMIC_DISPATCH(forward_block)
    ({packed.head(b, n), P, ranges_BT + b * shape.T + first, count, q, own.floats(kQueries * kKeys),
      out, lse_BNT + (b * N + n) * shape.T + first});
    unpack_rows(out, P, 1.0f, count, H, out_BTNH + at, N * H);
  });
}

template <typename T>
void attention_backward(const AttentionShape& shape, const KeyRange* ranges_BT, const T* q_BTNH,
                        const T* k_BSKH, const T* v_BSKH, const T* out_BTNH, const float* lse_BNT,
                        const T* dout_BTNH, T* dq_BTNH, T* dk_BSKH, T* dv_BSKH) {
  active_isa();
  Workspace workspace;
  const PackedKeysAndValues packed(shape, k_BSKH, v_BSKH, true, workspace);
  const int64_t N = shape.N, K = shape.K, H = shape.H, G = N / K, P = packed.padded_head();
  const int64_t Tp = shape.T, S = shape.S, size = packed.padded_keys() * P;
  float* dk = workspace.floats(shape.B * N * size);
  float* dv = workspace.floats(shape.B * N * size);
  const float scale = scale_of(shape);
  parallel_tasks(shape.B * N, [&](int64_t task) {
    const int64_t b = task / N, n = task % N, at = (b * Tp * N + n) * H;
    Workspace own;
    float *q = own.floats(Tp * P), *dout = own.floats(Tp * P), *dq = own.floats(Tp * P);
    float* dot = own.floats(Tp);
    pack_rows(out_BTNH + at, N * H, Tp, H, P, 1.0f, q);  // only for the dot product
    pack_rows(dout_BTNH + at, N * H, Tp, H, P, 1.0f, dout);
    HWY_DYNAMIC_DISPATCH(dot_rows)(q, dout, Tp, P, dot);
    pack_rows(q_BTNH + at, N * H, Tp, H, P, scale, q);
    HWY_DYNAMIC_DISPATCH(backward_head)
    ({packed.head(b, n), P, Tp, S, ranges_BT + b * Tp, q, dout, lse_BNT + task * Tp, dot,
      own.floats(kQueries * kKeys), own.floats(kQueries * kKeys), dq, dk + task * size,
      dv + task * size});
    unpack_rows(dq, P, scale, Tp, H, dq_BTNH + at, N * H);
  });
  // The query heads of a key-value head, added in their order.
  parallel_tasks(shape.B * K * 2, [&](int64_t task) {
    const int64_t head = task / 2, b = head / K, k = head % K;
    float* sum = (task % 2 == 0 ? dk : dv) + head * G * size;
    for (int64_t g = 1; g < G; ++g) {
      accumulate(sum + g * size, S * P, sum);
    }
    unpack_rows(sum, P, 1.0f, S, H, (task % 2 == 0 ? dk_BSKH : dv_BSKH) + (b * S * K + k) * H,
                K * H);
  });
}

template void attention(const AttentionShape&, const KeyRange*, const float*, const float*,
                        const float*, float*, float*);
template void attention(const AttentionShape&, const KeyRange*, const BFloat16*, const BFloat16*,
                        const BFloat16*, BFloat16*, float*);
template void attention_backward(const AttentionShape&, const KeyRange*, const float*, const float*,
                                 const float*, const float*, const float*, const float*, float*,
                                 float*, float*);
template void attention_backward(const AttentionShape&, const KeyRange*, const BFloat16*,
                                 const BFloat16*, const BFloat16*, const BFloat16*, const float*,
                                 const BFloat16*, BFloat16*, BFloat16*, BFloat16*);

}  // namespace freeformer::kernels
#endif  // HWY_ONCE
