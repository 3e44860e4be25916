#include "cli/command.h"

#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

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

int run(const Command& command, const std::vector<std::string>& arguments) {
  const auto failed = [&](ExitStatus status, const std::string& message) {
    return report(status, fmt::format(" {}: {}", command.name, message));
  };
  try {
    return command.run(arguments);
  } catch (const Error& error) {
    return failed(error.code() == ErrorCode::kInvalidArgument ? kMisused : kFailed, error.what());
  } catch (const std::bad_alloc&) {
    return failed(kFailed, "out of memory");
  } catch (const std::system_error& error) {  // a file or a stream that failed
    return failed(kFailed, error.what());
  } catch (const std::exception& error) {
    // LibTorch puts a stack trace behind the first line.
    const std::string text = error.what();
    return failed(kFailed, fmt::format("internal error: {} (please report this)",
                                       text.substr(0, text.find('\n'))));
  }
}

int choose_and_run(const std::vector<std::string>& arguments) {
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
    if (arguments[0] == command.name) return run(command, {arguments.begin() + 1, arguments.end()});
    names.emplace_back(command.name);
  }
  return report(kMisused, fmt::format(": no command '{}'{}; see freeformer --help", arguments[0],
                                      suggest(arguments[0], names)));
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"demo", "the paper's experiment in minutes: a model that decides before it speaks",
       run_demo},
      {"train", "train a model from one settings file; goes on where it was stopped", run_train},
      {"sweep", "train over the values of any settings; one table, one report", run_sweep},
      {"generate", "continue a prompt, with codes from where you say", run_generate},
      {"encode", "what the encoder reads into a text: codes, bits, KL", run_encode},
      {"likelihood", "how likely a text is, honestly: ELBO, IWAE, prior", run_likelihood},
      {"info", "what this machine offers, and what a checkpoint holds", run_info},
      {"selftest", "compare this build with an independent reference", run_selftest},
      {"bench", "measure this build beside the machine's own limits", run_bench},
  };
  return table;
}

int report(ExitStatus status, const std::string& message) {
  const std::string line = "freeformer" + one_line(message) + "\n";
  std::fputs(line.c_str(), stderr);  // which may be closed or full: then there is nobody to tell
  return status;
}

int run_program(const std::vector<std::string>& arguments) {
  int status = kFailed;
  try {
    status = choose_and_run(arguments);
  } catch (const std::exception& error) {  // standard output failed at once
    return report(kFailed, fmt::format(": {}", error.what()));
  }
  if (std::fflush(stdout) != 0 && status == kDone) {
    return report(kFailed, ": cannot write to standard output");
  }
  return status;
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
