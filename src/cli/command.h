// One binary, one table of commands. Each command lives in its own file, parses its own arguments
// and returns an exit status: 0 done, 1 failed, 2 misused.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace freeformer::cli {

enum ExitStatus { kDone = 0, kFailed = 1, kMisused = 2 };

struct Command {
  const char* name;
  const char* help;  // one line
  int (*run)(const std::vector<std::string>& arguments);
};

const std::vector<Command>& commands();

int run_demo(const std::vector<std::string>& arguments);
int run_sweep(const std::vector<std::string>& arguments);
int run_train(const std::vector<std::string>& arguments);
int run_generate(const std::vector<std::string>& arguments);
int run_encode(const std::vector<std::string>& arguments);
int run_likelihood(const std::vector<std::string>& arguments);
int run_info(const std::vector<std::string>& arguments);
int run_selftest(const std::vector<std::string>& arguments);
int run_bench(const std::vector<std::string>& arguments);

// Writes "freeformer" and the message as one line to stderr; returns the status.
int report(ExitStatus status, const std::string& message);

// The whole program: chooses the command, turns errors into one line and a status.
int run_program(const std::vector<std::string>& arguments);

// 123456789 -> "123,456,789"; bytes -> "117.7 MiB".
std::string grouped_number(int64_t value);
std::string byte_count(uint64_t bytes);

}  // namespace freeformer::cli
