// demo and sweep through the command line, on tiny models.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "core/json.h"
#include "program_run.h"

namespace freeformer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kTiny = std::string(R"(
[run]
steps = 20
)") + kTinyModel + R"(
[batch]
tokens_per_step = 260
[evaluation]
every = 10
rows = 2
[checkpoints]
every = 5
[logging]
every = 5
gemm_share = false
tensorboard = false
)";

class StudyCommands : public testing::Test {
 protected:
  StudyCommands() { write_file_atomically(file, kTiny); }

  std::string sweep(const fs::path& to, const std::string& more, int samples = 2) const {
    return "sweep " + file.string() + " --rows 4 --iwae " + std::to_string(samples) +
           " --groups 2 --out " + to.string() + " " + more;
  }

  TemporaryFolder folder;
  const fs::path file = folder.path() / "tiny.toml";
  const fs::path out = folder.path() / "out";
};

TEST_F(StudyCommands, MistakesAreOneLineEach) {
  expect_one_line_error(run("sweep"), 2, "CONFIG");
  expect_one_line_error(run("sweep /nowhere.toml"), 1, "/nowhere.toml: cannot open");
  expect_one_line_error(run(sweep(out, "--over latent.bits")), 2, "--over latent.bits");
  expect_one_line_error(run(sweep(out, "--over latent.bit=2,4")), 2, "latent.bits");
  expect_one_line_error(run(sweep(out, "--over latent.bits=4,99")), 2, "expected 0 to 20");
  expect_one_line_error(run(sweep(out, "--seeds 0")), 2, "--seeds");
  expect_one_line_error(run("demo --set run.stepz=3"), 2, "run.steps");
  expect_one_line_error(run("demo --quick --set data.kind=coin"), 2, "the demo is about letters");
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(StudyCommands, DryRunPrintsTheRunsAndMakesNothing) {
  const Outcome outcome =
      run(sweep(out, "--over latent.kappa_bits=1/8,1 --seeds 2 --baselines --dry-run"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 8);
  EXPECT_THAT(outcome.out, HasSubstr("plain-one-more-layer,seed=2"));
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(StudyCommands, ShippedSettingsHoldAtEveryKappaOfThePaper) {
  for (const std::string name : {"coin", "demo", "letters", "synthetic"}) {
    const Outcome outcome = run("sweep " FREEFORMER_SOURCE_DIR "/configs/" + name +
                                ".toml --over latent.kappa_bits=1/64,1/8,1,8 --dry-run");
    EXPECT_EQ(outcome.status, 0) << name << ": " << outcome.err;
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 4) << outcome.out;
  }
}

#if FREEFORMER_HAS_TORCH

TEST_F(StudyCommands, ASweepThatWasStoppedEndsWithTheSameTables) {
  const std::string over = "--over latent.bits=4,0 -q";
  ASSERT_EQ(run(sweep(out, over)).status, 0);
  const std::string table = read_text_file(out / "table.md");
  EXPECT_THAT(table, HasSubstr("| latent.bits=4 | 1 |"));
  EXPECT_THAT(table, HasSubstr("well formed"));

  // SIGTERM as soon as it trains, then after a while, again and again, until it ends by itself.
  const fs::path again = folder.path() / "again";
  const std::string command =
      "exec " + std::string(FREEFORMER_PROGRAM) + " " + sweep(again, over) + " >/dev/null 2>&1";
  int stopped = 0;
  for (int attempt = 0; attempt < 60; ++attempt) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    for (int wait = 0; attempt == 0 && wait < 6000; ++wait) {
      if (fs::exists(again / "latent.bits=4,seed=1" / "metrics.jsonl")) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200 * attempt));
    kill(child, SIGTERM);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
    ++stopped;
  }
  EXPECT_GT(stopped, 0) << "it was never stopped";
  EXPECT_EQ(read_text_file(again / "table.md"), table);
  EXPECT_EQ(read_text_file(again / "results.jsonl"), read_text_file(out / "results.jsonl"));

  // What is done is skipped: no run is touched.
  const auto before = fs::last_write_time(again / "latent.bits=0,seed=1" / "metrics.jsonl");
  const Outcome done = run(sweep(again, over));
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr(table));
  EXPECT_EQ(fs::last_write_time(again / "latent.bits=0,seed=1" / "metrics.jsonl"), before);

  // A study that cannot be read, or was made with other samples, is made again.
  const fs::path study = again / "latent.bits=4,seed=1" / "study.json";
  write_file_atomically(study, "{\"step\":");
  ASSERT_EQ(run(sweep(again, over)).status, 0);
  EXPECT_EQ(read_text_file(again / "table.md"), table);
  ASSERT_EQ(run(sweep(again, over, 3)).status, 0);
  EXPECT_THAT(read_text_file(study), HasSubstr("\"iwae_samples\":3"));

  // Other settings in the same folder are not the same sweep.
  expect_one_line_error(run(sweep(again, over + " --set optimizer.beta2=0.5")), 1,
                        "other settings (optimizer.beta2");
}

// Another process that asks a run's model, which is after its training, holds sweep.lock alone.
TEST_F(StudyCommands, ARunThatAnotherProcessAsksComesLast) {
  const fs::path first = out / "latent.bits=2,seed=1", second = out / "latent.bits=4,seed=1";
  fs::create_directories(first);
  const int lock = ::open((first / "sweep.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  std::thread other([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!fs::exists(second / "study.json") && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_FALSE(fs::exists(first / "checkpoints"));
    ::close(lock);
  });
  const Outcome outcome = run(sweep(out, "--over latent.bits=2,4"));
  other.join();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("another process is at it"));
  EXPECT_TRUE(fs::exists(first / "study.json"));
}

TEST_F(StudyCommands, TwoProcessesShareASweep) {
  const std::string one = folder.path() / "one", other = folder.path() / "other";
  const std::string program = std::string(FREEFORMER_PROGRAM) + " ";
  const std::string arguments = sweep(out, "--over latent.bits=2,4");
  const std::string command = "(" + program + arguments + " >/dev/null 2>" + one + " & " + program +
                              arguments + " >/dev/null 2>" + other + "; s=$?; wait $! && exit $s)";
  EXPECT_EQ(std::system(command.c_str()), 0);
  const std::string results = read_text_file(out / "results.jsonl");
  EXPECT_EQ(std::count(results.begin(), results.end(), '\n'), 2);
  // Each run was trained by one of them alone.
  const std::string said = read_text_file(one) + read_text_file(other);
  size_t starts = 0;
  for (size_t at = 0; (at = said.find("Free Transformer, ", at)) != said.npos; ++at) ++starts;
  EXPECT_EQ(starts, 2U) << said;
}

TEST_F(StudyCommands, ARunThatFailsDoesNotStopTheOthers) {
  const Outcome outcome = run(sweep(out, "--over optimizer.learning_rate=1e28,1e-3 -q"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("optimizer.learning_rate=1e28,seed=1: "));
  EXPECT_THAT(outcome.out, HasSubstr("| optimizer.learning_rate=1e28 | 0 |"));
  EXPECT_THAT(outcome.out, HasSubstr("| optimizer.learning_rate=1e-3 | 1 |"));
}

TEST_F(StudyCommands, TheDemoShowsItsFigureAndWritesAReport) {
  const Outcome outcome = run("demo --quick --out " + out.string());
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("one Z for all eight"));
  EXPECT_THAT(outcome.out, HasSubstr("of pairs of sequences"));
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << "colours, and no terminal";
  const std::string report = read_text_file(out / "report.html");
  EXPECT_THAT(report, HasSubstr("<svg"));
  EXPECT_THAT(report, HasSubstr("</html>"));
  // The second time there is nothing left to train.
  const Outcome again = run("demo --quick --json --out " + out.string());
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(Json::parse(again.out).contains("letters"));
  EXPECT_EQ(again.err.find("step 10/"), std::string::npos) << again.err;
}

#else

TEST_F(StudyCommands, WithoutLibTorchSayWhatIsMissing) {
  expect_one_line_error(run(sweep(out, "-q")), 1, "LibTorch");
  expect_one_line_error(run("demo -q --out " + out.string()), 1, "LibTorch");
}

#endif

}  // namespace
}  // namespace freeformer
