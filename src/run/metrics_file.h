// metrics.jsonl and its like: one JSON object a line, each with a "step". After a resume the file
// holds what an uninterrupted run would have written: lines of later steps, and half a line that a
// kill left at the end, are cut off.
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/json.h"

namespace freeformer {

class MetricsFile {
 public:
  // Goes on after the last line whose step is at most `step`. Throws kIo, or kBadCheckpoint about a
  // line before it that is no such object.
  MetricsFile(const std::filesystem::path& path, int64_t step);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // One line, in one write; a full disk throws kIo and leaves no half line.
  void append(const OrderedJson& object);

  // Before a checkpoint: what it builds on must survive a power cut too.
  void sync();

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace freeformer
