#include "kernels/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "kernels/workspace.h"

namespace freeformer::kernels {
namespace {

class ParallelTasks : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_thread_count(GetParam()); }
  void TearDown() override { set_thread_count(before_); }

 private:
  int before_ = thread_count();
};

TEST_P(ParallelTasks, CallEveryIndexOnce) {
  for (const int64_t count : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
    parallel_tasks(count, [&](int64_t i) { ++visits.at(size_t(i)); });
    for (size_t i = 0; i < visits.size(); ++i) EXPECT_EQ(visits[i], 1) << i << " of " << count;
  }
}

TEST_P(ParallelTasks, AnExceptionReachesTheCallerFromAnyIndexAndTheNextCallWorks) {
  for (const int64_t bad : {0, 1, 99}) {
    try {
      parallel_tasks(100, [&](int64_t i) {
        if (i == bad) throw std::runtime_error("task " + std::to_string(i));
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), "task " + std::to_string(bad));
    }
  }
  std::atomic<int> calls = 0;
  parallel_tasks(10, [&](int64_t) { ++calls; });
  EXPECT_EQ(calls, 10);
}

TEST_P(ParallelTasks, InsideATaskRunOnItsThread) {
  std::vector<std::atomic<int>> visits(40);
  std::atomic<int> strangers = 0;
  parallel_tasks(8, [&](int64_t i) {
    const auto own = std::this_thread::get_id();
    parallel_tasks(5, [&](int64_t j) {
      ++visits.at(size_t(i * 5 + j));
      if (std::this_thread::get_id() != own) ++strangers;
    });
  });
  for (size_t i = 0; i < visits.size(); ++i) EXPECT_EQ(visits[i], 1) << i;
  EXPECT_EQ(strangers, 0);
}

TEST_P(ParallelTasks, AnExceptionOfAnInnerTaskReachesTheOutermostCaller) {
  EXPECT_THROW(parallel_tasks(4,
                              [](int64_t i) {
                                parallel_tasks(4, [&](int64_t j) {
                                  if (i + j == 6) throw std::out_of_range("inner");
                                });
                              }),
               std::out_of_range);
}

TEST_P(ParallelTasks, HaveWorkspacesThatDoNotMeet) {
  // Each task writes its own number and finds it again after others had time to write theirs.
  std::atomic<int> wrong = 0;
  parallel_tasks(64, [&](int64_t i) {
    Workspace own;
    float* memory = own.floats(1000);
    std::fill_n(memory, 1000, float(i));
    std::this_thread::yield();
    for (int64_t j = 0; j < 1000; ++j) wrong += memory[j] != float(i);
  });
  EXPECT_EQ(wrong, 0);
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelTasks, testing::Values(1, 2, 3),
                         testing::PrintToStringParamName());

TEST(ParallelTasks, AreSharedAmongTheThreads) {
  const int before = thread_count();
  set_thread_count(2);
  // Two tasks that wait for each other end only if two threads run them.
  std::atomic<int> arrived = 0;
  std::atomic<bool> together = true;
  parallel_tasks(2, [&](int64_t) {
    ++arrived;
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (arrived < 2 && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
    if (arrived < 2) together = false;
  });
  set_thread_count(before);
  EXPECT_TRUE(together);
}

}  // namespace
}  // namespace freeformer::kernels
