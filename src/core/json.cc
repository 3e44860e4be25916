#include "core/json.h"

#include <set>
#include <vector>

namespace freeformer {
namespace {

constexpr int kMaxDepth = 128;  // serde_json's limit too

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  for (size_t i = 0; i < text.size();) {
    const unsigned lead = bytes[i];
    const size_t length = lead < 0x80           ? 1
                          : (lead >> 5) == 0x06 ? 2
                          : (lead >> 4) == 0x0E ? 3
                          : (lead >> 3) == 0x1E ? 4
                                                : 0;
    if (length == 0 || i + length > text.size()) return i;
    unsigned point = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t j = 1; j < length; ++j) {
      if ((bytes[i + j] & 0xC0) != 0x80) return i;
      point = point << 6 | (bytes[i + j] & 0x3F);
    }
    constexpr unsigned kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < kSmallest[length] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) {
      return i;
    }
    i += length;
  }
  return std::string_view::npos;
}

Json parse_json(std::string_view text, const std::string& where, ErrorCode code) {
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
  std::vector<std::set<std::string>> keys;  // of each object that is open
  const auto callback = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth) fail(code, "{} is nested over {} levels deep", where, kMaxDepth);
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) fail(code, "{} has the key '{}' twice", where, key);
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), callback);
  } catch (const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …": the tag says nothing.
    std::string_view what = error.what();
    if (const size_t cut = what.find("] "); what.starts_with('[') && cut != what.npos) {
      what.remove_prefix(cut + 2);
    }
    fail(code, "{} is not JSON: {}", where, what);
  }
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
