#include "run/status_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <string>

namespace freeformer {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// --- Numbers for people

TEST(ProgressBar, FillsCellsThatAreDone) {
  EXPECT_EQ(progress_bar(0, 10), "[..........]");
  EXPECT_EQ(progress_bar(0.5, 10), "[#####.....]");
  EXPECT_EQ(progress_bar(0.99, 10), "[#########.]") << "full only when all is done";
  EXPECT_EQ(progress_bar(1, 10), "[##########]");
}

TEST(ProgressBar, CountsAShareThatRoundingMadeSmaller) {
  EXPECT_EQ(progress_bar(0.1 + 0.2, 10), "[###.......]");
  EXPECT_EQ(progress_bar(0.7 - 0.4, 10), "[###.......]");  // 0.29999999999999993
}

TEST(ProgressBar, HoldsWhateverTheShare) {
  EXPECT_EQ(progress_bar(-0.5, 4), "[....]");
  EXPECT_EQ(progress_bar(1.5, 4), "[####]");
  EXPECT_EQ(progress_bar(kInfinity, 4), "[####]");
  EXPECT_EQ(progress_bar(-kInfinity, 4), "[....]");
  EXPECT_EQ(progress_bar(kNan, 4), "[....]") << "0 of 0";
  EXPECT_EQ(progress_bar(0.5, 0), "[]");
}

TEST(Duration, NamesTheTwoLargestUnits) {
  EXPECT_EQ(duration(0), "0 s");
  EXPECT_EQ(duration(4), "4 s");
  EXPECT_EQ(duration(59.4), "59 s");
  EXPECT_EQ(duration(75), "1 min 15 s");
  EXPECT_EQ(duration(3723), "1 h 02 min");
  EXPECT_EQ(duration(100 * 3600), "100 h 00 min");
}

TEST(Duration, RoundsIntoTheNextUnit) {
  EXPECT_EQ(duration(59.6), "1 min 00 s");
  EXPECT_EQ(duration(3599.4), "59 min 59 s");
  EXPECT_EQ(duration(3599.6), "1 h 00 min");
}

TEST(Duration, OfNoTimeThatThereIsIsAQuestionMark) {
  EXPECT_EQ(duration(kNan), "?");
  EXPECT_EQ(duration(kInfinity), "?");
  EXPECT_EQ(duration(1e300), "?");
  EXPECT_EQ(duration(-3), "0 s") << "a clock that was set back";
}

TEST(ShortNumber, HasThreeDigits) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(321), "321");
  EXPECT_EQ(short_number(1234), "1.23 k");
  EXPECT_EQ(short_number(45678), "45.7 k");
  EXPECT_EQ(short_number(456789), "457 k");
  EXPECT_EQ(short_number(1234567), "1.23 M");
  EXPECT_EQ(short_number(7.06e9), "7.06 G");
  EXPECT_EQ(short_number(1.5e12), "1.50 T");
  EXPECT_EQ(short_number(-45678), "-45.7 k");
}

TEST(ShortNumber, RoundsIntoTheNextDigitAndUnit) {
  EXPECT_EQ(short_number(999.4), "999");
  EXPECT_EQ(short_number(999.5), "1.00 k");
  EXPECT_EQ(short_number(9994), "9.99 k");
  EXPECT_EQ(short_number(9995), "10.0 k");
  EXPECT_EQ(short_number(99949), "99.9 k");
  EXPECT_EQ(short_number(99950), "100 k");
  EXPECT_EQ(short_number(999499), "999 k");
  EXPECT_EQ(short_number(999500), "1.00 M");
}

TEST(ShortNumber, HasALastUnit) {
  EXPECT_EQ(short_number(2e15), "2000 T");
  EXPECT_EQ(short_number(kNan), "nan");
}

// --- Where stderr is a file

std::string written_to_a_file(bool quiet, const std::function<void(StatusLine&)>& use) {
  testing::internal::CaptureStderr();
  {
    StatusLine status(quiet);
    EXPECT_FALSE(status.is_terminal());
    use(status);
  }
  return testing::internal::GetCapturedStderr();
}

void use_everything(StatusLine& status) {
  status.show("step 1");
  status.show_briefly("evaluating");
  status.show("step 2");
  status.say("best so far");
}

TEST(StatusLine, WritesPlainLinesWhereThereIsNoTerminal) {
  EXPECT_EQ(written_to_a_file(false, use_everything), "step 1\nstep 2\nbest so far\n");
}

TEST(StatusLine, KeepsALongLineWholeWhereThereIsNoTerminal) {
  const std::string text(500, 'x');
  EXPECT_EQ(written_to_a_file(false, [&](StatusLine& status) { status.show(text); }), text + "\n");
}

TEST(StatusLine, SaysNothingWhenQuiet) { EXPECT_EQ(written_to_a_file(true, use_everything), ""); }

// --- Where stderr is a terminal

// What the terminal of this many columns receives; nothing if the machine has none to give.
std::optional<std::string> written_to_a_terminal(unsigned short columns, const char* term,
                                                 bool quiet,
                                                 const std::function<void(StatusLine&)>& use) {
  const int outer = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (outer < 0 || grantpt(outer) != 0 || unlockpt(outer) != 0) return std::nullopt;
  const int inner = open(ptsname(outer), O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (inner < 0) return std::nullopt;
  winsize size{};
  size.ws_col = columns;
  ioctl(inner, TIOCSWINSZ, &size);
  const char* former_term = std::getenv("TERM");
  const std::string kept = former_term == nullptr ? "" : former_term;
  setenv("TERM", term, 1);
  const int former = dup(STDERR_FILENO);
  dup2(inner, STDERR_FILENO);
  {
    StatusLine status(quiet);
    use(status);
  }
  dup2(former, STDERR_FILENO);
  close(former);
  former_term == nullptr ? unsetenv("TERM") : setenv("TERM", kept.c_str(), 1);
  fcntl(outer, F_SETFL, O_NONBLOCK);
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(outer, buffer, sizeof(buffer))) > 0;)
    text.append(buffer, size_t(n));
  close(inner);
  close(outer);
  return text;
}

#define EXPECT_ON_TERMINAL(expected, ...)                             \
  do {                                                                \
    const auto found = written_to_a_terminal(__VA_ARGS__);            \
    if (!found) GTEST_SKIP() << "no pseudo-terminal on this machine"; \
    EXPECT_EQ(*found, expected);                                      \
  } while (false)

TEST(StatusLine, RedrawsOneLineInATerminal) {
  // The terminal itself writes \n as \r\n.
  EXPECT_ON_TERMINAL("\rstep 1\033[K\revaluating\033[K\rstep 2\033[K\r\033[Kbest so far\r\n", 80,
                     "xterm", false, use_everything);
}

TEST(StatusLine, LeavesTheLastLineStanding) {
  EXPECT_ON_TERMINAL("\rstep 9\033[K\r\n", 80, "xterm", false,
                     [](StatusLine& status) { status.show("step 9"); });
}

TEST(StatusLine, CutsToTheTerminalsWidthInCharacters) {
  // One column stays free: a full line would wrap in some terminals.
  EXPECT_ON_TERMINAL("\rκ = 0.5, \033[K\r\n", 10, "xterm", false,
                     [](StatusLine& status) { status.show("κ = 0.5, β = 1"); });
  EXPECT_ON_TERMINAL("\rββββ\033[K\r\n", 5, "xterm", false,
                     [](StatusLine& status) { status.show("βββββ"); });
  EXPECT_ON_TERMINAL("\r\033[K\r\n", 1, "xterm", false,
                     [](StatusLine& status) { status.show("any"); });
}

TEST(StatusLine, TakesEightyColumnsWhereTheTerminalDoesNotTell) {
  EXPECT_ON_TERMINAL("\r" + std::string(79, 'x') + "\033[K\r\n", 0, "xterm", false,
                     [](StatusLine& status) { status.show(std::string(100, 'x')); });
}

TEST(StatusLine, WritesPlainLinesInADumbTerminal) {
  EXPECT_ON_TERMINAL("step 1\r\nstep 2\r\nbest so far\r\n", 80, "dumb", false, use_everything);
}

TEST(StatusLine, SaysNothingInATerminalWhenQuiet) {
  EXPECT_ON_TERMINAL("", 80, "xterm", true, use_everything);
}

}  // namespace
}  // namespace freeformer
