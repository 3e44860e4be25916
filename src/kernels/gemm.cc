// The only file that knows oneDNN, which multiplies bf16 where the processor does. Its C++ API
// changed between 2.x (Debian 12) and 3.x: the difference is in make_matmul.
#include "kernels/gemm.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "core/error.h"
#include "kernels/blocked_gemm.h"
#include "kernels/cpu.h"

namespace freeformer::kernels {
namespace {

using dnnl::memory;

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

// The whole product at once: oneDNN divides it among the threads, and its sums may depend on how.
template <typename Out>
void multiply_natively(const GemmShape& s, const BFloat16* a, const BFloat16* b, Out* c) {
  cached_tile({s.M, s.N, s.K, s.transpose_a, s.transpose_b, s.accumulate, GemmType::kBF16,
               std::is_same_v<Out, float> ? GemmType::kF32 : GemmType::kBF16})
      .run(a, b, c);
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

template <typename Out>
void multiply_bf16(const GemmShape& shape, const BFloat16* a, const BFloat16* b, Out* c) {
  check(shape);
  if (is_empty(shape, c)) return;
  if (has_native_bf16()) {
    multiply_natively(shape, a, b, c);
  } else {
    blocked_gemm(shape, a, b, c);
  }
}

}  // namespace

void gemm(const GemmShape& shape, const float* a, const float* b, float* c) {
  check(shape);
  if (!is_empty(shape, c)) blocked_gemm(shape, a, b, c);
}

void gemm(const GemmShape& shape, const BFloat16* a, const BFloat16* b, float* c) {
  multiply_bf16(shape, a, b, c);
}

void gemm(const GemmShape& shape, const BFloat16* a, const BFloat16* b, BFloat16* c) {
  multiply_bf16(shape, a, b, c);
}

void limit_gemm_isa(const std::string& isa) {
  if (isa == "avx2") dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
  if (isa == "sse4" || isa == "ssse3" || isa == "scalar") {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41);
  }
  // oneDNN 2.6 takes AMX where the processor names it, and was seen to die of SIGILL at its first
  // tile on a virtual machine. ONEDNN_MAX_CPU_ISA=ALL has it back.
  if (isa.starts_with("avx512") && std::getenv("ONEDNN_MAX_CPU_ISA") == nullptr) {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
  }
}

std::string gemm_library() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace freeformer::kernels
