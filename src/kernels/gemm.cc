// The only file that knows oneDNN. Its C++ API changed between 2.x (Debian 12) and 3.x: the
// difference is in make_matmul.
#include "kernels/gemm.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "core/error.h"
#include "kernels/cpu.h"
#include "kernels/parallel.h"
#include "kernels/vector_ops.h"
#include "kernels/workspace.h"

namespace freeformer::kernels {
namespace {

using dnnl::memory;

// Rows of C that one task makes: enough to pay for packing B, few enough to share among threads.
constexpr int64_t kTileRows = 256;

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::matmul::primitive_desc make_matmul(const memory::desc& a, const memory::desc& b,
                                         const memory::desc& c, bool accumulate) {
  dnnl::primitive_attr attributes;
  // The library's own scratchpad is shared by all primitives of a thread; ours is one per object.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul::primitive_desc(cpu_engine(), a, b, c, attributes);
#else
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, cpu_engine());
#endif
}

memory::data_type data_type(GemmType type) {
  return type == GemmType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// [rows, columns], or its transpose in memory.
memory::desc matrix(int64_t rows, int64_t columns, bool transposed, int64_t stride, GemmType type) {
  if (stride == 0) stride = transposed ? rows : columns;
  return {memory::dims{rows, columns}, data_type(type),
          transposed ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

}  // namespace

struct GemmTile::Impl {
  memory::desc a, b, c;
  dnnl::matmul::primitive_desc description;
  dnnl::matmul primitive;
  mutable std::vector<char> scratchpad;
};

GemmTile::GemmTile(GemmTileShape s) {
  active_isa();
  try {
    const memory::desc a = matrix(s.M, s.K, s.transpose_a, s.lda, s.in);
    const memory::desc b = matrix(s.K, s.N, s.transpose_b, s.ldb, s.in);
    const memory::desc c = matrix(s.M, s.N, false, s.ldc, s.out);
    const auto description = make_matmul(a, b, c, s.accumulate);
    impl_ = std::make_unique<Impl>(Impl{a, b, c, description, dnnl::matmul(description), {}});
    impl_->scratchpad.resize(description.scratchpad_desc().get_size());
  } catch (const dnnl::error& error) {
    fail(ErrorCode::kUnsupported, "oneDNN cannot multiply [{}, {}] by [{}, {}] in {}: {}", s.M, s.K,
         s.K, s.N, s.in == GemmType::kBF16 ? "bf16" : "fp32", error.what());
  }
}

GemmTile::~GemmTile() = default;
GemmTile::GemmTile(GemmTile&&) noexcept = default;
GemmTile& GemmTile::operator=(GemmTile&&) noexcept = default;

void GemmTile::run(const void* a, const void* b, void* c) const {
  const dnnl::engine& engine = cpu_engine();
  dnnl::stream stream(engine);
  const auto wrap = [&](const memory::desc& desc, const void* data) {
    return memory(desc, engine, const_cast<void*>(data));
  };
  impl_->primitive.execute(stream, {{DNNL_ARG_SRC, wrap(impl_->a, a)},
                                    {DNNL_ARG_WEIGHTS, wrap(impl_->b, b)},
                                    {DNNL_ARG_DST, wrap(impl_->c, c)},
                                    {DNNL_ARG_SCRATCHPAD, wrap(impl_->description.scratchpad_desc(),
                                                               impl_->scratchpad.data())}});
  stream.wait();
}

int64_t GemmTile::workspace_bytes() const { return int64_t(impl_->scratchpad.size()); }

namespace {

// Making a primitive compiles code; a training step uses the same few dozen shapes again and again.
const GemmTile& cached_tile(const GemmTileShape& shape) {
  thread_local std::map<GemmTileShape, GemmTile> tiles;
  constexpr size_t kMost = 512;
  const auto found = tiles.find(shape);
  if (found != tiles.end()) return found->second;
  if (tiles.size() >= kMost) tiles.clear();  // a stream of ever new shapes
  return tiles.emplace(shape, GemmTile(shape)).first->second;
}

template <typename T>
constexpr GemmType type_of() {
  return sizeof(T) == 2 ? GemmType::kBF16 : GemmType::kF32;
}

// Rows (of a transposed A: columns) and columns of C that one task makes.
struct Tiling {
  explicit Tiling(const GemmShape& s) {
    // A wide and low C is cut by columns.
    by_rows = s.M >= s.N || s.M > kTileRows;
    size = std::min(kTileRows, by_rows ? s.M : s.N);
    count = ((by_rows ? s.M : s.N) + size - 1) / size;
  }
  bool by_rows;
  int64_t size, count;
};

template <typename In, typename Out>
void multiply(const GemmShape& s, const In* a, const In* b, Out* c) {
  const Tiling tiling(s);
  const int64_t lda = s.transpose_a ? s.M : s.K, ldb = s.transpose_b ? s.K : s.N;
  parallel_tasks(tiling.count, [&](int64_t task) {
    const int64_t begin = task * tiling.size;
    GemmTileShape tile{
        s.M, s.N, s.K, s.transpose_a, s.transpose_b, s.accumulate, type_of<In>(), type_of<Out>(),
        lda, ldb, s.N};
    if (tiling.by_rows) {
      tile.M = std::min(tiling.size, s.M - begin);
      cached_tile(tile).run(a + begin * (s.transpose_a ? 1 : lda), b, c + begin * s.N);
    } else {
      tile.N = std::min(tiling.size, s.N - begin);
      cached_tile(tile).run(a, b + begin * (s.transpose_b ? ldb : 1), c + begin);
    }
  });
}

// A matrix in fp32.
const float* widened(const BFloat16* from, int64_t count, Workspace& workspace) {
  float* to = workspace.floats(count);
  constexpr int64_t kPiece = 16384;
  parallel_for(count, kPiece,
               [&](int64_t begin, int64_t end) { widen(from + begin, end - begin, to + begin); });
  return to;
}

void multiply_widened(const GemmShape& s, const BFloat16* a, const BFloat16* b, float* c) {
  Workspace workspace;
  multiply(s, widened(a, s.M * s.K, workspace), widened(b, s.K * s.N, workspace), c);
}

void check(const GemmShape& s) {
  active_isa();
  FF_CHECK(s.M >= 0 && s.N >= 0 && s.K >= 0);
}

// Nothing to add up: zero, or what there was.
template <typename T>
bool is_empty(const GemmShape& s, T* c) {
  if (s.M == 0 || s.N == 0) return true;
  if (s.K > 0) return false;
  if (!s.accumulate) std::memset(static_cast<void*>(c), 0, size_t(s.M * s.N) * sizeof(T));
  return true;
}

}  // namespace

void gemm(const GemmShape& shape, const float* a, const float* b, float* c) {
  check(shape);
  if (!is_empty(shape, c)) multiply(shape, a, b, c);
}

void gemm(const GemmShape& shape, const BFloat16* a, const BFloat16* b, float* c) {
  check(shape);
  if (is_empty(shape, c)) return;
  if (has_native_bf16()) {
    multiply(shape, a, b, c);
  } else {
    multiply_widened(shape, a, b, c);
  }
}

void gemm(const GemmShape& shape, const BFloat16* a, const BFloat16* b, BFloat16* c) {
  check(shape);
  if (is_empty(shape, c)) return;
  if (has_native_bf16()) {
    multiply(shape, a, b, c);
    return;
  }
  const int64_t count = shape.M * shape.N;
  Workspace workspace;
  float* wide = workspace.floats(count);
  constexpr int64_t kPiece = 16384;
  if (shape.accumulate) {
    parallel_for(count, kPiece,
                 [&](int64_t begin, int64_t end) { widen(c + begin, end - begin, wide + begin); });
  }
  multiply_widened(shape, a, b, wide);
  parallel_for(count, kPiece,
               [&](int64_t begin, int64_t end) { narrow(wide + begin, end - begin, c + begin); });
}

void limit_gemm_isa(const std::string& isa) {
  if (isa == "avx2") dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
  if (isa == "sse4" || isa == "ssse3" || isa == "scalar") {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41);
  }
}

std::string gemm_library() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace freeformer::kernels
