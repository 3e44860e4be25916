// Scratch memory of the calling thread, as a stack: what a kernel takes is given back when its
// Workspace goes out of scope, and the next kernel gets the same warm memory. Nothing is returned
// to the system before the thread ends.
#pragma once

#include <cstddef>
#include <cstdint>

namespace freeformer::kernels {

class Workspace {
 public:
  Workspace();
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // Uninitialised, aligned to a cache line. Throws kCapacity where the memory is not there.
  float* floats(int64_t count);

  // What the calling thread holds, in use or not: no less than the most it ever took at once.
  static int64_t capacity_bytes();

 private:
  size_t chunk_, used_;  // where the stack stood before
};

}  // namespace freeformer::kernels
