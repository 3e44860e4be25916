// Matrix products on raw pointers, accumulated in fp32.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "core/bfloat16.h"

namespace freeformer::kernels {

// C [M, N] = A [M, K] · B [K, N], rows dense.
struct GemmShape {
  int64_t M = 0, N = 0, K = 0;
  bool transpose_a = false;  // A is stored [K, M]
  bool transpose_b = false;  // B is stored [N, K]
  bool accumulate = false;   // C += A·B
};

// fp32 is our own (blocked_gemm.h): its tiles do not depend on the number of threads, so neither
// does the result. So is bf16, unless the processor multiplies it (has_native_bf16): then oneDNN
// does.
void gemm(const GemmShape& shape, const float* a, const float* b, float* c);
void gemm(const GemmShape& shape, const BFloat16* a, const BFloat16* b, float* c);
void gemm(const GemmShape& shape, const BFloat16* a, const BFloat16* b, BFloat16* c);

enum class GemmType { kF32, kBF16 };

// One product of oneDNN's, made once and run many times. One object serves one thread; called
// inside a parallel region it runs on the calling thread alone.
struct GemmTileShape {
  int64_t M = 0, N = 0, K = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
  GemmType in = GemmType::kF32, out = GemmType::kF32;
  int64_t lda = 0, ldb = 0, ldc = 0;  // elements from row to row as stored; 0: dense

  auto operator<=>(const GemmTileShape&) const = default;
};
class GemmTile {
 public:
  explicit GemmTile(GemmTileShape shape);
  ~GemmTile();
  GemmTile(GemmTile&&) noexcept;
  GemmTile& operator=(GemmTile&&) noexcept;

  void run(const void* a, const void* b, void* c) const;

  int64_t workspace_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Keeps oneDNN below an instruction set of cpu.h; before its first use. Called by active_isa().
void limit_gemm_isa(const std::string& isa);

std::string gemm_library();  // "oneDNN 2.6.3"

}  // namespace freeformer::kernels
