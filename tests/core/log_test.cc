#include "core/log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

namespace freeformer {
namespace {

using Line = std::tuple<LogLevel, std::string, std::string>;

// Collects the lines, and leaves level and sink as they were.
class Log : public testing::Test {
 protected:
  Log() {
    set_log_sink([this](LogLevel level, std::string_view tag, std::string_view text) {
      lines_.emplace_back(level, tag, text);
    });
  }
  ~Log() override {
    set_log_sink({});
    set_log_level(level_before_);
  }

  std::vector<Line> lines_;
  LogLevel level_before_ = log_level();
};

TEST_F(Log, TheSinkGetsLevelTagAndFormattedText) {
  set_log_level(LogLevel::kInfo);
  log(LogLevel::kWarn, "train", "step {} of {}", 3, 10);
  EXPECT_EQ(lines_, (std::vector<Line>{{LogLevel::kWarn, "train", "step 3 of 10"}}));
}

TEST_F(Log, EachLevelLetsThroughItselfAndTheGraver) {
  const std::vector<LogLevel> levels = {LogLevel::kError, LogLevel::kWarn, LogLevel::kInfo,
                                        LogLevel::kDebug};
  for (size_t limit = 0; limit < levels.size(); ++limit) {
    set_log_level(levels[limit]);
    EXPECT_EQ(log_level(), levels[limit]);
    lines_.clear();
    for (const LogLevel level : levels) log(level, "tag", "text");
    ASSERT_EQ(lines_.size(), limit + 1);
    for (size_t i = 0; i <= limit; ++i) EXPECT_EQ(std::get<LogLevel>(lines_[i]), levels[i]);
  }
}

TEST_F(Log, TheSinkIsNotCalledForAFilteredLine) {
  set_log_level(LogLevel::kError);
  log(LogLevel::kWarn, "tag", "text");
  log(LogLevel::kDebug, "tag", "text");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(Log, BracesInArgumentsAreText) {
  set_log_level(LogLevel::kInfo);
  log(LogLevel::kInfo, "{}", "{}", "{0} %s");
  EXPECT_EQ(lines_, (std::vector<Line>{{LogLevel::kInfo, "{}", "{0} %s"}}));
}

TEST_F(Log, WithoutASinkLinesGoToStderrWithTagAndMark) {
  set_log_level(LogLevel::kDebug);
  set_log_sink({});
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  log(LogLevel::kError, "serve", "no {}", "port");
  log(LogLevel::kWarn, "serve", "slow");
  log(LogLevel::kInfo, "serve", "100%s ready");
  log(LogLevel::kDebug, "serve", "detail");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[serve] error: no port\n"
            "[serve] warning: slow\n"
            "[serve] 100%s ready\n"
            "[serve] detail\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_TRUE(lines_.empty());
}

// The level is read once at the start of a process, so each case needs its own.
void expect_level_from(const char* setting, LogLevel expected, const char* warning) {
  SCOPED_TRACE(setting);
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the child starts the program anew
  setenv("FREEFORMER_LOG", setting, 1);
  EXPECT_EXIT(std::_Exit(log_level() == expected ? 0 : 1), testing::ExitedWithCode(0), warning);
  unsetenv("FREEFORMER_LOG");
}

TEST(LogEnvironmentDeathTest, SetsTheLevelAtStart) {
  expect_level_from("error", LogLevel::kError, "^$");
  expect_level_from("warn", LogLevel::kWarn, "^$");
  expect_level_from("info", LogLevel::kInfo, "^$");
  expect_level_from("debug", LogLevel::kDebug, "^$");
  expect_level_from("", LogLevel::kInfo, "^$");
}

TEST(LogEnvironmentDeathTest, WarnsOfALevelThatIsNone) {
  expect_level_from("loud", LogLevel::kInfo, "FREEFORMER_LOG=loud is not a level; expected error");
}

}  // namespace
}  // namespace freeformer
