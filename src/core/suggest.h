// "; did you mean X?": the nearest known name, for unknown keys, flags, tasks and commands.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace freeformer {

// Empty where nothing is near.
std::string suggest(std::string_view unknown, const std::vector<std::string>& known);

}  // namespace freeformer
