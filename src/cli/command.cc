#include "cli/command.h"

#include <cstdio>
#include <exception>

#include "cli/cli11.h"
#include "core/error.h"
#include "core/suggest.h"

#ifndef FREEFORMER_VERSION
#error "FREEFORMER_VERSION is set by CMake"
#endif

namespace freeformer::cli {
namespace {

void print_help() {
  fmt::print(
      "Freeformer {}: language models that decide before they speak.\n\n"
      "usage: freeformer COMMAND [options]\n\n",
      FREEFORMER_VERSION);
  for (const Command& command : commands()) fmt::print("  {:<12}{}\n", command.name, command.help);
  fmt::print(
      "\nfreeformer COMMAND --help tells more, with examples.\n\n"
      "environment:\n"
      "  OMP_NUM_THREADS       threads (default: one per physical core)\n"
      "  FREEFORMER_CPU_ISA    instruction set of the kernels (see freeformer info)\n"
      "  FREEFORMER_LOG        error, warn, info or debug\n");
}

int misused(const std::string& message) {
  fmt::print(stderr, "freeformer: {}\n", message);
  return kMisused;
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"info", "what this machine offers, and what a checkpoint holds", run_info},
      {"selftest", "compare this build with an independent reference", run_selftest},
      {"bench", "measure this build beside the machine's own limits", run_bench},
  };
  return table;
}

bool parse(CLI::App& app, const std::vector<std::string>& arguments, int& status) {
  app.get_formatter()->column_width(34);
  try {
    // CLI11 takes them back to front.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    return true;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    status = kDone;
  } catch (const CLI::ParseError& error) {
    std::string message = error.what();
    std::replace(message.begin(), message.end(), '\n', ' ');
    status = misused(fmt::format("{}; see freeformer {} --help", message, app.get_name()));
  }
  return false;
}

int run_program(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" ||
      arguments[0] == "help") {
    print_help();
    return arguments.empty() ? kMisused : kDone;
  }
  if (arguments[0] == "--version") {
    fmt::print("freeformer {}\n", FREEFORMER_VERSION);
    return kDone;
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    names.emplace_back(command.name);
    if (arguments[0] != command.name) continue;
    try {
      const int status = command.run({arguments.begin() + 1, arguments.end()});
      if (std::fflush(stdout) != 0) fail(ErrorCode::kIo, "cannot write to standard output");
      return status;
    } catch (const Error& error) {
      fmt::print(stderr, "freeformer {}: {}\n", command.name, error.what());
      return error.code() == ErrorCode::kInvalidArgument ? kMisused : kFailed;
    } catch (const std::bad_alloc&) {
      fmt::print(stderr, "freeformer {}: out of memory\n", command.name);
      return kFailed;
    } catch (const std::exception& error) {
      const std::string what = error.what();
      fmt::print(stderr, "freeformer {}: internal error: {} (please report this)\n", command.name,
                 what.substr(0, what.find('\n')));
      return kFailed;
    }
  }
  return misused(fmt::format("no command '{}'{}; see freeformer --help", arguments[0],
                             suggest(arguments[0], names)));
}

std::string grouped_number(int64_t value) {
  std::string digits = std::to_string(value);
  for (int at = int(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) {
    digits.insert(size_t(at), ",");
  }
  return digits;
}

std::string byte_count(uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace freeformer::cli
