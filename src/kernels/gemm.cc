// The only file that knows oneDNN. Its C++ API changed between 2.x (Debian 12) and 3.x: the
// difference is in make_matmul.
#include "kernels/gemm.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "core/error.h"
#include "kernels/cpu.h"

namespace freeformer::kernels {
namespace {

using dnnl::memory;

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::matmul::primitive_desc make_matmul(const memory::desc& a, const memory::desc& b,
                                         const memory::desc& c) {
  dnnl::primitive_attr attributes;
  // The library's own scratchpad is shared by all primitives of a thread; ours is one per object.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul::primitive_desc(cpu_engine(), a, b, c, attributes);
#else
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, cpu_engine());
#endif
}

}  // namespace

struct GemmNT::Impl {
  memory::desc a, b, c;
  dnnl::matmul::primitive_desc description;
  dnnl::matmul primitive;
  mutable std::vector<char> scratchpad;
};

GemmNT::GemmNT(int64_t M, int64_t N, int64_t K, GemmType type) {
  active_isa();
  const auto dtype = type == GemmType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
  try {
    const memory::desc a(memory::dims{M, K}, dtype, memory::format_tag::ab);
    const memory::desc b(memory::dims{K, N}, dtype, memory::format_tag::ba);
    const memory::desc c(memory::dims{M, N}, memory::data_type::f32, memory::format_tag::ab);
    const auto description = make_matmul(a, b, c);
    impl_ = std::make_unique<Impl>(Impl{a, b, c, description, dnnl::matmul(description), {}});
    impl_->scratchpad.resize(description.scratchpad_desc().get_size());
  } catch (const dnnl::error& error) {
    fail(ErrorCode::kUnsupported, "oneDNN cannot multiply [{}, {}] by [{}, {}] in {}: {}", M, K, K,
         N, type == GemmType::kBF16 ? "bf16" : "fp32", error.what());
  }
}

GemmNT::~GemmNT() = default;
GemmNT::GemmNT(GemmNT&&) noexcept = default;
GemmNT& GemmNT::operator=(GemmNT&&) noexcept = default;

void GemmNT::run(const void* a_MK, const void* b_NK, float* c_MN) const {
  const dnnl::engine& engine = cpu_engine();
  dnnl::stream stream(engine);
  const auto wrap = [&](const memory::desc& desc, const void* data) {
    return memory(desc, engine, const_cast<void*>(data));
  };
  impl_->primitive.execute(stream, {{DNNL_ARG_SRC, wrap(impl_->a, a_MK)},
                                    {DNNL_ARG_WEIGHTS, wrap(impl_->b, b_NK)},
                                    {DNNL_ARG_DST, wrap(impl_->c, c_MN)},
                                    {DNNL_ARG_SCRATCHPAD, wrap(impl_->description.scratchpad_desc(),
                                                               impl_->scratchpad.data())}});
  stream.wait();
}

int64_t GemmNT::workspace_bytes() const { return int64_t(impl_->scratchpad.size()); }

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
