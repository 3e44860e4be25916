#include "kernels/workspace.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "core/error.h"

namespace freeformer::kernels {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kCacheLine = 64;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

struct Chunk {
  std::unique_ptr<std::byte, Free> memory;
  size_t size = 0;
};

struct Stack {
  std::vector<Chunk> chunks;
  size_t chunk = 0, used = 0;
};

Stack& stack() {
  thread_local Stack own;
  return own;
}

Chunk make_chunk(size_t bytes) {
  const size_t size = (std::max(bytes, kCacheLine) + kHugePage - 1) / kHugePage * kHugePage;
  Chunk chunk{std::unique_ptr<std::byte, Free>(
                  static_cast<std::byte*>(std::aligned_alloc(kHugePage, size))),
              size};
  if (!chunk.memory) fail(ErrorCode::kCapacity, "out of memory: {} bytes of workspace", size);
  madvise(chunk.memory.get(), size, MADV_HUGEPAGE);  // a wish; without it pages are small
  return chunk;
}

}  // namespace

Workspace::Workspace() : chunk_(stack().chunk), used_(stack().used) {}

Workspace::~Workspace() {
  stack().chunk = chunk_;
  stack().used = used_;
}

float* Workspace::floats(int64_t count) {
  Stack& own = stack();
  const size_t bytes = (size_t(count) * sizeof(float) + kCacheLine - 1) / kCacheLine * kCacheLine;
  while (own.chunk < own.chunks.size() && own.chunks[own.chunk].size - own.used < bytes) {
    ++own.chunk;
    own.used = 0;
  }
  if (own.chunk == own.chunks.size()) {
    // Twice the last, so that a thread soon has one chunk that holds all it ever needs.
    const size_t least = own.chunks.empty() ? 0 : 2 * own.chunks.back().size;
    own.chunks.push_back(make_chunk(std::max(bytes, least)));
  }
  auto* result = reinterpret_cast<float*>(own.chunks[own.chunk].memory.get() + own.used);
  own.used += bytes;
  return result;
}

int64_t Workspace::capacity_bytes() {
  size_t bytes = 0;
  for (const Chunk& chunk : stack().chunks) bytes += chunk.size;
  return int64_t(bytes);
}

}  // namespace freeformer::kernels
