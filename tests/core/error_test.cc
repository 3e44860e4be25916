#include "core/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "core/json.h"
#include "expect_error.h"

namespace freeformer {
namespace {

constexpr ErrorCode kAllCodes[] = {
    ErrorCode::kInvalidArgument, ErrorCode::kInvalidConfig,
    ErrorCode::kBadCheckpoint,   ErrorCode::kIo,
    ErrorCode::kUnsupported,     ErrorCode::kCapacity,
    ErrorCode::kInternal,
};

TEST(ErrorCode, EachHasItsOwnName) {
  std::set<std::string> names;
  for (const ErrorCode code : kAllCodes) names.insert(name(code));
  EXPECT_EQ(names.size(), std::size(kAllCodes));
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_STREQ(name(ErrorCode::kBadCheckpoint), "bad_checkpoint");
}

TEST(Error, CarriesItsCodeAndMessage) {
  const Error error(ErrorCode::kCapacity, "too long");
  EXPECT_EQ(error.code(), ErrorCode::kCapacity);
  EXPECT_STREQ(error.what(), "too long");
  const std::runtime_error& base = error;  // what generic handlers see
  EXPECT_STREQ(base.what(), "too long");
}

TEST(Fail, FormatsItsArguments) {
  try {
    fail(ErrorCode::kIo, "cannot open {}: {}", "a.txt", 13);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_STREQ(error.what(), "cannot open a.txt: 13");
  }
}

TEST(Fail, TakesBracesInArgumentsAsText) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "{}{0}", fail(ErrorCode::kIo, "{}", "{}{0}"));
}

TEST(Fail, StaysOnOneLineWhateverAnArgumentHolds) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "a?b", fail(ErrorCode::kIo, "{}", "a\nb"));
}

TEST(OneLine, LeavesTextAlone) {
  EXPECT_EQ(one_line(""), "");
  EXPECT_EQ(one_line("path: \"é…😀\" ~"), "path: \"é…😀\" ~");
  EXPECT_EQ(one_line(std::string(2000, 'x')), std::string(2000, 'x'));
}

TEST(OneLine, ShowsControlCharactersAsQuestionMarks) {
  EXPECT_EQ(one_line("a\r\n\t\x1B[2J\x7F" + std::string(1, '\0')), "a????[2J??");
}

TEST(OneLine, ShowsBrokenTextAndTheControlsOfUnicodeAsQuestionMarks) {
  EXPECT_EQ(one_line("a\xC3 b\xFF\xFE"), "a? b??");
  EXPECT_EQ(one_line("\u009B2J|\u0085|\u2028|\u2029|\u00A0"), "?2J|?|?|?|\u00A0");
}

TEST(OneLine, CutsALongTextInItsMiddleBetweenCharacters) {
  EXPECT_EQ(one_line("a" + std::string(2000, 'x') + "b"),
            "a" + std::string(1499, 'x') + "…" + std::string(499, 'x') + "b");
  for (size_t before = 0; before < 4; ++before) {
    std::string text(before, 'x');
    for (int i = 0; i < 1000; ++i) text += "é…😀";
    const std::string cut = one_line(text);
    EXPECT_LE(cut.size(), 2010u);
    EXPECT_EQ(find_invalid_utf8(cut), std::string::npos) << before;
  }
}

TEST(Check, PassesWhereTheConditionHolds) { EXPECT_NO_THROW(FF_CHECK(1 + 1 == 2)); }

TEST(Check, EvaluatesItsConditionOnce) {
  int evaluations = 0;
  FF_CHECK(++evaluations == 1);
  EXPECT_EQ(evaluations, 1);
}

TEST(Check, ThrowsInternalWithTheCondition) {
  const int apples = 3;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "expected apples == 4", FF_CHECK(apples == 4));
}

TEST(Check, NamesTheLine) {
  int line = 0;
  try {
    line = __LINE__ + 1;
    FF_CHECK(line == 0);
    ADD_FAILURE() << "threw nothing";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(fmt::format("error_test.cc:{}: ", line)));
  }
}

TEST(Check, NamesTheFileBelowTheSourceTreeOnly) {
  try {
    check_failed("/home/someone/src/freeformer/src/core/file.cc", 12, "x > 0");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "internal error at core/file.cc:12: expected x > 0 (please report this)");
  }
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal,
                          "at elsewhere.cc:3:", check_failed("elsewhere.cc", 3, "x"));
}

}  // namespace
}  // namespace freeformer
