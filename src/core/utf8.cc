#include "core/utf8.h"

namespace freeformer {

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

}  // namespace freeformer
