#include "core/error.h"

#include <string_view>

#include "core/utf8.h"

namespace freeformer {

const char* name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kInvalidConfig:
      return "invalid_config";
    case ErrorCode::kBadCheckpoint:
      return "bad_checkpoint";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kDiverged:
      return "diverged";
    case ErrorCode::kCapacity:
      return "capacity";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

std::string one_line(std::string text) {
  constexpr size_t kMost = 2000, kEnd = 500;
  if (text.size() > kMost) {
    // The middle goes: what is wrong stands at the end. Never inside a UTF-8 character.
    const auto is_inside = [&](size_t at) { return at < text.size() && (text[at] & 0xC0) == 0x80; };
    size_t begin = kMost - kEnd, end = text.size() - kEnd;
    while (begin > 0 && is_inside(begin)) --begin;
    while (is_inside(end)) ++end;
    text.replace(begin, end - begin, "…");
  }
  for (size_t bad; (bad = find_invalid_utf8(text)) != text.npos;) text[bad] = '?';
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = std::string_view(text).substr(i);
    const bool is_control = (text[i] >= 0 && text[i] < ' ') || text[i] == 0x7F;
    // U+0080 to U+009F: U+009B starts a terminal's escape sequence as ESC [ does.
    const bool is_c1 = rest.size() > 1 && text[i] == '\xC2' && uint8_t(text[i + 1]) < 0xA0;
    const bool is_line_separator =
        rest.starts_with("\xE2\x80\xA8") || rest.starts_with("\xE2\x80\xA9");
    if (is_control || is_c1 || is_line_separator) {
      text.replace(i, is_control ? 1 : is_c1 ? 2 : 3, "?");
    }
  }
  return text;
}

void check_failed(const char* file, int line, const char* condition) {
  // Only the part of the path below the source tree: the rest is the builder's business.
  std::string_view path(file);
  if (const auto cut = path.rfind("src/"); cut != path.npos) path.remove_prefix(cut + 4);
  fail(ErrorCode::kInternal, "internal error at {}:{}: expected {} (please report this)", path,
       line, condition);
}

}  // namespace freeformer
