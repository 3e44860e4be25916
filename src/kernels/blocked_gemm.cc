// B is packed once, in panels as wide as the registers hold; tasks are tiles of C. A tile goes
// through K in blocks, so that a panel of B and a block of A stay in the L2 cache while the
// micro-kernel (multiply-inl.h) runs over them.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/blocked_gemm.cc"
#include <hwy/foreach_target.h>  // first, so that all that follows is seen per target
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "kernels/blocked_gemm.h"
#include "kernels/multiply-inl.h"

#ifndef FREEFORMER_KERNELS_BLOCKED_GEMM_ONCE
#define FREEFORMER_KERNELS_BLOCKED_GEMM_ONCE
namespace freeformer::kernels::gemm_detail {

constexpr int64_t kPanel = 64;   // columns of a panel of B: four of the widest vectors
constexpr int64_t kGroup = 6;    // rows of the micro-kernel
constexpr int64_t kDepth = 512;  // of K at once
constexpr int64_t kRows = 192;   // of a tile of C: a multiple of the micro-kernel's 6

// A tile of C: rows × columns from whole panels, over one block of K.
struct TileProduct {
  const float* a;  // element (6g + r, k) at g·a_group + r·a_row + k·a_column
  int64_t a_group, a_row, a_column;
  const float* panels;   // of B: [panels, panel_stride]
  int64_t panel_stride;  // from panel to panel
  float* c;
  int64_t c_row;
  int64_t rows, columns, K;
  bool accumulate;
};

}  // namespace freeformer::kernels::gemm_detail
#endif

HWY_BEFORE_NAMESPACE();
namespace freeformer::kernels::HWY_NAMESPACE {
using namespace gemm_detail;

static void multiply_panels(const TileProduct& p) {
  float edge[kGroup * kPanel];
  for (int64_t column = 0; column < p.columns; column += kPanel) {
    const float* panel = p.panels + column / kPanel * p.panel_stride;
    const int64_t columns = std::min(kPanel, p.columns - column);
    for (int64_t row = 0; row < p.rows; row += kGroup) {
      const float* a = p.a + row / kGroup * p.a_group;
      const int64_t rows = std::min(kGroup, p.rows - row);
      float* c = p.c + row * p.c_row + column;
      if (columns == kPanel) {
        multiply(a, p.a_row, p.a_column, panel, kPanel, c, p.c_row, rows, kPanel, p.K,
                 p.accumulate);
        continue;
      }
      // The last panel is padded; C is not.
      multiply(a, p.a_row, p.a_column, panel, kPanel, edge, kPanel, rows, kPanel, p.K, false);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < columns; ++i) {
          c[r * p.c_row + i] = edge[r * kPanel + i] + (p.accumulate ? c[r * p.c_row + i] : 0.0f);
        }
      }
    }
  }
}

// `depth` rows of a transposed A, `stride` apart, as groups [count / 6, ·, 6] that begin
// `group_stride` apart. Group by group, so that what is written is contiguous.
template <typename T>
HWY_INLINE void gather_groups(const T* from, int64_t stride, int64_t depth, int64_t count,
                              float* to, int64_t group_stride) {
  int64_t i = 0;
  for (; i + kGroup <= count; i += kGroup, to += group_stride) {
    const T* row = from + i;
    for (int64_t k = 0; k < depth; ++k, row += stride) {
      for (int64_t r = 0; r < kGroup; ++r) to[k * kGroup + r] = to_float(row[r]);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t r = 0; i + r < count; ++r) {
      to[k * kGroup + r] = to_float(from[k * stride + i + r]);
    }
  }
}
static void gather_groups_f32(const float* from, int64_t stride, int64_t depth, int64_t count,
                              float* to, int64_t group_stride) {
  gather_groups(from, stride, depth, count, to, group_stride);
}
static void gather_groups_bf16(const BFloat16* from, int64_t stride, int64_t depth, int64_t count,
                               float* to, int64_t group_stride) {
  gather_groups(from, stride, depth, count, to, group_stride);
}

// Rows of `columns` elements, widened.
template <typename T>
HWY_INLINE void copy_rows(const T* from, int64_t from_stride, int64_t rows, int64_t columns,
                          float* to, int64_t to_stride) {
  const Floats tag;
  for (int64_t r = 0; r < rows; ++r, from += from_stride, to += to_stride) {
    for_each_vector(columns, [&](int64_t i, auto part) HWY_ATTR {
      store_narrowed(tag, load_widened(tag, from + i, part), to + i, part);
    });
  }
}
static void copy_rows_f32(const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                          float* to, int64_t to_stride) {
  copy_rows(from, from_stride, rows, columns, to, to_stride);
}
static void copy_rows_bf16(const BFloat16* from, int64_t from_stride, int64_t rows, int64_t columns,
                           float* to, int64_t to_stride) {
  copy_rows(from, from_stride, rows, columns, to, to_stride);
}

// to[k, i] = from[i, k] for a vector of rows i.
HWY_INLINE void transpose_vector(const float* from, int64_t stride, int64_t K, float* to,
                                 int64_t to_stride) {
  const Floats tag;
  const hn::RebindToSigned<Floats> index_tag;
  const auto index = hn::Mul(hn::Iota(index_tag, 0), hn::Set(index_tag, int32_t(stride)));
  for (int64_t k = 0; k < K; ++k) {
    hn::StoreU(hn::GatherIndex(tag, from + k, index), tag, to + k * to_stride);
  }
}
HWY_INLINE void transpose_vector(const BFloat16* from, int64_t stride, int64_t K, float* to,
                                 int64_t to_stride) {
  const Floats tag;
  const hn::RebindToSigned<Floats> pair_tag;
  const auto offset = hn::Mul(hn::Iota(pair_tag, 0), hn::Set(pair_tag, int32_t(2 * stride)));
  int64_t k = 0;
  for (; k + 2 <= K; k += 2) {  // two neighbours in one gather
    const auto pairs =
        hn::GatherOffset(pair_tag, reinterpret_cast<const int32_t*>(from + k), offset);
    const auto first = hn::ShiftLeft<16>(pairs);
    const auto second = hn::And(pairs, hn::Set(pair_tag, int32_t(0xFFFF0000)));
    hn::StoreU(hn::BitCast(tag, first), tag, to + k * to_stride);
    hn::StoreU(hn::BitCast(tag, second), tag, to + (k + 1) * to_stride);
  }
  for (; k < K; ++k) {
    for (int64_t i = 0; i < int64_t(hn::Lanes(tag)); ++i) {
      to[k * to_stride + i] = to_float(from[i * stride + k]);
    }
  }
}

// to[k, i] = from[i, k] for the rows of a panel; those beyond `rows` are zero.
template <typename T>
HWY_INLINE void transpose_rows(const T* from, int64_t from_stride, int64_t rows, int64_t K,
                               float* to, int64_t to_stride) {
  const auto lanes = int64_t(hn::Lanes(Floats()));
  int64_t i = 0;
  // Offsets of a gather are 32 bits.
  if (from_stride * lanes < int64_t{1} << 28) {
    for (; i + lanes <= rows; i += lanes) {
      transpose_vector(from + i * from_stride, from_stride, K, to + i, to_stride);
    }
  }
  for (; i < kPanel; ++i) {
    for (int64_t k = 0; k < K; ++k) {
      to[k * to_stride + i] = i < rows ? to_float(from[i * from_stride + k]) : 0.0f;
    }
  }
}
static void transpose_rows_f32(const float* from, int64_t from_stride, int64_t rows, int64_t K,
                               float* to, int64_t to_stride) {
  transpose_rows(from, from_stride, rows, K, to, to_stride);
}
static void transpose_rows_bf16(const BFloat16* from, int64_t from_stride, int64_t rows, int64_t K,
                                float* to, int64_t to_stride) {
  transpose_rows(from, from_stride, rows, K, to, to_stride);
}

}  // namespace freeformer::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/parallel.h"
#include "kernels/vector_ops.h"
#include "kernels/workspace.h"

namespace freeformer::kernels {
namespace {

using namespace gemm_detail;

HWY_EXPORT(multiply_panels);
HWY_EXPORT(gather_groups_f32);
HWY_EXPORT(gather_groups_bf16);
HWY_EXPORT(copy_rows_f32);
HWY_EXPORT(copy_rows_bf16);
HWY_EXPORT(transpose_rows_f32);
HWY_EXPORT(transpose_rows_bf16);

void copy_rows(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
               int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(copy_rows_f32)(from, from_stride, rows, columns, to, to_stride);
}
void copy_rows(const BFloat16* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
               int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(copy_rows_bf16)(from, from_stride, rows, columns, to, to_stride);
}
void gather_groups(const float* from, int64_t stride, int64_t depth, int64_t count, float* to,
                   int64_t group_stride) {
  HWY_DYNAMIC_DISPATCH(gather_groups_f32)(from, stride, depth, count, to, group_stride);
}
void gather_groups(const BFloat16* from, int64_t stride, int64_t depth, int64_t count, float* to,
                   int64_t group_stride) {
  HWY_DYNAMIC_DISPATCH(gather_groups_bf16)(from, stride, depth, count, to, group_stride);
}
void transpose_rows(const float* from, int64_t from_stride, int64_t rows, int64_t K, float* to,
                    int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(transpose_rows_f32)(from, from_stride, rows, K, to, to_stride);
}
void transpose_rows(const BFloat16* from, int64_t from_stride, int64_t rows, int64_t K, float* to,
                    int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(transpose_rows_bf16)(from, from_stride, rows, K, to, to_stride);
}

// Rows K of B [K, N] from `first` on, as [N / kPanel, depth, kPanel], padded with zeros.
template <typename In>
void pack_panels(const GemmShape& s, const In* b, int64_t first, int64_t depth, float* to) {
  const int64_t panels = (s.N + kPanel - 1) / kPanel;
  constexpr int64_t kPiece = 128;  // of K
  const int64_t pieces = (depth + kPiece - 1) / kPiece;
  parallel_tasks(panels * pieces, [&](int64_t task) {
    const int64_t panel = task % panels, k = task / panels * kPiece;
    const int64_t count = std::min(kPiece, depth - k);
    const int64_t columns = std::min(kPanel, s.N - panel * kPanel);
    float* out = to + (panel * depth + k) * kPanel;
    if (s.transpose_b) {
      transpose_rows(b + panel * kPanel * s.K + first + k, s.K, columns, count, out, kPanel);
    } else {
      if (columns < kPanel) std::fill_n(out, count * kPanel, 0.0f);
      copy_rows(b + (first + k) * s.N + panel * kPanel, s.N, count, columns, out, kPanel);
    }
  });
}

// Rows K of a transposed A [K, M] from `first` on, as [M / 6, depth, 6].
template <typename In>
void pack_groups(const GemmShape& s, const In* a, int64_t first, int64_t depth, float* to) {
  constexpr int64_t kPiece = 32;  // of K: as many rows are read side by side
  parallel_tasks((depth + kPiece - 1) / kPiece, [&](int64_t task) {
    const int64_t k = task * kPiece;
    gather_groups(a + (first + k) * s.M, s.M, std::min(kPiece, depth - k), s.M, to + k * kGroup,
                  depth * kGroup);
  });
}

// The tiles of C, whatever the number of threads: columns whose part of B stays in the L2 cache,
// and enough tiles for a few threads.
struct Tiles {
  explicit Tiles(const GemmShape& s) : rows(std::min(kRows, s.M)) {
    constexpr int64_t kColumns = 512, kEnough = 12, kLeastRows = 48;
    const int64_t blocks = (s.N + kColumns - 1) / kColumns;
    columns = round_up((s.N + blocks - 1) / blocks, kPanel);
    while (count(s) < kEnough && rows > kLeastRows) rows = round_up(rows / 2, kGroup);
    while (count(s) < kEnough && columns > 2 * kPanel) columns = round_up(columns / 2, kPanel);
  }
  static int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
  int64_t row_count(const GemmShape& s) const { return (s.M + rows - 1) / rows; }
  int64_t count(const GemmShape& s) const { return row_count(s) * ((s.N + columns - 1) / columns); }
  int64_t rows, columns;
};

// C (+)= A·B over a stretch of K.
template <typename In, typename Out>
struct Stretch {
  const GemmShape& s;
  const Tiles& tiles;
  const In* a;
  const float* packed_a;  // where A is transposed
  const float* panels;
  int64_t first, depth;  // of K
  bool accumulate;
  Out* c;

  // Rows of fp32 are read in place, unless they are pages apart: then they would compete for the
  // same few lines of the cache.
  bool copies_rows() const {
    constexpr int64_t kPageFloats = 1024;
    return !s.transpose_a && (!std::is_same_v<In, float> || s.K % kPageFloats == 0);
  }

  void tile(int64_t task) const {
    const int64_t row = task % tiles.row_count(s) * tiles.rows;
    const int64_t column = task / tiles.row_count(s) * tiles.columns;
    const int64_t rows = std::min(tiles.rows, s.M - row);
    const int64_t columns = std::min(tiles.columns, s.N - column);
    Workspace own;
    Out* out = c + row * s.N + column;
    TileProduct product{};
    product.panel_stride = depth * kPanel;
    product.rows = rows;
    product.columns = columns;
    if constexpr (std::is_same_v<Out, float>) {
      product.c = out;
      product.c_row = s.N;
    } else {
      product.c = own.floats(rows * columns);
      product.c_row = columns;
      if (accumulate) copy_rows(out, s.N, rows, columns, product.c, columns);
    }
    float* block = own.floats(copies_rows() ? rows * kDepth : 0);
    for (int64_t k = 0; k < depth; k += kDepth) {
      product.K = std::min(kDepth, depth - k);
      product.panels = panels + column * depth + k * kPanel;
      product.accumulate = accumulate || k > 0;
      if (s.transpose_a) {
        product.a = packed_a + row * depth + k * kGroup;
        product.a_group = depth * kGroup;
        product.a_row = 1;
        product.a_column = kGroup;
      } else if (!copies_rows()) {
        product.a = reinterpret_cast<const float*>(a) + row * s.K + first + k;
        product.a_group = kGroup * s.K;
        product.a_row = s.K;
        product.a_column = 1;
      } else {
        copy_rows(a + row * s.K + first + k, s.K, rows, product.K, block, product.K);
        product.a = block;
        product.a_group = kGroup * product.K;
        product.a_row = product.K;
        product.a_column = 1;
      }
      HWY_DYNAMIC_DISPATCH(multiply_panels)(product);
    }
    if constexpr (!std::is_same_v<Out, float>) {
      for (int64_t r = 0; r < rows; ++r) narrow(product.c + r * columns, columns, out + r * s.N);
    }
  }
};

}  // namespace

int64_t panel_floats(int64_t N, int64_t K) { return (N + kPanel - 1) / kPanel * kPanel * K; }

template <typename In, typename Out>
void blocked_gemm(const GemmShape& s, const In* a, const In* b, Out* c) {
  const Tiles tiles(s);
  // Where K is the long side (gradients of weights), what is packed should stay in the L3 cache.
  constexpr int64_t kLongDepth = 1024;
  const int64_t stretch = s.transpose_a ? kLongDepth : s.K;
  if constexpr (!std::is_same_v<Out, float>) {
    if (s.K > stretch) {  // C must not be rounded on the way
      Workspace workspace;
      float* wide = workspace.floats(s.M * s.N);
      const auto convert = [&](const auto& body) {
        constexpr int64_t kPiece = 16384;
        parallel_for(s.M * s.N, kPiece, body);
      };
      if (s.accumulate) {
        convert([&](int64_t begin, int64_t end) { widen(c + begin, end - begin, wide + begin); });
      }
      blocked_gemm(s, a, b, wide);
      convert([&](int64_t begin, int64_t end) { narrow(wide + begin, end - begin, c + begin); });
      return;
    }
  }
  const int64_t most = std::min(stretch, s.K);
  Workspace workspace;
  float* panels = workspace.floats(panel_floats(s.N, most));
  float* packed_a =
      workspace.floats(s.transpose_a ? (s.M + kGroup - 1) / kGroup * kGroup * most : 0);
  for (int64_t k = 0; k < s.K; k += stretch) {
    const int64_t depth = std::min(stretch, s.K - k);
    pack_panels(s, b, k, depth, panels);
    if (s.transpose_a) pack_groups(s, a, k, depth, packed_a);
    const Stretch<In, Out> part{s, tiles, a, packed_a, panels, k, depth, s.accumulate || k > 0, c};
    parallel_tasks(tiles.count(s), [&](int64_t task) { part.tile(task); });
  }
}

template <typename In>
void pack_rows(const In* b_NK, int64_t N, int64_t K, float* panels) {
  for (int64_t row = 0; row < N; row += kPanel) {
    transpose_rows(b_NK + row * K, K, std::min(kPanel, N - row), K, panels + row * K, kPanel);
  }
}

void multiply_by_panels(const float* a_MK, const float* panels, int64_t M, int64_t N, int64_t K,
                        float* c_MN) {
  TileProduct product{};
  product.a_group = kGroup * K;
  product.a_row = K;
  product.a_column = 1;
  product.panel_stride = K * kPanel;
  product.c = c_MN;
  product.c_row = N;
  product.rows = M;
  product.columns = N;
  for (int64_t k = 0; k < K; k += kDepth) {
    product.a = a_MK + k;
    product.panels = panels + k * kPanel;
    product.K = std::min(kDepth, K - k);
    product.accumulate = k > 0;
    HWY_DYNAMIC_DISPATCH(multiply_panels)(product);
  }
}

template void pack_rows(const float*, int64_t, int64_t, float*);
template void pack_rows(const BFloat16*, int64_t, int64_t, float*);
template void blocked_gemm(const GemmShape&, const float*, const float*, float*);
template void blocked_gemm(const GemmShape&, const BFloat16*, const BFloat16*, float*);
template void blocked_gemm(const GemmShape&, const BFloat16*, const BFloat16*, BFloat16*);

}  // namespace freeformer::kernels
#endif  // HWY_ONCE
