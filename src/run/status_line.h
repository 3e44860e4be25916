// What a long command shows on stderr while it runs: a line that is redrawn in a terminal, plain
// lines elsewhere.
#pragma once

#include <cstdint>
#include <string>

namespace freeformer {

// A terminal, and one that knows colours and moves of the cursor.
bool understands_escapes(int file);

class StatusLine {
 public:
  explicit StatusLine(bool quiet = false);
  ~StatusLine();  // leaves the last line standing
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  bool is_terminal() const { return terminal_; }

  // In a terminal it replaces the line before, cut to the width; elsewhere it is a line of its own.
  void show(const std::string& text);
  // Only in a terminal: for what changes too often for a log.
  void show_briefly(const std::string& text);
  // A line that stays: results, warnings.
  void say(const std::string& text);

 private:
  bool terminal_, quiet_, open_ = false;
};

// "[#####.....]" with `width` cells.
std::string progress_bar(double share, int width);
// 3723 -> "1 h 02 min", 75 -> "1 min 15 s", 4 -> "4 s".
std::string duration(double seconds);
// 1234567 -> "1.23 M", 45678 -> "45.7 k", 321 -> "321".
std::string short_number(double value);

}  // namespace freeformer
