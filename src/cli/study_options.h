// What `demo` and `sweep` have in common.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace freeformer::cli {

// A file that ships with the sources or the installation: "configs/demo.toml".
std::filesystem::path shipped_file(const std::string& name);

// The machine and the build, for a report: name, value.
std::vector<std::pair<std::string, std::string>> machine_facts();

// "freeformer sweep configs/synthetic.toml --over …", with quotes where a shell needs them.
std::string command_line(const std::string& command, const std::vector<std::string>& arguments);

// Whether stdout is a terminal that wants colours (NO_COLOR unset).
bool wants_colour();

}  // namespace freeformer::cli
