#include "ops/torch_runtime.h"

#include <gtest/gtest.h>

#include "core/blas.h"
#include "kernels/parallel.h"
#include "ops/torch.h"

namespace freeformer::ops {
namespace {

TEST(TorchRuntime, TellsTheReferenceBlasFromTheFastOnes) {
  EXPECT_TRUE(is_reference_blas("/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0"));
  EXPECT_FALSE(is_reference_blas("/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3"));
  EXPECT_FALSE(is_reference_blas("/usr/lib/x86_64-linux-gnu/blis-pthread/libblas.so.3"));
  EXPECT_FALSE(is_reference_blas(""));
}

TEST(TorchRuntime, TellsABlasWithThreadsOfItsOwn) {
  EXPECT_TRUE(has_own_threads("/usr/lib/x86_64-linux-gnu/openblas-pthread/libblas.so.3"));
  EXPECT_FALSE(has_own_threads("/usr/lib/x86_64-linux-gnu/openblas-openmp/libblas.so.3"));
}

TEST(TorchRuntime, LibTorchUsesOurThreads) {
  const int before = kernels::thread_count();
  kernels::set_thread_count(2);
  prepare_torch();
  EXPECT_EQ(at::get_num_threads(), 2);
  kernels::set_thread_count(before);
}

}  // namespace
}  // namespace freeformer::ops
