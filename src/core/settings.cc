#include "core/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "core/error.h"
#include "core/suggest.h"
#include "core/utf8.h"

namespace freeformer {
namespace {

using Field = Fields::Field;

template <typename... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

constexpr std::string_view kSetFlag = "--set ";

// Who gave a value, for messages: "run.toml:12" or "--set a.b=c".
ErrorCode blame(const std::string& origin) {
  return origin.starts_with(kSetFlag) ? ErrorCode::kInvalidArgument : ErrorCode::kInvalidConfig;
}

// --- Values as TOML ------------------------------------------------------------------------------

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if ((c >= 0 && c < ' ') || c == 0x7F) {
      out += fmt::format("\\u{:04X}", int(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string to_toml(double value) {
  std::string text = fmt::format("{}", value);  // the shortest that reads back
  if (std::isfinite(value) && text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

std::string to_toml(const Fields::Target& target) {
  return std::visit(
      Overloaded{[](const bool* value) { return std::string(*value ? "true" : "false"); },
                 [](const int64_t* value) { return std::to_string(*value); },
                 [](const double* value) { return to_toml(*value); },
                 [](const std::string* value) { return quoted(*value); },
                 [](const std::vector<std::string>* value) {
                   std::string text = "[";
                   for (const std::string& item : *value) {
                     text += (text.size() > 1 ? ", " : "") + quoted(item);
                   }
                   return text + "]";
                 }},
      target);
}

// What stands in the file, for messages.
std::string found(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a section";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return quoted(node.as_string()->get());
    case toml::node_type::integer:
      return std::to_string(node.as_integer()->get());
    case toml::node_type::floating_point:
      return to_toml(node.as_floating_point()->get());
    case toml::node_type::boolean:
      return node.as_boolean()->get() ? "true" : "false";
    default:
      return "a date or time";
  }
}

// --- Names ---------------------------------------------------------------------------------------

std::string section_of(const std::string& key) {
  const size_t dot = key.rfind('.');
  return dot == key.npos ? "" : key.substr(0, dot);
}

std::string name_of(const std::string& key) { return key.substr(key.rfind('.') + 1); }

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// In the order of their first fields, except that keys outside of sections must come first in TOML.
std::vector<std::string> section_names(const std::vector<Field>& fields) {
  std::vector<std::string> names{""};
  for (const Field& field : fields) {
    const std::string name = section_of(field.key);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

bool is_section(const std::vector<Field>& fields, const std::string& key) {
  return std::any_of(fields.begin(), fields.end(),
                     [&](const Field& field) { return field.key.starts_with(key + "."); });
}

// The right name in the wrong section is nearer than any typo.
std::string nearest(const std::string& unknown, const std::vector<std::string>& known) {
  for (const std::string& candidate : known) {
    if (name_of(candidate) == name_of(unknown)) return "; did you mean \"" + candidate + "\"?";
  }
  return suggest(unknown, known);
}

Field* find(std::vector<Field>& fields, const std::string& key) {
  const auto field = std::find_if(fields.begin(), fields.end(),
                                  [&](const Field& candidate) { return candidate.key == key; });
  return field == fields.end() ? nullptr : &*field;
}

[[noreturn]] void fail_unknown_key(const std::vector<Field>& fields, const std::string& key,
                                   const std::string& origin) {
  std::vector<std::string> known;
  for (const Field& field : fields) known.push_back(field.key);
  fail(blame(origin), "{}: unknown key \"{}\"{}", origin, key, nearest(key, known));
}

[[noreturn]] void fail_unknown_section(const std::vector<Field>& fields, const std::string& key,
                                       const std::string& origin) {
  std::vector<std::string> known = section_names(fields);
  known.erase(known.begin());  // what is outside of all sections is no suggestion
  fail(blame(origin), "{}: unknown section \"{}\"{}", origin, key, nearest(key, known));
}

// --- From TOML -----------------------------------------------------------------------------------

const char* type_name(const Fields::Target& target) {
  return std::visit(Overloaded{[](bool*) { return "true or false"; },
                               [](int64_t*) { return "a whole number of at most 64 bits"; },
                               [](double*) { return "a finite number or a fraction like \"1/8\""; },
                               [](std::string*) { return "a string"; },
                               [](std::vector<std::string>*) { return "a list of strings"; }},
                    target);
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return {};
  return value;
}

// "0.125", "1e-3", "1/8".
std::optional<double> parse_fraction(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == text.npos) return parse_number(text);
  const auto above = parse_number(text.substr(0, slash));
  const auto below = parse_number(text.substr(slash + 1));
  if (!above || !below || !std::isfinite(*above / *below)) return {};
  return *above / *below;
}

std::optional<double> to_double(const toml::node& node) {
  if (node.is_integer()) return double(node.as_integer()->get());
  if (node.is_string()) return parse_fraction(node.as_string()->get());
  if (!node.is_floating_point() || !std::isfinite(node.as_floating_point()->get())) return {};
  return node.as_floating_point()->get();
}

std::optional<std::vector<std::string>> to_strings(const toml::node& node) {
  if (!node.is_array()) return {};
  std::vector<std::string> strings;
  for (const toml::node& item : *node.as_array()) {
    if (!item.is_string()) return {};
    strings.push_back(item.as_string()->get());
  }
  return strings;
}

// False if it is of the wrong type; the target is then as it was.
bool store(const toml::node& node, const Fields::Target& target) {
  const auto assign = [](auto* to, const auto& value) {
    if (value) *to = *value;
    return bool(value);
  };
  return std::visit(
      Overloaded{
          [&](bool* to) { return assign(to, node.value_exact<bool>()); },
          [&](int64_t* to) { return assign(to, node.value_exact<int64_t>()); },
          [&](double* to) { return assign(to, to_double(node)); },
          [&](std::string* to) { return assign(to, node.value_exact<std::string>()); },
          [&](std::vector<std::string>* to) { return assign(to, to_strings(node)); },
      },
      target);
}

void set_field(Field& field, const toml::node& node, const std::string& origin) {
  const auto refuse = [&](const std::string& expected) {
    fail(blame(origin), "{}: {} is {}, expected {}", origin, field.key, found(node), expected);
  };
  if (!field.choices.empty() && node.is_string() &&
      std::find(field.choices.begin(), field.choices.end(), node.as_string()->get()) ==
          field.choices.end()) {
    refuse("one of: " + join(field.choices));
  }
  if (!store(node, field.target)) refuse(type_name(field.target));
  field.set_by = origin;
}

toml::table parse_toml(const std::string& text, const std::string& where) {
  // A table of tables of tables … is destroyed recursively, and enough of it overflows the stack.
  constexpr std::ptrdiff_t kMostDots = 10'000;
  if (const auto dots = std::count(text.begin(), text.end(), '.'); dots > kMostDots) {
    fail(ErrorCode::kInvalidConfig, "{}: {} dots, expected at most {} in a settings file", where,
         dots, kMostDots);
  }
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail(ErrorCode::kInvalidConfig, "{}:{}: {}", where, error.source().begin.line,
         error.description());
  }
}

void read_table(std::vector<Field>& fields, const toml::table& table, const std::string& prefix,
                const std::string& where) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    const std::string origin = fmt::format("{}:{}", where, name.source().begin.line);
    if (name.str().find('.') != std::string_view::npos) {
      fail(blame(origin), "{}: unknown key \"{}\": quotes make its dots part of a name", origin,
           key);
    }
    if (Field* field = find(fields, key)) {
      set_field(*field, node, origin);
    } else if (is_section(fields, key)) {
      if (!node.is_table()) {
        fail(blame(origin), "{}: {} is {}, expected a section", origin, key, found(node));
      }
      read_table(fields, *node.as_table(), key + ".", where);
    } else if (node.is_table()) {
      fail_unknown_section(fields, key, origin);
    } else {
      fail_unknown_key(fields, key, origin);
    }
  }
}

// --- From the command line -----------------------------------------------------------------------

toml::array split(const std::string& text) {
  toml::array items;
  if (text.empty()) return items;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    items.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return items;
}

// A table whose only entry is the value that `text` means for the target; if it means none, the
// text itself, which the target then refuses.
toml::table parse_assigned(const std::string& text, const Fields::Target& target) {
  const toml::table as_string{{"value", text}};
  if (std::holds_alternative<std::string*>(target)) return as_string;
  if (std::holds_alternative<std::vector<std::string>*>(target) && !text.starts_with('[')) {
    return toml::table{{"value", split(text)}};
  }
  try {
    toml::table table = toml::parse("value = " + text);
    return table.size() == 1 ? table : as_string;  // a line break may start another entry
  } catch (const toml::parse_error&) {
    return as_string;  // a fraction, or nonsense
  }
}

// --- To text -------------------------------------------------------------------------------------

// What `lines_of` says of every section's fields, under the sections' headers; a section of which
// it says nothing is left out.
template <typename LinesOf>
std::string by_section(const std::vector<Field>& fields, const LinesOf& lines_of) {
  std::string text;
  for (const std::string& section : section_names(fields)) {
    std::vector<const Field*> members;
    for (const Field& field : fields) {
      if (section_of(field.key) == section) members.push_back(&field);
    }
    const std::string lines = lines_of(members);
    if (lines.empty()) continue;
    if (!text.empty()) text += '\n';
    if (!section.empty()) text += fmt::format("[{}]\n", section);
    text += lines;
  }
  return text;
}

// In characters, not bytes: continuation bytes of UTF-8 take no room.
size_t width(std::string_view text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t columns) {
  return text + std::string(columns - std::min(columns, width(text)), ' ');
}

// The text in lines of at most kLineWidth columns, all but the first indented.
std::string wrapped(const std::string& text, size_t indent) {
  constexpr size_t kLineWidth = 96;
  std::string out;
  size_t column = indent;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (column > indent && column + 1 + width(word) > kLineWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += width(word);
    begin = end + 1;
  }
  return out;
}

std::string explain_section(const std::vector<const Field*>& fields) {
  constexpr size_t kWidestDefault = 20;  // a longer one gets a line of its own
  size_t name_width = 0, default_width = 0;
  for (const Field* field : fields) {
    name_width = std::max(name_width, width(name_of(field->key)));
    const size_t columns = width(field->default_text);
    if (columns <= kWidestDefault) default_width = std::max(default_width, columns);
  }
  const size_t indent = 2 + name_width + 3 + default_width + 2;
  std::string text;
  for (const Field* field : fields) {
    text += "  " + padded(name_of(field->key), name_width) + " = " +
            padded(field->default_text, default_width + 2);
    if (width(field->default_text) > default_width) text += "\n" + std::string(indent, ' ');
    const std::string choices = field->choices.empty() ? "" : "; one of: " + join(field->choices);
    text += wrapped(field->help + choices, indent) + "\n";
  }
  return text;
}

}  // namespace

void Fields::section(const std::string& name, const std::function<void(Fields&)>& list) {
  const std::string before = prefix_;
  prefix_ += name + ".";
  list(*this);
  prefix_ = before;
}

void Fields::append(const std::string& name, Target target, const std::string& help,
                    std::vector<std::string> choices) {
  const std::string key = prefix_ + name;
  FF_CHECK(find(fields_, key) == nullptr);
  fields_.push_back({key, target, help, std::move(choices), to_toml(target), ""});
}

void Fields::add(const std::string& name, Target target, const std::string& help) {
  append(name, target, help, {});
}

void Fields::choice(const std::string& name, std::string& target, std::vector<std::string> choices,
                    const std::string& help) {
  FF_CHECK(std::find(choices.begin(), choices.end(), target) != choices.end());
  append(name, &target, help, std::move(choices));
}

const Fields::Field& Fields::at(const std::string& key) const {
  for (const Field& field : fields_) {
    if (field.key == key) return field;
  }
  fail(ErrorCode::kInternal, "internal error: no setting is called {}", key);
}

void Fields::no_effect(const std::string& key, const std::string& reason) {
  const bool is_whole_section = key.ends_with('.');
  bool any = false;
  for (Field& field : fields_) {
    if (is_whole_section ? !field.key.starts_with(key) : field.key != key) continue;
    if (!field.set_by.empty()) {
      fail(blame(field.set_by), "{}: {} has no effect: {}", field.set_by, field.key, reason);
    }
    field.idle = any = true;
  }
  FF_CHECK(any);
}

void Fields::reject(const std::string& key, const std::string& expected) const {
  const Field& field = at(key);
  const std::string origin = field.set_by.empty() ? "default" : field.set_by;
  fail(blame(origin), "{}: {} is {}, expected {}", origin, key, to_toml(field.target), expected);
}

bool Fields::was_set(const std::string& key) const { return !at(key).set_by.empty(); }

void Fields::read(const std::string& toml_text, const std::string& where) {
  read_table(fields_, parse_toml(toml_text, where), "", where);
}

void Fields::set(const std::string& assignment) {
  const std::string origin = std::string(kSetFlag) + assignment;
  if (find_invalid_utf8(assignment) != std::string::npos) {
    fail(blame(origin), "{}: not UTF-8", origin);
  }
  const size_t equals = assignment.find('=');
  const std::string key = assignment.substr(0, equals);
  if (equals == assignment.npos || is_section(fields_, key)) {
    fail(blame(origin), "{}: expected section.key=value", origin);
  }
  Field* field = find(fields_, key);
  if (field == nullptr) fail_unknown_key(fields_, key, origin);
  const toml::table table = parse_assigned(assignment.substr(equals + 1), field->target);
  set_field(*field, *table.get("value"), origin);
}

std::string Fields::write() const {
  return by_section(fields_, [](const std::vector<const Field*>& fields) {
    std::string lines;
    for (const Field* field : fields) {
      if (field->idle) continue;
      lines += fmt::format("{} = {}\n", name_of(field->key), to_toml(field->target));
    }
    return lines;
  });
}

std::string Fields::explain() const { return by_section(fields_, explain_section); }

}  // namespace freeformer
