#include "data/shuffle.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "expect_error.h"

namespace freeformer {
namespace {

using Order = std::vector<uint64_t>;

// The first `length` places of the order.
Order order(uint64_t count, uint64_t seed, uint64_t epoch, uint64_t length) {
  const Shuffle shuffle(count, seed, epoch);
  Order values;
  for (uint64_t i = 0; i < length; ++i) values.push_back(shuffle(i));
  return values;
}

Order order(uint64_t count, uint64_t seed, uint64_t epoch) {
  return order(count, seed, epoch, count);
}

TEST(Shuffle, VisitsEveryIndexOnce) {
  for (uint64_t count = 1; count <= 300; ++count) {
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      const Order values = order(count, 7, epoch);
      const std::set<uint64_t> visited(values.begin(), values.end());
      ASSERT_EQ(visited.size(), count);
      ASSERT_EQ(*visited.rbegin(), count - 1);
    }
  }
}

TEST(Shuffle, VisitsNoIndexTwiceHoweverManyThereAre) {
  for (const uint64_t count : {uint64_t{1} << 40, (uint64_t{1} << 40) + 1, UINT64_MAX}) {
    constexpr uint64_t kSample = 5000;
    const Order values = order(count, 7, 0, kSample);
    const std::set<uint64_t> visited(values.begin(), values.end());
    EXPECT_EQ(visited.size(), kSample);
    EXPECT_LT(*visited.rbegin(), count);
    // All of the range is reached: a uniform sample misses either end with probability e^-50.
    EXPECT_LT(*visited.begin(), count / 100);
    EXPECT_GT(*visited.rbegin(), count - count / 100);
  }
}

TEST(Shuffle, IsAnotherOrderForAnotherSeedOrEpoch) {
  const std::set<Order> orders = {order(100, 1, 0), order(100, 1, 1), order(100, 2, 0),
                                  order(100, 1, uint64_t{1} << 32),
                                  order(100, uint64_t{1} << 32 | 1, 0)};
  EXPECT_EQ(orders.size(), 5u);
  EXPECT_EQ(order(100, 1, 1), order(100, 1, 1));
}

TEST(Shuffle, ReachesEveryOrderOfFour) {
  std::set<Order> orders;
  for (uint64_t epoch = 0; epoch < 400; ++epoch) orders.insert(order(4, 1, epoch));
  EXPECT_EQ(orders.size(), 24u);
}

TEST(Shuffle, SendsAnIndexAnywhereEquallyOften) {
  constexpr uint64_t kCount = 11, kEpochs = 4400;
  std::vector<std::vector<int>> visits(kCount, std::vector<int>(kCount));
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Shuffle shuffle(kCount, 3, epoch);
    for (uint64_t i = 0; i < kCount; ++i) ++visits[i][shuffle(i)];
  }
  for (const std::vector<int>& row : visits) {
    for (const int n : row) EXPECT_NEAR(n, kEpochs / kCount, 100);  // five standard deviations
  }
}

// A resumed run goes on with the rows of the program that began it.
TEST(Shuffle, KeepsItsOrderFromVersionToVersion) {
  EXPECT_EQ(order(1000, 1, 2, 5), (Order{840, 182, 268, 623, 966}));
  EXPECT_EQ(order(16, 1, 2, 5), (Order{5, 1, 14, 0, 9}));
}

TEST(Shuffle, NeedsSomethingToShuffle) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", Shuffle(0, 1, 1));
}

}  // namespace
}  // namespace freeformer
