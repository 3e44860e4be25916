// Files: reading whole ones, mapping large ones, and replacing one so that a crash at any moment
// leaves either the old content or the new, never half of it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace freeformer {

// Throws kIo: "path: cannot <action>: <what errno says>".
[[noreturn]] void fail_io(const std::filesystem::path& path, const char* action, int error);

// A read-only mapping. The file must not shrink while it is mapped (the kernel answers a read
// beyond the new end with SIGBUS): checkpoints are replaced by renaming, which is safe.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Pieces of a large file, read where they are. Unlike a mapping it bears a file that shrinks under
// it (somebody edits the text a run is reading): the read throws kIo.
class RandomAccessFile {
 public:
  explicit RandomAccessFile(const std::filesystem::path& path);
  ~RandomAccessFile();
  RandomAccessFile(RandomAccessFile&& other) noexcept;
  RandomAccessFile& operator=(RandomAccessFile&& other) noexcept;
  RandomAccessFile(const RandomAccessFile&) = delete;
  RandomAccessFile& operator=(const RandomAccessFile&) = delete;

  size_t size() const { return size_; }  // when it was opened
  void read(size_t first, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  size_t size_ = 0;
};

// For configuration files: refuses anything over `limit` bytes instead of filling the memory.
std::string read_text_file(const std::filesystem::path& path, size_t limit = size_t{64} << 20);

// Writes the pieces one after the other to a temporary sibling, syncs it, renames it over `path`
// and syncs the folder. Throws kIo (full disk included) with the old file untouched and the
// temporary one removed.
void write_file_atomically(const std::filesystem::path& path,
                           const std::vector<std::span<const std::byte>>& pieces);
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

}  // namespace freeformer
