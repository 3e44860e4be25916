#include "core/json.h"

#include <vector>

namespace freeformer {
namespace {

constexpr size_t kMaxDepth = 128;  // serde_json's limit too

// Builds the document from nlohmann's events. Its own builder keeps the last of two equal keys, and
// the one with a callback takes quadratic time on long arrays.
class StrictBuilder : public nlohmann::json_sax<Json> {
 public:
  StrictBuilder(const std::string& where, ErrorCode code, size_t max_values)
      : where_(where), code_(code), max_values_(max_values) {}

  Json root;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (open_.back()->contains(name)) fail(code_, "{} has the key '{}' twice", where_, name);
    slot_ = &(*open_.back())[name];
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …": the tag says nothing.
    std::string_view what = error.what();
    if (const size_t cut = what.find("] "); cut != what.npos) what.remove_prefix(cut + 2);
    fail(code_, "{} is not JSON: {}", where_, what);
  }

 private:
  Json* place(Json value) {
    if (++values_ > max_values_) fail(code_, "{} holds over {} values", where_, max_values_);
    if (open_.empty()) return &(root = std::move(value));
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(value));
    return &(*slot_ = std::move(value));
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json container) {
    if (open_.size() == kMaxDepth) {
      fail(code_, "{} is nested over {} levels deep", where_, kMaxDepth);
    }
    open_.push_back(place(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& where_;
  ErrorCode code_;
  size_t max_values_;
  std::vector<Json*> open_;  // the containers we are in, outermost first
  size_t values_ = 0;
  Json* slot_ = nullptr;  // where the next value of the innermost object goes
};

}  // namespace

Json parse_json(std::string_view text, const std::string& where, ErrorCode code,
                size_t max_values) {
  if (const size_t at = find_invalid_utf8(text); at != text.npos) {
    fail(code, "{} is not UTF-8: bad byte at offset {}", where, at);
  }
  // nlohmann takes a NUL byte for the end of the text and skips a byte-order mark.
  if (const size_t at = text.find('\0'); at != text.npos) {
    fail(code, "{} is not JSON: NUL byte at offset {}", where, at);
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    fail(code, "{} is not JSON: it starts with a byte-order mark", where);
  }
  StrictBuilder builder(where, code, max_values);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder.root);
}

std::string to_text(const OrderedJson& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, OrderedJson::error_handler_t::replace);
}

const char* describe_type(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
      return value.get<int64_t>() < 0 ? "a negative number" : "a whole number";
    case Json::value_t::number_unsigned:
      return "a whole number";
    case Json::value_t::number_float:
      return "a fractional or oversized number";
    default:
      return "something else";
  }
}

}  // namespace freeformer
