// Whole training runs for tests: settings as text, children that can be killed, folders compared
// byte by byte.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "kernels/parallel.h"
#include "temporary_folder.h"
#include "train/trainer.h"

namespace freeformer {

// A tiny run on generated data. Saves, evaluates and logs often.
inline TrainConfig tiny_run(const std::filesystem::path& folder,
                            std::vector<std::string> assignments = {}) {
  const auto file = folder.string() + ".toml";
  write_file_atomically(file, R"(
[run]
steps = 12
seed = 5
[data]
kind = "coin"
context = 12
[model]
hidden_size = 16
num_hidden_layers = 2
num_attention_heads = 2
initializer_range = 0.1
[batch]
tokens_per_step = 96
micro_rows = 3
[optimizer]
learning_rate = 0.01
[schedule]
warmup_steps = 3
[evaluation]
every = 4
rows = 6
[checkpoints]
every = 3
keep_last = 100
[logging]
every = 1
gemm_share = false
)");
  assignments.push_back("run.folder=" + folder.string());
  return read_train_config(file, assignments);
}

inline TrainOutcome run_quietly(const TrainConfig& config, const std::string& resume = "auto") {
  return train({config, resume, /*quiet=*/true});
}

// In a child of one thread (forking and thread pools do not mix): its exit status is 0 if the
// function returned, 1 if it threw.
inline pid_t start_child(const std::function<void()>& function) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    kernels::set_thread_count(1);
    function();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
    _exit(1);
  }
  _exit(0);
}

// The exit status, or minus the signal that killed it.
inline int wait_for(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1000;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// What a run leaves behind and must be the same whatever happened on the way: checkpoints and
// metrics, by name; links by where they point.
inline std::map<std::string, std::string> lasting_files(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "checkpoints")) {
    const auto name = entry.path().lexically_relative(folder).string();
    if (entry.is_symlink()) {
      files[name] = "-> " + std::filesystem::read_symlink(entry.path()).string();
    } else if (entry.is_regular_file() && entry.path().filename() != "config.toml" &&
               entry.path().filename() != "checksums.json") {
      files[name] = read_text_file(entry.path());
    }
  }
  files["metrics.jsonl"] = read_text_file(folder / "metrics.jsonl");
  return files;
}

inline void expect_same_files(const std::filesystem::path& found,
                              const std::filesystem::path& expected) {
  const auto a = lasting_files(found), b = lasting_files(expected);
  for (const auto& [name, content] : b) {
    ASSERT_TRUE(a.contains(name)) << name << " is missing";
    EXPECT_TRUE(a.at(name) == content) << name << " differs";
  }
  for (const auto& [name, content] : a) EXPECT_TRUE(b.contains(name)) << name << " is new";
}

}  // namespace freeformer
