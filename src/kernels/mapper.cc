#include "kernels/mapper.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "core/shape.h"
#include "kernels/blocked_gemm.h"
#include "kernels/cpu.h"
#include "kernels/gemm.h"
#include "kernels/parallel.h"
#include "kernels/vector_ops.h"
#include "kernels/workspace.h"

namespace freeformer::kernels {
namespace {

// Codes of one GEMM, folded at once: a tile of W stays in the L2 cache, a token's part of v in L1.
constexpr int kTileBits = 9;
constexpr int64_t kTokenChunk = 128;  // tokens of one GEMM
// Tokens of one pass over the table, so that the workspace stays small whatever M is.
constexpr int64_t kMaxPassBytes = int64_t{16} << 20;

template <typename T>
void forward(const T* table_CD, const int64_t* codes_M, int64_t M, int64_t D, T* out_MD) {
  parallel_for(M, 64, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) {
      std::memcpy(out_MD + m * D, table_CD + codes_M[m] * D, size_t(D) * sizeof(T));
    }
  });
}

// v [tokens, tile] = g · W_tileᵀ on one thread, in fp32: a tile is packed once and serves all of
// the thread's tokens.
template <typename Table>
class PackedProduct {
 public:
  PackedProduct(int64_t tokens, int64_t tile, int64_t D)
      : tile_(tile),
        D_(D),
        wide_count_(std::is_same_v<Table, float> ? 0 : std::min(kTokenChunk, tokens) * D),
        panels_(memory_.floats(panel_floats(tile, D))),
        wide_grad_(memory_.floats(wide_count_)) {}
  void set_tile(const Table* rows) { pack_rows(rows, tile_, D_, panels_); }
  void run(const Table* grad, int64_t tokens, float* v) {
    const float* a;
    if constexpr (std::is_same_v<Table, float>) {
      a = grad;
    } else {
      // Again for every tile: a percent of the product, and saves a buffer for all tokens.
      widen(grad, tokens * D_, wide_grad_);
      a = wide_grad_;
    }
    multiply_by_panels(a, panels_, tokens, tile_, D_, v);
  }
  int64_t bytes() const { return (panel_floats(tile_, D_) + wide_count_) * int64_t(sizeof(float)); }

 private:
  int64_t tile_, D_, wide_count_;
  Workspace memory_;
  float *panels_, *wide_grad_;
};

// The same where the processor multiplies bf16.
class NativeProduct {
 public:
  NativeProduct(int64_t tokens, int64_t tile, int64_t D) {
    const auto make = [&](int64_t rows) {
      return std::make_unique<GemmTile>(
          GemmTileShape{.M = rows, .N = tile, .K = D, .transpose_b = true, .in = GemmType::kBF16});
    };
    if (tokens >= kTokenChunk) chunk_ = make(kTokenChunk);
    if (const int64_t rest = tokens % kTokenChunk; rest != 0) last_chunk_ = make(rest);
  }
  void set_tile(const BFloat16* rows) { rows_ = rows; }
  void run(const BFloat16* grad, int64_t tokens, float* v) {
    (tokens == kTokenChunk ? chunk_ : last_chunk_)->run(grad, rows_, v);
  }
  int64_t bytes() const {
    return (chunk_ ? chunk_->workspace_bytes() : 0) +
           (last_chunk_ ? last_chunk_->workspace_bytes() : 0);
  }

 private:
  const BFloat16* rows_ = nullptr;
  std::unique_ptr<GemmTile> chunk_, last_chunk_;
};

// What folding needs of one thread.
struct FoldWorkspace {
  FoldWorkspace(int64_t tokens, int64_t tile, int64_t prefixes)
      : v_count(tokens * tile),
        scratch_count(std::max(tile, prefixes)),
        v(memory.floats(v_count)),
        heap(memory.floats(tile)),
        high_heap(memory.floats(2 * prefixes)),
        scratch(memory.floats(scratch_count)),
        bytes((v_count + tile + 2 * prefixes + scratch_count) * int64_t(sizeof(float))) {}

  Workspace memory;
  int64_t v_count, scratch_count;
  float* v;  // [tokens, tile]: W_d · g of one tile
  float *heap, *high_heap, *scratch;
  int64_t bytes;
};

// One pass over the table.
template <typename Product, typename Table>
class Pass {
 public:
  Pass(const float* logits_MZ, const Table* table_CD, const Table* grad_MD, int64_t M, int64_t D,
       int Z, float* d_logits_MZ)
      : table_CD_(table_CD),
        grad_MD_(grad_MD),
        M_(M),
        D_(D),
        Z_(Z),
        tile_bits_(std::min(Z, kTileBits)),
        prefixes_(code_count(Z - tile_bits_)),
        p_(size_t(M * Z)),
        q_(size_t(M * Z)),
        folded_(size_t(M * prefixes_)),
        d_logits_MZ_(d_logits_MZ) {
    // 1-p is computed from the logit, not from p, which rounds to 1 long before 1-p vanishes.
    for (int64_t i = 0; i < M * Z; ++i) {
      p_[size_t(i)] = 1.0f / (1.0f + std::exp(-logits_MZ[i]));
      q_[size_t(i)] = 1.0f / (1.0f + std::exp(logits_MZ[i]));
    }
    std::fill_n(d_logits_MZ, M * Z, 0.0f);
  }

  int64_t run() {
    int64_t bytes = int64_t((p_.size() + q_.size() + folded_.size()) * sizeof(float));
    // Chunks are cut the same way for any number of threads, so a token's sums are too.
    parallel_for(M_, kTokenChunk, [&](int64_t begin, int64_t end) {
      const int64_t used = run_tokens(begin, end);
#pragma omp atomic
      bytes += used;
    });
    return bytes;
  }

 private:
  int64_t run_tokens(int64_t begin, int64_t end) {
    const int64_t tile = code_count(tile_bits_);
    Product product(end - begin, tile, D_);
    FoldWorkspace work(std::min(kTokenChunk, end - begin), tile, prefixes_);
    for (int64_t code = 0; code < code_count(Z_); code += tile) {
      product.set_tile(table_CD_ + code * D_);
      for (int64_t m = begin; m < end; m += kTokenChunk) {
        const int64_t tokens = std::min(kTokenChunk, end - m);
        product.run(grad_MD_ + m * D_, tokens, work.v);
        for (int64_t i = 0; i < tokens; ++i) {
          fold_tile(m + i, code, work.v + i * tile, work);
        }
      }
    }
    for (int64_t m = begin; m < end; ++m) finish_token(m, work);
    return product.bytes() + work.bytes;
  }

  // Folds the low bits of v [tile] for codes `code`.. of token m. The prefix is the high bits.
  void fold_tile(int64_t m, int64_t code, const float* v, FoldWorkspace& work) {
    const float* p = &p_[size_t(m * Z_)];
    const float* q = &q_[size_t(m * Z_)];
    bit_probability_heap(p, q, tile_bits_, work.heap);
    const int64_t prefix = code >> tile_bits_;
    folded_[size_t(m * prefixes_ + prefix)] =
        fold_bits(v, tile_bits_, p, q, work.heap, prefix_probability(m, prefix), work.scratch,
                  d_logits_MZ_ + m * Z_);
  }

  float prefix_probability(int64_t m, int64_t prefix) const {
    float probability = 1.0f;
    for (int h = tile_bits_; h < Z_; ++h) {
      const bool set = prefix >> (h - tile_bits_) & 1;
      probability *= (set ? p_ : q_)[size_t(m * Z_ + h)];
    }
    return probability;
  }

  // Folds the high bits, and turns derivatives by p into derivatives by logit: dp/dlogit = p(1-p).
  void finish_token(int64_t m, FoldWorkspace& work) {
    const float* p = &p_[size_t(m * Z_)];
    const float* q = &q_[size_t(m * Z_)];
    float* d_logits = d_logits_MZ_ + m * Z_;
    if (const int high_bits = Z_ - tile_bits_; high_bits > 0) {
      bit_probability_heap(p + tile_bits_, q + tile_bits_, high_bits, work.high_heap);
      fold_bits(&folded_[size_t(m * prefixes_)], high_bits, p + tile_bits_, q + tile_bits_,
                work.high_heap, 1.0f, work.scratch, d_logits + tile_bits_);
    }
    for (int h = 0; h < Z_; ++h) d_logits[h] *= p[h] * q[h];
  }

  const Table* table_CD_;
  const Table* grad_MD_;
  int64_t M_, D_;
  int Z_, tile_bits_;
  int64_t prefixes_;           // settings of the bits above tile_bits_
  std::vector<float> p_, q_;   // [M, Z]
  std::vector<float> folded_;  // [M, prefixes]: E[v] over the low bits
  float* d_logits_MZ_;
};

template <typename Table>
int64_t backward_logits(const float* logits_MZ, const Table* table_CD, const Table* grad_MD,
                        int64_t M, int64_t D, int Z, float* d_logits_MZ) {
  FF_CHECK(Z >= 1 && Z <= kMaxLatentBits);
  active_isa();
  const int64_t floats_per_token = 2 * Z + code_count(std::max(0, Z - kTileBits));
  const int64_t affordable = kMaxPassBytes / (floats_per_token * int64_t(sizeof(float)));
  const int64_t pass_tokens =
      std::max<int64_t>(thread_count(), affordable / kTokenChunk) * kTokenChunk;
  int64_t most_bytes = 0;
  for (int64_t m = 0; m < M; m += pass_tokens) {
    const int64_t tokens = std::min(pass_tokens, M - m);
    const auto pass = [&]<typename Product>() {
      return Pass<Product, Table>(logits_MZ + m * Z, table_CD, grad_MD + m * D, tokens, D, Z,
                                  d_logits_MZ + m * Z)
          .run();
    };
    int64_t bytes;
    if constexpr (std::is_same_v<Table, BFloat16>) {
      bytes = has_native_bf16() ? pass.template operator()<NativeProduct>()
                                : pass.template operator()<PackedProduct<Table>>();
    } else {
      bytes = pass.template operator()<PackedProduct<Table>>();
    }
    most_bytes = std::max(most_bytes, bytes);
  }
  return most_bytes;
}

template <typename T>
int64_t backward_table(const int64_t* codes_M, const T* grad_MD, int64_t M, int64_t D,
                       int64_t* rows, T* values) {
  active_isa();
  std::vector<int64_t> order(size_t(M), 0);
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return codes_M[a] < codes_M[b]; });
  std::vector<int64_t> first;  // of each row, in `order`
  for (int64_t i = 0; i < M; ++i) {
    if (i == 0 || codes_M[order[size_t(i)]] != codes_M[order[size_t(i - 1)]]) first.push_back(i);
  }
  const auto count = int64_t(first.size());
  first.push_back(M);
  parallel_for(count, 16, [&](int64_t begin, int64_t end) {
    std::vector<float> sum(size_t(D), 0.0f);
    for (int64_t row = begin; row < end; ++row) {
      rows[row] = codes_M[order[size_t(first[size_t(row)])]];
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (int64_t i = first[size_t(row)]; i < first[size_t(row + 1)]; ++i) {
        accumulate(grad_MD + order[size_t(i)] * D, D, sum.data());
      }
      for (int64_t d = 0; d < D; ++d) {
        if constexpr (sizeof(T) == 2) {
          values[row * D + d] = to_bfloat16(sum[size_t(d)]);
        } else {
          values[row * D + d] = sum[size_t(d)];
        }
      }
    }
  });
  return count;
}

}  // namespace

void mapper_forward(const float* table_CD, const int64_t* codes_M, int64_t M, int64_t D,
                    float* out_MD) {
  forward(table_CD, codes_M, M, D, out_MD);
}
void mapper_forward(const BFloat16* table_CD, const int64_t* codes_M, int64_t M, int64_t D,
                    BFloat16* out_MD) {
  forward(table_CD, codes_M, M, D, out_MD);
}

int64_t mapper_backward_logits(const float* logits_MZ, const float* table_CD, const float* grad_MD,
                               int64_t M, int64_t D, int Z, float* d_logits_MZ) {
  return backward_logits(logits_MZ, table_CD, grad_MD, M, D, Z, d_logits_MZ);
}
int64_t mapper_backward_logits(const float* logits_MZ, const BFloat16* table_CD,
                               const BFloat16* grad_MD, int64_t M, int64_t D, int Z,
                               float* d_logits_MZ) {
  return backward_logits(logits_MZ, table_CD, grad_MD, M, D, Z, d_logits_MZ);
}

int64_t mapper_backward_table(const int64_t* codes_M, const float* grad_MD, int64_t M, int64_t D,
                              int64_t* rows, float* values) {
  return backward_table(codes_M, grad_MD, M, D, rows, values);
}
int64_t mapper_backward_table(const int64_t* codes_M, const BFloat16* grad_MD, int64_t M, int64_t D,
                              int64_t* rows, BFloat16* values) {
  return backward_table(codes_M, grad_MD, M, D, rows, values);
}

}  // namespace freeformer::kernels
