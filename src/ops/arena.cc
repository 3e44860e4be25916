#include "ops/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "ops/torch.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <c10/core/CPUAllocator.h>
#pragma GCC diagnostic pop

namespace freeformer::ops {
namespace {

constexpr size_t kLarge = size_t{256} << 10;  // smaller tensors are malloc's business
constexpr size_t kGrain = 4096;

// Best fit, neighbours joined when freed.
class Arena {
 public:
  Arena() : previous_(c10::GetCPUAllocator()) {
    const size_t wanted = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGE_SIZE));
    void* range = mmap(nullptr, wanted, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) return;
    madvise(range, wanted, MADV_HUGEPAGE);
    begin_ = static_cast<char*>(range);
    size_ = wanted;
  }

  bool usable() const { return begin_ != nullptr; }

  c10::DataPtr allocate(size_t bytes) {
    if (bytes >= kLarge) {
      if (char* memory = take((bytes + kGrain - 1) / kGrain * kGrain)) {
        return {memory, memory, &Arena::release, c10::Device(c10::kCPU)};
      }
    }
    return previous_->allocate(bytes);
  }

  // For memory that LibTorch takes without a tensor around it (oneDNN's scratchpads): whoever it
  // came from gets it back.
  static void release_raw(void* memory) {
    Arena& arena = instance();
    const auto* place = static_cast<const char*>(memory);
    if (std::less_equal<>()(arena.begin_, place) &&
        std::less<>()(place, arena.begin_ + arena.size_)) {
      release(memory);
    } else {
      arena.previous_->raw_deallocate(memory);
    }
  }

  static Arena& instance() {
    static auto* arena = new Arena;  // tensors of other static objects may outlive any order
    return *arena;
  }

 private:
  char* take(size_t bytes) {
    const std::lock_guard lock(guard_);
    const auto fit = by_size_.lower_bound({bytes, 0});
    size_t offset = 0;
    if (fit != by_size_.end()) {
      const auto [size, found] = *fit;
      offset = found;
      remove_free(offset);
      if (size > bytes) add_free(offset + bytes, size - bytes);
    } else if (size_ - top_ >= bytes) {
      offset = top_;
      top_ += bytes;
    } else {
      return nullptr;
    }
    taken_[offset] = bytes;
    return begin_ + offset;
  }

  static void release(void* memory) {
    Arena& arena = instance();
    const std::lock_guard lock(arena.guard_);
    const auto taken = arena.taken_.find(size_t(static_cast<char*>(memory) - arena.begin_));
    size_t offset = taken->first, bytes = taken->second;
    arena.taken_.erase(taken);
    // Joined with the free neighbours before and behind.
    const auto next = arena.free_.find(offset + bytes);
    if (next != arena.free_.end()) {
      bytes += next->second;
      arena.remove_free(next->first);
    }
    const auto behind = arena.free_.lower_bound(offset);
    if (behind != arena.free_.begin()) {
      const auto before = std::prev(behind);
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        arena.remove_free(offset);
      }
    }
    if (offset + bytes == arena.top_) {
      arena.top_ = offset;
    } else {
      arena.add_free(offset, bytes);
    }
  }

  void add_free(size_t offset, size_t bytes) {
    free_[offset] = bytes;
    by_size_.insert({bytes, offset});
  }
  void remove_free(size_t offset) {
    const auto found = free_.find(offset);
    by_size_.erase({found->second, offset});
    free_.erase(found);
  }

  c10::Allocator* previous_;
  char* begin_ = nullptr;
  size_t size_ = 0, top_ = 0;  // nothing beyond the top was ever handed out, or all came back
  std::mutex guard_;
  std::map<size_t, size_t> taken_, free_;        // offset to size
  std::set<std::pair<size_t, size_t>> by_size_;  // of what is free: size, offset
};

// LibTorch's interface changed a const and gained a function; whichever is virtual is overridden.
class ArenaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const { return Arena::instance().allocate(bytes); }
  c10::DataPtr allocate(size_t bytes) { return Arena::instance().allocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const { return &Arena::release_raw; }
  void copy_data(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }
};

}  // namespace

void use_arena() {
  static const bool on = [] {
    if (!Arena::instance().usable()) return false;
    static ArenaAllocator allocator;
    c10::SetCPUAllocator(&allocator, /*priority=*/1);
    return true;
  }();
  (void)on;
}

}  // namespace freeformer::ops
