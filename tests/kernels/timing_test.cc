#include "kernels/timing.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

namespace freeformer::kernels {
namespace {

void work(const char* name) {
  const TimedPart part(name);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST(TimedPart, CountsCallsAndSecondsByName) {
  start_timing();
  work("a");
  work("b");
  work("a");
  const PartTimes times = stop_timing();
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times.at("a").calls, 2);
  EXPECT_EQ(times.at("b").calls, 1);
  EXPECT_GE(times.at("a").seconds, 0.004);
  EXPECT_GE(times.at("b").seconds, 0.002);
  EXPECT_LT(times.at("a").seconds + times.at("b").seconds, 5);
}

TEST(TimedPart, CountsOnlyBetweenStartAndStop) {
  work("before");
  start_timing();
  work("between");
  const PartTimes times = stop_timing();
  work("after");
  ASSERT_EQ(times.size(), 1u);
  EXPECT_TRUE(times.contains("between"));
  EXPECT_TRUE(stop_timing().empty());
}

TEST(TimedPart, EveryStartBeginsAtNothing) {
  start_timing();
  work("first");
  start_timing();
  work("second");
  const PartTimes times = stop_timing();
  ASSERT_EQ(times.size(), 1u);
  EXPECT_TRUE(times.contains("second"));
}

TEST(TimedPart, OneThatCrossesAStartOrAStopCountsNowhere) {
  auto part = std::make_unique<TimedPart>("begun before");
  start_timing();
  part = std::make_unique<TimedPart>("ended after");
  EXPECT_TRUE(stop_timing().empty());
  part.reset();
  EXPECT_TRUE(stop_timing().empty());

  start_timing();
  part = std::make_unique<TimedPart>("of the first round");
  stop_timing();
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  start_timing();
  part.reset();
  EXPECT_TRUE(stop_timing().empty());
}

}  // namespace
}  // namespace freeformer::kernels
