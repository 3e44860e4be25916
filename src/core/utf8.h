// Is it text?
#pragma once

#include <cstddef>
#include <string_view>

namespace freeformer {

// Position of the first byte that is not UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);

}  // namespace freeformer
