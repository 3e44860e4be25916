#include "run/status_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <fmt/core.h>

namespace freeformer {
namespace {

size_t terminal_width() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

// The first `width` characters (not bytes) of a text without escapes.
std::string cut(const std::string& text, size_t width) {
  size_t characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((text[i] & 0xC0) == 0x80) continue;
    if (characters++ == width) return text.substr(0, i);
  }
  return text;
}

}  // namespace

bool understands_escapes(int file) {
  const char* term = std::getenv("TERM");
  return isatty(file) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

StatusLine::StatusLine(bool quiet) : quiet_(quiet) {
  terminal_ = understands_escapes(STDERR_FILENO);
}

StatusLine::~StatusLine() {
  if (open_) std::fputc('\n', stderr);
}

void StatusLine::show(const std::string& text) {
  if (quiet_) return;
  const std::string line =
      terminal_ ? "\r" + cut(text, terminal_width() - 1) + "\033[K" : text + "\n";
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  open_ = terminal_;
}

void StatusLine::show_briefly(const std::string& text) {
  if (terminal_) show(text);
}

void StatusLine::say(const std::string& text) {
  if (quiet_) return;
  std::fputs(((open_ ? "\r\033[K" : "") + text + "\n").c_str(), stderr);
  open_ = false;
}

std::string progress_bar(double share, int width) {
  if (!(share > 0)) share = 0;  // 0 of 0 is not a number
  const int full = int(std::min(share, 1.0) * width + 1e-9);
  return "[" + std::string(size_t(full), '#') + std::string(size_t(width - full), '.') + "]";
}

std::string duration(double seconds) {
  if (!(seconds < 3.6e8)) return "?";
  const auto s = int64_t(std::llround(std::max(0.0, seconds)));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

std::string short_number(double value) {
  const char* units[] = {"", " k", " M", " G", " T"};
  int unit = 0;
  while (std::abs(value) >= 999.5 && unit < 4) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f}", value);
  const int digits = std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, digits, units[unit]);
}

}  // namespace freeformer
