// Logging: a level, a tag, a callback. Lines go to stderr; stdout belongs to the program's output.
// Libraries stay quiet unless something deserves a warning. FREEFORMER_LOG=error|warn|info|debug
// sets the level at start (default: info).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <fmt/core.h>

namespace freeformer {

enum class LogLevel { kError, kWarn, kInfo, kDebug };

void set_log_level(LogLevel level);
LogLevel log_level();

// Replaces the sink that writes to stderr (the server and the tests do); an empty one restores it.
using LogSink = std::function<void(LogLevel, std::string_view tag, std::string_view text)>;
void set_log_sink(LogSink sink);

void log_line(LogLevel level, std::string_view tag, std::string_view text);

// The arguments are not formatted when the level is filtered out.
template <typename... Args>
void log(LogLevel level, std::string_view tag, fmt::format_string<Args...> format, Args&&... args) {
  if (level <= log_level()) log_line(level, tag, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace freeformer
