#include "run/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"

namespace freeformer {
namespace {

constexpr const char* kChecksums = "checksums.json";
constexpr const char* kTemporary = ".tmp-";  // begins the name of everything unfinished

std::string step_name(int64_t step) { return fmt::format("step-{}", step); }

std::optional<int64_t> step_of(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char* last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), last, step);
  if (error != std::errc() || end != last || step < 0) return std::nullopt;
  if (name != step_name(step)) return std::nullopt;  // "step-007" is not what checkpoint(7) names
  return step;
}

void sync_folder(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_io(path, "open", errno);
  const int error = fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  if (error != 0 && error != EINVAL) fail_io(path, "sync", error);
}

// Renames `from` to `to`; where `to` exists the two change places in one stroke.
void put_in_place(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno == EINVAL || errno == ENOSYS) {  // a file system without it: one moment without `to`
    const auto old = from.string() + ".old";
    std::error_code ignored;
    std::filesystem::remove_all(old, ignored);
    std::filesystem::rename(to, old, ignored);
    std::filesystem::remove_all(old, ignored);
  } else if (errno != ENOENT) {
    fail_io(to, "replace", errno);
  }
  if (::rename(from.c_str(), to.c_str()) != 0) fail_io(to, "create", errno);
}

std::string hex(uint32_t value) { return fmt::format("{:08x}", value); }

void write_checksums(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  OrderedJson json = OrderedJson::object();
  for (const auto& file : files) {
    const MappedFile mapped(file);
    json[file.filename().string()] = {{"bytes", mapped.bytes().size()},
                                      {"crc32c", hex(crc32c(mapped.bytes()))}};
  }
  write_file_atomically(folder / kChecksums, to_text(json, 2) + "\n");
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& file, const std::string& busy) {
  file_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) fail_io(file, "create", errno);
  if (::flock(file_, LOCK_EX | LOCK_NB) == 0) return;
  const int reason = errno;
  ::close(file_);
  if (reason != EWOULDBLOCK) fail_io(file, "lock", reason);
  throw RunFolderBusy(busy);
}

FileLock::~FileLock() { ::close(file_); }

RunFolder::RunFolder(std::filesystem::path path)
    : path_(std::move(path)), checkpoints_(path_ / "checkpoints") {
  std::error_code error;
  std::filesystem::create_directories(checkpoints_, error);
  if (error) fail_io(checkpoints_, "create", error.value());
  lock_.emplace(path_ / "lock",
                path_.string() +
                    ": another process is training in this folder; choose another with --set "
                    "run.folder=DIR");
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints_)) {
    if (!entry.path().filename().string().starts_with(kTemporary)) continue;
    std::error_code ignored;
    std::filesystem::remove_all(entry.path(), ignored);
  }
}

std::filesystem::path RunFolder::checkpoint(int64_t step) const {
  return checkpoints_ / step_name(step);
}

std::vector<int64_t> RunFolder::steps() const {
  std::vector<int64_t> steps;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints_)) {
    const auto step = step_of(entry.path().filename().string());
    if (step && entry.is_directory() && !entry.is_symlink()) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<int64_t> RunFolder::latest() const {
  // The link, not the largest number: after going back to an earlier step the larger ones are old.
  // A kill between the rename and the link leaves the link one checkpoint behind, which is whole.
  std::error_code error;
  const auto target = std::filesystem::read_symlink(checkpoints_ / "latest", error);
  if (!error) {
    const auto step = step_of(target.filename().string());
    if (step && std::filesystem::is_directory(checkpoint(*step))) return step;
  }
  const std::vector<int64_t> all = steps();
  return all.empty() ? std::nullopt : std::optional(all.back());
}

void RunFolder::point(const std::string& name, int64_t step) const {
  const auto temporary = checkpoints_ / (kTemporary + name);
  ::unlink(temporary.c_str());
  if (::symlink(step_name(step).c_str(), temporary.c_str()) != 0 ||
      ::rename(temporary.c_str(), (checkpoints_ / name).c_str()) != 0) {
    fail_io(checkpoints_ / name, "create", errno);
  }
}

void RunFolder::save(int64_t step, const std::function<void(const std::filesystem::path&)>& write) {
  const auto temporary = checkpoints_ / fmt::format("{}step-{}", kTemporary, step);
  std::error_code ignored;
  std::filesystem::remove_all(temporary, ignored);
  if (::mkdir(temporary.c_str(), 0777) != 0) fail_io(temporary, "create", errno);
  try {
    write(temporary);
    write_checksums(temporary);
    sync_folder(temporary);
    put_in_place(temporary, checkpoint(step));
  } catch (...) {
    std::filesystem::remove_all(temporary, ignored);
    throw;
  }
  sync_folder(checkpoints_);
  point("latest", step);
  sync_folder(checkpoints_);
  std::filesystem::remove_all(temporary, ignored);  // what was exchanged for it
}

void RunFolder::set_best(int64_t step) {
  point("best", step);
  sync_folder(checkpoints_);
}

void RunFolder::set_aside_after(int64_t step) {
  for (const int64_t later : steps()) {
    if (later <= step) continue;
    const auto aside = checkpoints_ / fmt::format("aside-{}", later);
    std::error_code ignored;
    std::filesystem::remove_all(aside, ignored);
    std::filesystem::rename(checkpoint(later), aside, ignored);
  }
  if (std::filesystem::is_directory(checkpoint(step))) point("latest", step);
}

void RunFolder::prune(int64_t keep_last, int64_t keep_every, std::optional<int64_t> best) {
  const std::vector<int64_t> all = steps();
  const auto latest_step = latest();
  for (size_t i = 0; i + size_t(keep_last) < all.size(); ++i) {
    const int64_t step = all[i];
    if (step == best || step == latest_step || (keep_every > 0 && step % keep_every == 0)) continue;
    // Renamed first: a kill inside the removal leaves nothing that looks like a checkpoint.
    const auto doomed = checkpoints_ / fmt::format("{}old-{}", kTemporary, step);
    std::error_code ignored;
    std::filesystem::remove_all(doomed, ignored);
    std::filesystem::rename(checkpoint(step), doomed, ignored);
    std::filesystem::remove_all(doomed, ignored);
  }
}

void verify_checksums(const std::filesystem::path& checkpoint) {
  const auto path = checkpoint / kChecksums;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  const Json json = parse_json(read_text_file(path), path.string(), ErrorCode::kBadCheckpoint);
  if (!json.is_object()) {
    reject_file(path.string(), "{}, expected an object", describe_type(json));
  }
  for (const auto& [name, expected] : json.items()) {
    if (!expected.is_object() || !expected.contains("bytes") || !expected.contains("crc32c") ||
        name.find('/') != name.npos) {
      reject_file(path.string(), "entry '{}' is not a file with its size and checksum", name);
    }
    const MappedFile file(checkpoint / name);
    if (expected["bytes"] != file.bytes().size()) {
      reject_file((checkpoint / name).string(), "{} bytes, expected {} by {}", file.bytes().size(),
                  expected["bytes"].dump(), kChecksums);
    }
    if (expected["crc32c"] != hex(crc32c(file.bytes()))) {
      reject_file((checkpoint / name).string(),
                  "its checksum is {}, expected {} by {}: the file is damaged; resume from another "
                  "checkpoint with --resume DIR",
                  hex(crc32c(file.bytes())), expected["crc32c"].dump(), kChecksums);
    }
  }
}

}  // namespace freeformer
