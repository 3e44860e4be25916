#include "core/log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace freeformer {
namespace {

LogLevel level_from_environment() {
  const char* text = std::getenv("FREEFORMER_LOG");
  const std::string_view level = text == nullptr ? "" : text;
  if (level == "error") return LogLevel::kError;
  if (level == "warn") return LogLevel::kWarn;
  if (level == "debug") return LogLevel::kDebug;
  if (!level.empty() && level != "info") {
    std::fprintf(stderr,
                 "[log] warning: FREEFORMER_LOG=%s is not a level; expected error, warn, info or "
                 "debug; using info\n",
                 text);
  }
  return LogLevel::kInfo;
}

std::atomic<LogLevel>& current_level() {
  static std::atomic<LogLevel> level = level_from_environment();
  return level;
}

std::mutex sink_mutex;
LogSink sink;  // guarded by sink_mutex

}  // namespace

void set_log_level(LogLevel level) { current_level() = level; }
LogLevel log_level() { return current_level(); }

void set_log_sink(LogSink new_sink) {
  const std::lock_guard lock(sink_mutex);
  sink = std::move(new_sink);
}

void log_line(LogLevel level, std::string_view tag, std::string_view text) {
  const std::lock_guard lock(sink_mutex);
  if (sink) return sink(level, tag, text);
  const char* mark = level == LogLevel::kError  ? "error: "
                     : level == LogLevel::kWarn ? "warning: "
                                                : "";
  std::fprintf(stderr, "[%.*s] %s%.*s\n", int(tag.size()), tag.data(), mark, int(text.size()),
               text.data());
}

}  // namespace freeformer
