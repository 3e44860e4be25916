#include "cli/study_options.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>

#include <fmt/format.h>

#include "core/error.h"
#include "kernels/cpu.h"
#include "kernels/gemm.h"
#include "kernels/parallel.h"
#include "run/status_line.h"

namespace freeformer::cli {

std::filesystem::path shipped_file(const std::string& name) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  for (const std::filesystem::path& root :
       {program.parent_path().parent_path() / "share/freeformer",
        std::filesystem::path(FREEFORMER_SOURCE_DIR)}) {
    std::error_code ignored;
    if (std::filesystem::exists(root / name, ignored)) return root / name;
  }
  fail(ErrorCode::kIo, "{} is not installed: expected it in share/freeformer beside bin/", name);
}

std::vector<std::pair<std::string, std::string>> machine_facts() {
  utsname system{};
  ::uname(&system);
  return {{"processor", kernels::cpu_model()},
          {"threads", std::to_string(kernels::thread_count())},
          {"kernels", kernels::active_isa()},
          {"matrix products", kernels::gemm_library()},
          {"LibTorch", FREEFORMER_TORCH_VERSION},
          {"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
          {"Freeformer", FREEFORMER_VERSION}};
}

std::string command_line(const std::string& command, const std::vector<std::string>& arguments) {
  std::string line = "freeformer " + command;
  for (const std::string& argument : arguments) {
    const bool plain = !argument.empty() &&
                       argument.find_first_of(" \t\n\"'\\$&;|<>()[]{}*?!#~`") == std::string::npos;
    std::string quoted;
    for (const char c : argument) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += " " + (plain ? argument : "'" + quoted + "'");
  }
  return line;
}

bool wants_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  return understands_escapes(STDOUT_FILENO) && (no_colour == nullptr || *no_colour == '\0');
}

}  // namespace freeformer::cli
