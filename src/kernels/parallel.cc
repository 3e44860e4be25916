#include "kernels/parallel.h"

#include <cstdlib>

#include "core/error.h"
#include "kernels/cpu.h"

namespace freeformer::kernels {
namespace {

int& configured() {
  static int threads = [] {
    if (std::getenv("OMP_NUM_THREADS") != nullptr) return omp_get_max_threads();
    omp_set_num_threads(physical_core_count());  // for oneDNN and LibTorch, too
    return physical_core_count();
  }();
  return threads;
}

}  // namespace

int thread_count() { return configured(); }

void set_thread_count(int threads) {
  if (threads < 1 || threads > 4096) {
    fail(ErrorCode::kInvalidArgument, "{} threads, expected 1 to 4096", threads);
  }
  configured() = threads;
  omp_set_num_threads(threads);
}

}  // namespace freeformer::kernels
