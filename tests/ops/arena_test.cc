#include "ops/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tensor_matchers.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <c10/core/CPUAllocator.h>
#pragma GCC diagnostic pop

namespace freeformer::ops {
namespace {

constexpr int64_t kLarge = 64 << 10;  // floats: what is smaller is malloc's

class ArenaMemory : public testing::Test {
 protected:
  void SetUp() override { use_arena(); }
};

// Sizes around the smallest that the arena takes, pages and huge pages.
std::vector<int64_t> sizes() {
  return {0,
          1,
          100,
          kLarge - 1,
          kLarge,
          kLarge + 1,
          kLarge + 1024,
          3 * kLarge,
          8 * kLarge,
          5 * kLarge + 7,
          kLarge,
          2 * kLarge,
          9 * kLarge,
          4 * kLarge};
}

// A number for every element that tells its tensor.
Tensor filled(int64_t size, int64_t mark) { return at::full({size}, double(mark), at::kFloat); }
bool is_filled(const Tensor& tensor, int64_t mark) {
  return tensor.eq(double(mark)).all().item<bool>();
}

TEST_F(ArenaMemory, TensorsOfManySizesKeepTheirContents) {
  std::vector<Tensor> tensors;
  int64_t mark = 0;
  for (int round = 0; round < 2; ++round) {
    for (const int64_t size : sizes()) tensors.push_back(filled(size, ++mark));
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    EXPECT_TRUE(is_filled(tensors[i], int64_t(i) + 1)) << i;
}

TEST_F(ArenaMemory, LargeTensorsBeginAPage) {  // as malloc's do not
  std::vector<Tensor> tensors;
  for (const int64_t size : sizes()) {
    if (size < kLarge) continue;
    tensors.push_back(at::empty({size}));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensors.back().data_ptr()) % 4096, 0u) << size;
  }
}

TEST_F(ArenaMemory, LiveTensorsNeverOverlap) {
  std::vector<Tensor> tensors;
  for (const int64_t size : sizes()) tensors.push_back(at::empty({size}));
  std::vector<std::pair<char*, char*>> ranges;
  for (const Tensor& tensor : tensors) {
    auto* begin = static_cast<char*>(tensor.data_ptr());
    if (tensor.numel() > 0) ranges.emplace_back(begin, begin + tensor.nbytes());
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].second, ranges[i].first) << i;
}

TEST_F(ArenaMemory, FreedInAnyOrderTheOthersKeepTheirContents) {
  std::vector<Tensor> tensors;
  const auto all = sizes();
  for (size_t i = 0; i < all.size(); ++i) tensors.push_back(filled(all[i], int64_t(i)));
  // Every third, then every other, then from the middle; each time new ones take their places.
  std::vector<size_t> order;
  for (size_t i = 0; i < all.size(); i += 3) order.push_back(i);
  for (size_t i = 1; i < all.size(); i += 2) order.push_back(i);
  for (size_t i = 0; i < all.size(); ++i) order.push_back((i * 5 + 7) % all.size());
  for (size_t step = 0; step < order.size(); ++step) {
    const size_t i = order[step];
    tensors[i].reset();
    if (step % 2 == 0) tensors[i] = filled(all[(i + step) % all.size()], int64_t(i));
    for (size_t j = 0; j < tensors.size(); ++j) {
      ASSERT_TRUE(!tensors[j].defined() || is_filled(tensors[j], int64_t(j))) << step << ": " << j;
    }
  }
}

// What a step does: some tensors live long, others briefly.
std::vector<void*> addresses_of_a_step() {
  std::vector<void*> addresses;
  std::vector<Tensor> kept;
  for (const int64_t size : sizes()) {
    const Tensor brief = at::empty({size + 2 * kLarge});
    kept.push_back(at::empty({size + kLarge}));
    addresses.push_back(brief.data_ptr());
    addresses.push_back(kept.back().data_ptr());
    if (kept.size() % 4 == 0) kept.erase(kept.begin() + 1);
  }
  return addresses;
}

TEST_F(ArenaMemory, TheSameSequenceGetsTheSameAddresses) {
  const auto first = addresses_of_a_step();
  EXPECT_EQ(addresses_of_a_step(), first);
  EXPECT_EQ(addresses_of_a_step(), first);
}

TEST_F(ArenaMemory, FreedNeighboursBecomeOnePlace) {
  std::vector<Tensor> parts;
  for (int i = 0; i < 4; ++i) parts.push_back(at::empty({kLarge}));
  const Tensor behind = at::empty({kLarge});  // so that the parts do not end the arena
  const void* begin = parts[0].data_ptr();
  for (const Tensor& part : parts) begin = std::min<const void*>(begin, part.data_ptr());
  for (const size_t i : {1, 3, 0, 2}) parts[i].reset();
  const Tensor whole = at::empty({4 * kLarge});
  EXPECT_EQ(whole.data_ptr(), begin);
}

TEST_F(ArenaMemory, AnotherThreadMayFree) {
  const auto first = addresses_of_a_step();
  for (int round = 0; round < 3; ++round) {
    std::vector<Tensor> tensors;
    for (const int64_t size : sizes()) tensors.push_back(filled(size, 5));
    std::thread([moved = std::move(tensors)]() mutable {
      for (const Tensor& tensor : moved) EXPECT_TRUE(is_filled(tensor, 5));
      moved.clear();
    }).join();
  }
  EXPECT_EQ(addresses_of_a_step(), first) << "not all came back";
}

TEST_F(ArenaMemory, ThreadsMayTakeAndFreeAtOnce) {
  const auto first = addresses_of_a_step();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int64_t thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&wrong, thread] {
      for (int64_t i = 0; i < 30; ++i) {
        const Tensor a = filled(kLarge + i, 100 * thread + i), b = filled(2 * kLarge, thread);
        wrong += !is_filled(a, 100 * thread + i) || !is_filled(b, thread);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(addresses_of_a_step(), first) << "not all came back";
}

// As oneDNN's scratchpads are.
TEST_F(ArenaMemory, CanBeTakenWithoutATensor) {
  const auto first = addresses_of_a_step();
  for (const int64_t size : sizes()) {
    c10::Allocator* allocator = c10::GetCPUAllocator();
    auto* memory = static_cast<char*>(allocator->raw_allocate(size_t(size) * sizeof(float)));
    if (size > 0) memory[0] = memory[size * 4 - 1] = 1;
    allocator->raw_deallocate(memory);
  }
  EXPECT_EQ(addresses_of_a_step(), first) << "not all came back";
}

TEST_F(ArenaMemory, ATensorCanGrow) {
  Tensor tensor = filled(kLarge, 3);
  tensor.resize_({3 * kLarge});
  EXPECT_TRUE(is_filled(tensor.narrow(0, 0, kLarge), 3));
  tensor.fill_(4);
  EXPECT_TRUE(is_filled(tensor, 4));
}

}  // namespace
}  // namespace freeformer::ops
