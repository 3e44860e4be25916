// Threads: one OpenMP team for our kernels, oneDNN and LibTorch alike, so that nobody
// oversubscribes.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace freeformer::kernels {

// Threads a kernel may use. At start: OMP_NUM_THREADS, else one per physical core.
int thread_count();
void set_thread_count(int threads);

// Calls body(begin, end) on disjoint pieces that cover [0, count), each a multiple of `grain` but
// the last. An exception in a piece reaches the caller.
template <typename Body>
void parallel_for(int64_t count, int64_t grain, const Body& body) {
  const int64_t pieces = (count + grain - 1) / grain;
  const int threads = int(std::min<int64_t>(thread_count(), pieces));
  if (threads <= 1 || omp_in_parallel()) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel num_threads(threads)
  {
    const int64_t thread = omp_get_thread_num(), team = omp_get_num_threads();
    const int64_t begin = pieces * thread / team * grain;
    const int64_t end = std::min(count, pieces * (thread + 1) / team * grain);
    try {
      if (begin < end) body(begin, end);
    } catch (...) {
#pragma omp critical(freeformer_parallel_error)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

// Calls body(i) once for every i below count, in any order, whoever is free taking the next: for
// tasks of unequal size. An exception in a task reaches the caller.
template <typename Body>
void parallel_tasks(int64_t count, const Body& body) {
  const int threads = int(std::min<int64_t>(thread_count(), count));
  if (threads <= 1 || omp_in_parallel()) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (int64_t i = 0; i < count; ++i) {
    try {
      body(i);
    } catch (...) {
#pragma omp critical(freeformer_parallel_error)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace freeformer::kernels
