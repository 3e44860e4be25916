#include "kernels/workspace.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "expect_error.h"

namespace freeformer::kernels {
namespace {

// In a thread of its own, so that nobody has used its memory before.
template <typename Body>
void in_fresh_thread(const Body& body) {
  std::thread(body).join();
}

TEST(Workspace, EveryBlockBeginsACacheLineAndOverlapsNoOther) {
  in_fresh_thread([] {
    Workspace workspace;
    std::vector<std::pair<float*, int64_t>> blocks;
    for (const int64_t count : {1, 15, 16, 17, 3, 100'000, 600'000, 1, 5'000'000, 33}) {
      float* block = workspace.floats(count);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u) << count;
      for (const auto& [other, other_count] : blocks) {
        EXPECT_TRUE(block >= other + other_count || block + count <= other) << count;
      }
      block[0] = block[count - 1] = float(count);  // inside: the sanitizer looks on
      blocks.emplace_back(block, count);
    }
    for (const auto& [block, count] : blocks) EXPECT_EQ(block[0] + block[count - 1], 2 * count);
  });
}

TEST(Workspace, TheNextGetsTheSameMemory) {
  in_fresh_thread([] {
    float *first, *second;
    {
      Workspace workspace;
      first = workspace.floats(100);
      second = workspace.floats(7);
    }
    Workspace workspace;
    EXPECT_EQ(workspace.floats(100), first);
    EXPECT_EQ(workspace.floats(7), second);
  });
}

TEST(Workspace, AnInnerOneGivesBackItsOwnAndLeavesTheOuterAlone) {
  in_fresh_thread([] {
    Workspace outer;
    float* kept = outer.floats(1000);
    kept[0] = kept[999] = 3;
    float* inner_block = nullptr;
    for (const int64_t count : {10, 2'000'000}) {  // in the same chunk, and in a new one
      Workspace inner;
      inner_block = inner.floats(count);
      EXPECT_GE(inner_block < kept ? kept - inner_block : inner_block - kept, 1000);
      inner_block[0] = inner_block[count - 1] = 4;
    }
    EXPECT_EQ(kept[0] + kept[999], 6);
    // The outer goes on where it was.
    EXPECT_EQ(outer.floats(16) - kept, 1008);  // whole cache lines of 16
  });
}

TEST(Workspace, GrowsOnceAndThenHoldsWhatItNeeds) {
  in_fresh_thread([] {
    EXPECT_EQ(Workspace::capacity_bytes(), 0);
    constexpr int64_t kCount = 3'000'000;
    int64_t held = 0;
    for (int i = 0; i < 3; ++i) {
      Workspace workspace;
      workspace.floats(1);
      workspace.floats(kCount);
      workspace.floats(kCount);
      if (i == 0) held = Workspace::capacity_bytes();
      EXPECT_EQ(Workspace::capacity_bytes(), held) << "round " << i;
    }
    EXPECT_GE(held, 2 * kCount * int64_t(sizeof(float)));
    EXPECT_LE(held, 8 * kCount * int64_t(sizeof(float)));
  });
}

TEST(Workspace, NothingCanBeAskedForFirst) {
  in_fresh_thread([] {
    Workspace workspace;
    EXPECT_NE(workspace.floats(0), nullptr);
    workspace.floats(1)[0] = 1;
  });
}

TEST(Workspace, ThreadsHaveTheirOwn) {
  Workspace workspace;
  float* own = workspace.floats(64);
  own[0] = 1;
  in_fresh_thread([own] {
    EXPECT_EQ(Workspace::capacity_bytes(), 0);
    Workspace other;
    float* theirs = other.floats(64);
    EXPECT_NE(theirs, own);
    theirs[0] = 2;
  });
  EXPECT_EQ(own[0], 1);
}

#ifndef __SANITIZE_ADDRESS__  // whose allocator stops the program instead
TEST(Workspace, MoreThanTheSystemHasIsAnErrorAndTheRestStillWorks) {
  Workspace workspace;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kCapacity, "workspace", workspace.floats(int64_t{1} << 50));
  workspace.floats(1000)[999] = 1;
}
#endif

}  // namespace
}  // namespace freeformer::kernels
