#include "cli/command_line.h"

#include <charconv>

#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "core/error.h"

namespace freeformer::cli {

Option& Option::type_name(const char* name) {
  option_->type_name(name);
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::range(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option& Option::choices(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Option& Option::one_at_a_time() {
  option_->allow_extra_args(false);
  return *this;
}

CommandLine::CommandLine(const std::string& help, const std::string& name)
    : app_(std::make_unique<CLI::App>(help, name)) {
  app_->get_formatter()->column_width(34);
}

CommandLine::~CommandLine() = default;

Option CommandLine::add_option(const std::string& names, std::string& value,
                               const std::string& help) {
  return Option(app_->add_option(names, value, help));
}

Option CommandLine::add_option(const std::string& names, int& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}

Option CommandLine::add_option(const std::string& names, int64_t& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}

Option CommandLine::add_option(const std::string& names, uint64_t& value, const std::string& help) {
  const auto read = [name = names.substr(names.rfind(',') + 1), &value](const std::string& text) {
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, value);
    if (error != std::errc() || end != last) {
      throw CLI::ValidationError(name, "\"" + text + "\", expected a whole number, 0 to 2^64-1");
    }
  };
  return Option(app_->add_option_function<std::string>(names, read, help));
}

Option CommandLine::add_option(const std::string& names, double& value, const std::string& help) {
  return Option(app_->add_option(names, value, help));
}

Option CommandLine::add_option(const std::string& names, std::vector<std::string>& values,
                               const std::string& help) {
  return Option(app_->add_option(names, values, help));
}

Option CommandLine::add_option(const std::string& names, std::vector<int>& values,
                               const std::string& help) {
  return Option(app_->add_option(names, values, help));
}

void CommandLine::add_flag(const std::string& names, bool& value, const std::string& help) {
  app_->add_flag(names, value, help);
}

bool CommandLine::parse(const std::vector<std::string>& arguments, int& status) {
  try {
    // CLI11 takes them back to front.
    app_->parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    return true;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app_->help());
    status = kDone;
  } catch (const CLI::ParseError& error) {
    status = report(kMisused,
                    fmt::format(": {}; see freeformer {} --help", error.what(), app_->get_name()));
  }
  return false;
}

bool CommandLine::given(const std::string& name) const { return app_->count(name) > 0; }

}  // namespace freeformer::cli
