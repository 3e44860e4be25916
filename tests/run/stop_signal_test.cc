#include "run/stop_signal.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace freeformer {
namespace {

struct Named {
  int number;
  const char* name;
};
constexpr Named kStopSignals[] = {{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGUSR1, "SIGUSR1"}};

volatile std::sig_atomic_t seen_by_former_handler = 0;
void former_handler(int signal) { seen_by_former_handler = signal; }

// What a child process that runs `function` ends with: its exit status, or minus its signal.
template <typename Function>
int end_of_child(Function function) {
  const pid_t child = fork();
  if (child == 0) {
    function();
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 1000;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(StopSignal, HasReceivedNothingAtFirst) {
  const StopSignal stop;
  EXPECT_EQ(StopSignal::received(), nullptr);
}

TEST(StopSignal, TellsEachSignalByName) {
  for (const auto& [number, name] : kStopSignals) {
    const StopSignal stop;
    EXPECT_EQ(StopSignal::received(), nullptr) << "left over from the one before";
    ASSERT_EQ(raise(number), 0);
    ASSERT_NE(StopSignal::received(), nullptr) << name;
    EXPECT_EQ(std::string(StopSignal::received()), name);
  }
}

TEST(StopSignal, OutlivesTheOneInside) {
  const StopSignal outer;
  {
    const StopSignal inner;
    ASSERT_EQ(raise(SIGTERM), 0);
  }
  ASSERT_NE(StopSignal::received(), nullptr) << "the sweep must hear what stopped its run";
  {
    const StopSignal next;
    EXPECT_NE(StopSignal::received(), nullptr) << "the next run must not begin";
  }
}

TEST(StopSignal, GivesTheFormerHandlersBack) {
  for (const auto& [number, name] : kStopSignals) {
    struct sigaction former {
    }, before{}, after{};
    former.sa_handler = former_handler;
    sigemptyset(&former.sa_mask);
    sigaddset(&former.sa_mask, SIGHUP);
    ASSERT_EQ(sigaction(number, &former, &before), 0);
    seen_by_former_handler = 0;
    {
      const StopSignal stop;
      raise(number);
      EXPECT_EQ(seen_by_former_handler, 0) << name << " reached the former handler";
    }
    raise(number);
    EXPECT_EQ(seen_by_former_handler, number) << name;
    sigaction(number, nullptr, &after);
    EXPECT_EQ(sigismember(&after.sa_mask, SIGHUP), 1) << "not all of the former action is back";
    sigaction(number, &before, nullptr);
  }
}

TEST(StopSignal, KillsAgainWhenItIsOver) {
  for (const auto& [number, name] : kStopSignals) {
    EXPECT_EQ(end_of_child([signal = number] {
                std::signal(signal, SIG_DFL);
                { const StopSignal stop; }
                raise(signal);
              }),
              -number)
        << name;
  }
}

TEST(StopSignal, LeavesOtherSignalsAlone) {
  EXPECT_EQ(end_of_child([] {
              const StopSignal stop;
              raise(SIGUSR2);
            }),
            -SIGUSR2);
}

TEST(StopSignal, ASecondOneEndsTheProcessWithItsNumber) {
  for (const auto& first : kStopSignals) {
    for (const auto& second : kStopSignals) {
      EXPECT_EQ(end_of_child([&] {
                  const StopSignal stop;
                  raise(first.number);
                  raise(second.number);
                }),
                128 + second.number)
          << first.name << ", then " << second.name;
    }
  }
}

TEST(StopSignal, DoesNotBreakOffARead) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(end_of_child([&] {
              const StopSignal stop;
              const pid_t parent = getpid();
              const pid_t child = fork();
              if (child == 0) {  // signals while the parent waits for a byte, then sends it
                usleep(20'000);
                kill(parent, SIGTERM);
                usleep(20'000);
                _exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
              }
              char byte = 0;
              const bool whole = read(ends[0], &byte, 1) == 1 && byte == 'x';
              waitpid(child, nullptr, 0);
              _exit(whole && StopSignal::received() != nullptr ? 0 : 1);
            }),
            0);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace freeformer
