// What a command takes: its options, their help and the mistakes people make with them. CLI11 does
// the work inside command_line.cc alone, for each file that sees its headers takes seconds longer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace freeformer::cli {

// An option that was just added: what else there is to say about it.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& type_name(const char* name);  // what its value is called in the help: DIR, N
  Option& required();
  Option& range(int least, int most);  // inclusive
  Option& choices(const std::vector<std::string>& values);
  // Of a list: "--set a=1 FILE" gives it one value, not two; it is repeated for more.
  Option& one_at_a_time();

 private:
  CLI::Option* option_;
};

class CommandLine {
 public:
  // `name` is the command's, as in "see freeformer NAME --help".
  CommandLine(const std::string& help, const std::string& name);
  ~CommandLine();

  // Names are "-m,--model", or "FILE" for a word without one. The value must outlive parse(), which
  // leaves it alone if the option is not given. A whole number without a sign is read strictly, up
  // to 2^64-1 (CLI11 wraps and saturates): it is for seeds.
  Option add_option(const std::string& names, std::string& value, const std::string& help);
  Option add_option(const std::string& names, int& value, const std::string& help);
  Option add_option(const std::string& names, int64_t& value, const std::string& help);
  Option add_option(const std::string& names, uint64_t& value, const std::string& help);
  Option add_option(const std::string& names, double& value, const std::string& help);
  Option add_option(const std::string& names, std::vector<std::string>& values,
                    const std::string& help);
  Option add_option(const std::string& names, std::vector<int>& values, const std::string& help);
  void add_flag(const std::string& names, bool& value, const std::string& help);

  // True if the command should go on. Otherwise `status` is what to return: 0 after --help, 2 after
  // a mistake, which is reported as one line on stderr.
  bool parse(const std::vector<std::string>& arguments, int& status);

  // Whether an option, by one of its names, was given.
  bool given(const std::string& name) const;

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace freeformer::cli
