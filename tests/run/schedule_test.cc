#include "run/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "expect_error.h"

namespace freeformer {
namespace {

ScheduleSettings schedule(const std::string& kind, int64_t warmup_steps, double final_factor = 0.1,
                          double decay_share = 0.2) {
  return {kind, warmup_steps, final_factor, decay_share};
}

std::vector<double> factors(const ScheduleSettings& settings, int64_t steps) {
  std::vector<double> all;
  for (int64_t step = 0; step < steps; ++step) {
    all.push_back(schedule_factor(settings, step, steps));
  }
  return all;
}

using Factors = std::vector<double>;

void expect_near(const Factors& found, const Factors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << i;
}

// --- Shapes

TEST(Schedule, ConstantStaysAtOneAfterTheWarmUp) {
  EXPECT_EQ(factors(schedule("constant", 4), 7), (Factors{0.25, 0.5, 0.75, 1, 1, 1, 1}));
  EXPECT_EQ(factors(schedule("constant", 0), 3), (Factors{1, 1, 1}));
}

TEST(Schedule, LinearFallsAlongALine) {
  expect_near(factors(schedule("linear", 2, 0.2), 7), {0.5, 1, 1, 0.8, 0.6, 0.4, 0.2});
  expect_near(factors(schedule("linear", 0, 0), 5), {1, 0.75, 0.5, 0.25, 0});
}

TEST(Schedule, CosineFallsAlongHalfACosine) {
  const double q = std::sqrt(0.5) / 2;
  expect_near(factors(schedule("cosine", 2, 0), 7), {0.5, 1, 1, 0.5 + q, 0.5, 0.5 - q, 0});
  expect_near(factors(schedule("cosine", 0, 0.5), 3), {1, 0.75, 0.5});
}

TEST(Schedule, WsdIsStableThenFallsAlongALine) {
  expect_near(factors(schedule("wsd", 2, 0.2, 0.3), 10), {0.5, 1, 1, 1, 1, 1, 1, 1, 0.6, 0.2});
}

TEST(Schedule, WsdRoundsItsShareToStepsAndHasAtLeastOne) {
  expect_near(factors(schedule("wsd", 0, 0, 0.6), 4), {1, 1, 1, 0});    // 2.4 steps
  expect_near(factors(schedule("wsd", 0, 0, 0.7), 4), {1, 1, 0.5, 0});  // 2.8 steps
  expect_near(factors(schedule("wsd", 0, 0, 0.001), 4), {1, 1, 1, 0});
}

TEST(Schedule, WsdNeverDecaysBeforeTheWarmUpIsOver) {
  for (const int64_t warmup : {0, 1, 5, 9, 10}) {
    EXPECT_EQ(factors(schedule("wsd", warmup, 0.3, 1), 10),
              factors(schedule("linear", warmup, 0.3), 10));
  }
}

// --- Edges

TEST(Schedule, BeginsAndEndsExactly) {
  for (const char* kind : {"cosine", "linear", "wsd"}) {
    for (const double final_factor : {0.0, 0.1, 0.3, 1.0}) {
      const ScheduleSettings settings = schedule(kind, 100, final_factor);
      EXPECT_EQ(schedule_factor(settings, 0, 1000), 0.01);
      EXPECT_EQ(schedule_factor(settings, 99, 1000), 1) << "the warm-up's last";
      EXPECT_EQ(schedule_factor(settings, 100, 1000), 1) << "the first after it";
      EXPECT_EQ(schedule_factor(settings, 999, 1000), final_factor) << kind;
      EXPECT_EQ(schedule_factor(schedule(kind, 0, final_factor), 0, 1000), 1) << "no warm-up";
    }
  }
}

TEST(Schedule, AWarmUpAsLongAsTheRunIsAllThereIs) {
  for (const char* kind : {"constant", "cosine", "linear", "wsd"}) {
    EXPECT_EQ(factors(schedule(kind, 4), 4), (Factors{0.25, 0.5, 0.75, 1})) << kind;
    EXPECT_EQ(factors(schedule(kind, 1), 1), (Factors{1})) << kind;
  }
}

TEST(Schedule, ADecayOfOneStepIsItsEnd) {
  for (const char* kind : {"cosine", "linear", "wsd"}) {
    EXPECT_EQ(factors(schedule(kind, 0), 1), (Factors{0.1})) << kind;
    EXPECT_EQ(factors(schedule(kind, 2), 3), (Factors{0.5, 1, 0.1})) << kind;
  }
  EXPECT_EQ(factors(schedule("constant", 0), 1), (Factors{1}));
}

TEST(Schedule, RisesThenNeverRisesAgain) {
  for (const char* kind : {"constant", "cosine", "linear", "wsd"}) {
    for (const int64_t steps : {1, 2, 3, 10, 97}) {
      for (const int64_t warmup : {int64_t{0}, int64_t{1}, steps / 2, steps - 1, steps}) {
        const Factors all = factors(schedule(kind, warmup, 0.1, 0.37), steps);
        for (int64_t step = 0; step < steps; ++step) {
          EXPECT_GT(all[size_t(step)], 0);
          EXPECT_LE(all[size_t(step)], 1);
          if (step == 0) continue;
          const double change = all[size_t(step)] - all[size_t(step - 1)];
          EXPECT_TRUE(step < warmup ? change > 0 : change <= 0)
              << kind << ' ' << step << " of " << steps << ", warm-up " << warmup;
        }
      }
    }
  }
}

TEST(Schedule, SurvivesVeryLongRuns) {
  constexpr int64_t kSteps = int64_t{1} << 60;
  for (const char* kind : {"cosine", "linear", "wsd"}) {
    EXPECT_EQ(schedule_factor(schedule(kind, 0), kSteps - 1, kSteps), 0.1) << kind;
    EXPECT_EQ(schedule_factor(schedule(kind, kSteps), kSteps - 1, kSteps), 1) << kind;
  }
}

TEST(Schedule, AStepOutsideOfTheRunIsABug) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "step < steps",
                          schedule_factor(schedule("cosine", 0), 10, 10));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "step",
                          schedule_factor(schedule("cosine", 0), -1, 10));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "kind",
                          schedule_factor(schedule("cosin", 0), 1, 10));
}

// --- Paths

Factors walk(const char* path, double value, int64_t steps) {
  Factors found;
  for (int64_t step = 0; step < steps; ++step) {
    found.push_back(ValuePath::parse(path).value().at(step, value));
  }
  return found;
}

TEST(ValuePathTest, GoesAlongALineToTheValueAndStays) {
  EXPECT_EQ(walk("0:1 4", 3, 6), (Factors{1, 1.5, 2, 2.5, 3, 3}));
  EXPECT_EQ(walk("0:3 2", -1, 3), (Factors{3, 1, -1})) << "downwards";
}

TEST(ValuePathTest, NothingIsTheValueFromTheStart) {
  EXPECT_EQ(walk("", 3, 2), (Factors{3, 3}));
  EXPECT_EQ(walk("  ", 3, 2), (Factors{3, 3}));
}

TEST(ValuePathTest, HoldsItsFirstValueUntilItsFirstStep) {
  EXPECT_EQ(walk("2:1 4", 3, 6), (Factors{1, 1, 1, 2, 3, 3}));
}

TEST(ValuePathTest, MeetsEveryPointOnTheWay) {
  EXPECT_EQ(walk("1:8 3:0 4:0 6:1/2 8", 1.5, 10), (Factors{8, 8, 4, 0, 0, .25, .5, 1, 1.5, 1.5}));
}

TEST(ValuePathTest, JumpsWhereTwoPointsShareAStep) {
  EXPECT_EQ(walk("2:1 2", 3, 4), (Factors{1, 1, 3, 3}));
  EXPECT_EQ(walk("1:5 1:2 3:2 3", 7, 5), (Factors{5, 2, 2, 7, 7}));
}

TEST(ValuePathTest, RefusesWhatIsNoPath) {
  for (const char* text : {"5", "5:1", "5:1 4", "5:1 4:2 9", "5: 6", ":1 6", "5:-1 6", "5:x 6",
                           "5:1x 6", "5:inf 6", "x 6", "-1:0 6", "5:1 6 7", "5:1 6 7:2",
                           "5:1 6:", "5.5:1 6", "5:1,6", "99999999999999999999:1 6", "5:1:2 6"}) {
    EXPECT_FALSE(ValuePath::parse(text).has_value()) << text;
  }
}

// The text comes from a file or a command line: whatever it says, no crash and no wild value.
TEST(ValuePathTest, IsNeverNegativeOrInfiniteWhateverTheText) {
  std::mt19937_64 random(1);
  const std::string alphabet = "0123456789::  /.e-";
  int paths = 0;
  for (int trial = 0; trial < 200'000; ++trial) {
    std::string text;
    for (uint64_t size = random() % 12; size > 0; --size) {
      text += alphabet[random() % alphabet.size()];
    }
    const auto path = ValuePath::parse(text);
    if (!path) continue;
    paths += text.find(':') == text.npos ? 0 : 1;
    for (const int64_t step : {int64_t(0), int64_t(7), int64_t(500), INT64_MAX}) {
      const double value = path->at(step, 1);
      ASSERT_TRUE(std::isfinite(value) && value >= 0) << text << " at " << step << ": " << value;
    }
  }
  EXPECT_GT(paths, 100);
}

// --- Settings

// The schedule's section of a run, read and checked.
std::string checked(const std::string& toml, int64_t steps) {
  ScheduleSettings settings;
  Fields fields;
  fields.section("schedule", [&](Fields& list) { list_fields(list, settings); });
  fields.read("[schedule]\n" + toml, "run.toml");
  check(fields, "schedule.", settings, steps);
  return fields.write();
}

TEST(ScheduleSettings, ReadsAndWritesItsFields) {
  const std::string wsd = "kind = \"wsd\"\nwarmup_steps = 7\nfinal_factor = 0.25\n";
  EXPECT_EQ(checked(wsd + "decay_share = 0.5", 100), "[schedule]\n" + wsd + "decay_share = 0.5\n");
}

TEST(ScheduleSettings, LeavesOutWhatTheKindDoesNotUse) {
  EXPECT_EQ(checked("", 100),
            "[schedule]\nkind = \"cosine\"\nwarmup_steps = 100\nfinal_factor = 0.1\n");
  EXPECT_EQ(checked("kind = 'constant'", 100),
            "[schedule]\nkind = \"constant\"\nwarmup_steps = 100\n");
}

#define EXPECT_REFUSED(words, toml) \
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, words, checked(toml, 100))

TEST(ScheduleSettings, RefusesWhatTheKindDoesNotUse) {
  EXPECT_REFUSED("run.toml:3: schedule.final_factor has no effect: schedule.kind is \"constant\"",
                 "kind = 'constant'\nfinal_factor = 0.1");
  for (const std::string kind : {"constant", "cosine", "linear"}) {
    EXPECT_REFUSED(
        "run.toml:3: schedule.decay_share has no effect: schedule.kind is \"" + kind + "\"",
        "kind = '" + kind + "'\ndecay_share = 0.2");
  }
}

TEST(ScheduleSettings, AcceptsTheEndsOfItsRanges) {
  EXPECT_NO_THROW(checked("warmup_steps = 0\nfinal_factor = 0", 100));
  EXPECT_NO_THROW(checked("warmup_steps = 100\nfinal_factor = 1", 100));
  EXPECT_NO_THROW(checked("kind = 'wsd'\ndecay_share = 1", 100));
}

TEST(ScheduleSettings, RefusesValuesOutOfRange) {
  EXPECT_REFUSED("run.toml:2: schedule.warmup_steps is -1, expected 0 to 100, the steps of the run",
                 "warmup_steps = -1");
  EXPECT_REFUSED("schedule.warmup_steps is 101, expected 0 to 100", "warmup_steps = 101");
  EXPECT_REFUSED("schedule.final_factor is -0.1, expected 0 to 1", "final_factor = -0.1");
  EXPECT_REFUSED("schedule.final_factor is 1.1, expected 0 to 1", "final_factor = 1.1");
  EXPECT_REFUSED("schedule.decay_share is 0.0, expected more than 0 and at most 1",
                 "kind = 'wsd'\ndecay_share = 0");
  EXPECT_REFUSED("schedule.decay_share is 1.5, expected more than 0 and at most 1",
                 "kind = 'wsd'\ndecay_share = '3/2'");
  EXPECT_REFUSED("schedule.kind is \"cosin\", expected one of: constant, cosine, linear, wsd",
                 "kind = 'cosin'");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig,
                          "default: schedule.warmup_steps is 100, expected 0 to 50",
                          checked("", 50));
}

}  // namespace
}  // namespace freeformer
