// Matrix products through oneDNN, on raw pointers. Accumulates in fp32.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace freeformer::kernels {

enum class GemmType { kF32, kBF16 };

// C [M, N] = A [M, K] · B [N, K]ᵀ, all rows dense; A and B of one type, C in fp32. Made once for a
// shape, run many times. One object serves one thread; called inside a parallel region it runs on
// the calling thread alone, with a result that does not depend on the number of threads.
class GemmNT {
 public:
  GemmNT(int64_t M, int64_t N, int64_t K, GemmType type);
  ~GemmNT();
  GemmNT(GemmNT&&) noexcept;
  GemmNT& operator=(GemmNT&&) noexcept;

  void run(const void* a_MK, const void* b_NK, float* c_MN) const;

  int64_t workspace_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Keeps oneDNN below an instruction set of cpu.h; before its first use. Called by active_isa().
void limit_gemm_isa(const std::string& isa);

std::string gemm_library();  // "oneDNN 2.6.3"

}  // namespace freeformer::kernels
