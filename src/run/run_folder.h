// A run's folder, and its checkpoints: written beside, synced, checksummed, renamed. Whatever
// happens at whatever moment, every checkpoint that can be seen is whole.
//
//   config.toml           the resolved settings
//   metrics.jsonl         one object per logged step
//   checkpoints/step-N    a checkpoint; checkpoints/latest and best point to one each
//   lock                  held by the process that trains here
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace freeformer {

// Another process trains in the folder.
class RunFolderBusy : public Error {
 public:
  explicit RunFolderBusy(const std::string& message) : Error(ErrorCode::kIo, message) {}
};

// A file that one process holds; it stays when it is let go. Throws kIo, or RunFolderBusy with
// `busy`.
class FileLock {
 public:
  FileLock(const std::filesystem::path& file, const std::string& busy);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_ = -1;
};

class RunFolder {
 public:
  // Makes the folder where it is missing, takes its lock and removes what a killed save left
  // behind. Throws kIo, RunFolderBusy.
  explicit RunFolder(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoint(int64_t step) const;

  std::vector<int64_t> steps() const;  // that have a checkpoint, rising
  std::optional<int64_t> latest() const;

  // Calls `write` with an empty temporary folder to fill, adds checksums.json, syncs, and makes it
  // checkpoint(step), the latest; one that was there is replaced in one stroke. On any failure
  // nothing has changed.
  void save(int64_t step, const std::function<void(const std::filesystem::path&)>& write);

  // Points checkpoints/best at a step.
  void set_best(int64_t step);

  // Renames checkpoints of later steps to aside-N: what an earlier one goes on to is another story.
  void set_aside_after(int64_t step);

  // Removes checkpoints other than the newest `keep_last`, multiples of `keep_every` (0: none), the
  // best and the latest.
  void prune(int64_t keep_last, int64_t keep_every, std::optional<int64_t> best);

 private:
  void point(const std::string& name, int64_t step) const;

  std::filesystem::path path_, checkpoints_;
  std::optional<FileLock> lock_;
};

// Compares a checkpoint's files with its checksums.json. Throws kBadCheckpoint naming the file that
// differs, or kIo. A folder without checksums.json (another tool's) passes.
void verify_checksums(const std::filesystem::path& checkpoint);

}  // namespace freeformer
