#include "core/error.h"

#include <string_view>

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
  for (char& c : text) {
    if ((c >= 0 && c < ' ') || c == 0x7F) c = '?';
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
