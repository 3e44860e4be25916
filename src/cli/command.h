// One binary, one table of commands. Each command lives in its own file, parses its own arguments
// and returns an exit status: 0 done, 1 failed, 2 misused.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace freeformer::cli {

enum ExitStatus { kDone = 0, kFailed = 1, kMisused = 2 };

struct Command {
  const char* name;
  const char* help;  // one line
  int (*run)(const std::vector<std::string>& arguments);
};

const std::vector<Command>& commands();

int run_train(const std::vector<std::string>& arguments);
int run_generate(const std::vector<std::string>& arguments);
int run_encode(const std::vector<std::string>& arguments);
int run_likelihood(const std::vector<std::string>& arguments);
int run_info(const std::vector<std::string>& arguments);
int run_selftest(const std::vector<std::string>& arguments);
int run_bench(const std::vector<std::string>& arguments);

// Parses into `app`; true if the command should go on. Otherwise `status` is what to return: 0
// after --help, 2 after a mistake, which is reported as one line on stderr.
bool parse(CLI::App& app, const std::vector<std::string>& arguments, int& status);

// The whole program: chooses the command, turns errors into one line and a status.
int run_program(const std::vector<std::string>& arguments);

// 123456789 -> "123,456,789"; bytes -> "117.7 MiB".
std::string grouped_number(int64_t value);
std::string byte_count(uint64_t bytes);

}  // namespace freeformer::cli
