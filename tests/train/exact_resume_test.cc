// Killed at any moment, a run goes on as if nothing had happened: byte for byte.
#include <sys/resource.h>

#include <chrono>
#include <random>
#include <thread>

#include "core/json.h"
#include "training_run.h"

namespace freeformer {
namespace {

struct Variant {
  const char* name;
  std::vector<std::string> assignments;
};

class EveryVariant : public testing::TestWithParam<Variant> {
 protected:
  TrainConfig config(const std::filesystem::path& folder) const {
    return tiny_run(folder, GetParam().assignments);
  }
  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(
    , EveryVariant,
    testing::Values(Variant{"PlainFp32", {}}, Variant{"PlainBf16", {"run.precision=bf16"}},
                    Variant{
                        "FreeFp32",
                        {"latent.bits=5", "latent.kappa_path=0:0 6", "latent.beta_path=3:0.5 4:2 9",
                         "latent.sharpen_by=3", "latent.sharpen_after=6"}},
                    Variant{"AheadFp32",
                            {"latent.bits=5", "latent.encoder_init=ahead", "latent.wake_after=6",
                             "latent.beta_path=6:0 9"}},
                    Variant{"FreeBf16",
                            {"latent.bits=5", "run.precision=bf16", "latent.sharpen_by=2",
                             "latent.sharpen_after=7"}},
                    Variant{"AheadBf16",
                            {"latent.bits=5", "run.precision=bf16", "latent.encoder_init=ahead",
                             "latent.wake_after=4"}}),
    [](const auto& variant) { return variant.param.name; });

double run_in_child(const TrainConfig& config) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(wait_for(start_child([&] { run_quietly(config); })), 0);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

size_t logged_steps(const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::exists(folder / "metrics.jsonl", error)) return 0;
  const std::string text = read_text_file(folder / "metrics.jsonl");
  return size_t(std::count(text.begin(), text.end(), '\n'));
}

// SIGTERM as soon as so many steps are logged: the run saves and ends.
void run_and_stop_after(size_t steps, const TrainConfig& config) {
  const pid_t child = start_child([&] {
    std::thread([steps, folder = config.folder, self = getpid()] {
      while (logged_steps(folder) < steps) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      kill(self, SIGTERM);
    }).detach();
    const TrainOutcome outcome = run_quietly(config);
    if (outcome.stopped_by != "SIGTERM" && outcome.step != config.run.steps) _exit(7);
  });
  ASSERT_EQ(wait_for(child), 0);
}

// A stop leaves a checkpoint of its own; everything else is the same.
void expect_files_of(const std::filesystem::path& whole, const std::filesystem::path& stopped) {
  const auto found = lasting_files(stopped);
  for (const auto& [name, content] : lasting_files(whole)) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_TRUE(found.at(name) == content) << name << " differs";
  }
}

TEST_P(EveryVariant, HalfTheStepsThenTheRestEqualAllAtOnce) {
  run_in_child(config(folder_.path() / "whole"));
  const TrainConfig half = config(folder_.path() / "halves");
  run_and_stop_after(6, half);
  run_in_child(half);
  expect_files_of(folder_.path() / "whole", folder_.path() / "halves");
}

TEST_P(EveryVariant, KilledAtTwentyOneMomentsItEndsTheSame) {
  const double seconds = run_in_child(config(folder_.path() / "whole"));
  std::mt19937 random(11);
  int killed = 0;
  for (int round = 0; round < 7; ++round) {
    const TrainConfig interrupted = config(folder_.path() / fmt::format("killed-{}", round));
    for (int kills = 0; kills < 3; ++kills) {
      // At some moment after some step.
      const size_t step = std::uniform_int_distribution<size_t>(size_t(kills) * 3, 10)(random);
      const pid_t child = start_child([&] { run_quietly(interrupted); });
      int status = 0;
      while (logged_steps(interrupted.folder) < step && waitpid(child, &status, WNOHANG) == 0) {
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(
          seconds * std::uniform_real_distribution(0.0, 0.1)(random)));
      kill(child, SIGKILL);
      killed += wait_for(child) == -SIGKILL;
    }
    run_in_child(interrupted);
    expect_same_files(interrupted.folder, folder_.path() / "whole");
    if (HasFailure()) return;
  }
  EXPECT_GT(killed, 15) << "most runs ended before they could be killed";
}

// A kill inside a save, made certain: the kernel ends the process at the write that takes a file
// beyond the limit, wherever that falls in the save.
TEST_P(EveryVariant, KilledInsideASaveItEndsTheSame) {
  const TrainConfig whole = config(folder_.path() / "whole");
  run_in_child(whole);
  const auto checkpoint = whole.folder / "checkpoints/latest";
  const TrainConfig interrupted = config(folder_.path() / "killed");
  run_and_stop_after(4, interrupted);  // there is a checkpoint to lose
  for (const auto& [file, share] : {std::pair{"model.safetensors", 0.5},
                                    {"model.safetensors", 1.0},
                                    {"optimizer.safetensors", 0.7},
                                    {"optimizer.safetensors", 1.0}}) {
    const auto limit = rlim_t(share * double(std::filesystem::file_size(checkpoint / file))) - 1;
    const pid_t child = start_child([&] {
      const rlimit none = {0, 0}, size = {limit, limit};
      setrlimit(RLIMIT_CORE, &none);
      setrlimit(RLIMIT_FSIZE, &size);
      run_quietly(interrupted);
    });
    ASSERT_EQ(wait_for(child), -SIGXFSZ) << file;
    bool inside = false;
    for (const auto& entry :
         std::filesystem::directory_iterator(interrupted.folder / "checkpoints")) {
      inside = inside || entry.path().filename().string().starts_with(".tmp-step");
    }
    EXPECT_TRUE(inside) << file;
  }
  run_in_child(interrupted);
  expect_files_of(whole.folder, interrupted.folder);
}

TEST(StopSignals, DuringAnEvaluationTheStepIsSavedAndEvaluatedLater) {
  const TemporaryFolder folder;
  // Evaluation takes nearly all of the time: a signal at a random moment falls into it.
  const std::vector<std::string> heavy = {"run.steps=3", "evaluation.every=1",
                                          "evaluation.rows=512", "latent.bits=4",
                                          "data.context=64"};
  const TrainConfig whole = tiny_run(folder.path() / "whole", heavy);
  const double seconds = run_in_child(whole);
  int pending = 0;
  for (int attempt = 0; attempt < 10 && pending == 0; ++attempt) {
    const TrainConfig stopped = tiny_run(folder.path() / fmt::format("stopped-{}", attempt), heavy);
    const pid_t child = start_child([&] { run_quietly(stopped); });
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds * (0.3 + 0.05 * attempt)));
    kill(child, SIGUSR1);
    ASSERT_EQ(wait_for(child), 0) << "a stop by signal is not a failure";
    const auto state = stopped.folder / "checkpoints/latest/trainer_state.json";
    if (!std::filesystem::exists(state)) continue;
    const bool interrupted = !Json::parse(read_text_file(state))["pending"].is_null();
    pending += interrupted;
    run_in_child(stopped);
    EXPECT_EQ(read_text_file(stopped.folder / "metrics.jsonl"),
              read_text_file(whole.folder / "metrics.jsonl"));
    expect_files_of(whole.folder, stopped.folder);
  }
  EXPECT_GT(pending, 0) << "no signal fell into an evaluation";
}

TEST(StopSignals, ASecondOneEndsTheProcessAtOnce) {
  const TemporaryFolder folder;
  const TrainConfig config =
      tiny_run(folder.path() / "run", {"batch.tokens_per_step=200000", "batch.micro_rows=0"});
  const pid_t child = start_child([&] { run_quietly(config); });
  while (!std::filesystem::exists(config.folder / "timing.jsonl")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  kill(child, SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  kill(child, SIGTERM);
  EXPECT_EQ(wait_for(child), 128 + SIGTERM);
}

}  // namespace
}  // namespace freeformer
