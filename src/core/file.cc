#include "core/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace freeformer {

void fail_io(const std::filesystem::path& path, const char* action, int error) {
  fail(ErrorCode::kIo, "{}: cannot {}: {}", path.string(), action, std::strerror(error));
}

namespace {

class Descriptor {
 public:
  Descriptor(const std::filesystem::path& path, int flags, const char* action) {
    do {
      // O_NONBLOCK: opening a named pipe must not wait for a writer. Files do not care.
      fd_ = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0666);
    } while (fd_ < 0 && errno == EINTR);
    if (fd_ < 0) fail_io(path, action, errno);
  }
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  int close() { return fd_ < 0 ? 0 : ::close(std::exchange(fd_, -1)); }

 private:
  int fd_ = -1;
};

size_t regular_file_size(int fd, const std::filesystem::path& path) {
  struct stat status {};
  if (fstat(fd, &status) != 0) fail_io(path, "stat", errno);
  if (S_ISDIR(status.st_mode)) fail_io(path, "read", EISDIR);
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorCode::kIo, "{}: not a regular file", path.string());
  }
  return size_t(status.st_size);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor file(path, O_RDONLY, "open");
  size_ = regular_file_size(file.get(), path);
  if (size_ == 0) return;  // mmap refuses an empty range
  void* address = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) fail_io(path, "map", errno);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

RandomAccessFile::RandomAccessFile(const std::filesystem::path& path) : path_(path) {
  Descriptor file(path, O_RDONLY, "open");
  size_ = regular_file_size(file.get(), path);
  fd_ = file.release();
}

RandomAccessFile::~RandomAccessFile() {
  if (fd_ >= 0) ::close(fd_);
}

RandomAccessFile::RandomAccessFile(RandomAccessFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

RandomAccessFile& RandomAccessFile::operator=(RandomAccessFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

void RandomAccessFile::read(size_t first, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_, out.data(), out.size(), off_t(first));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_io(path_, "read", errno);
    if (n == 0) {
      fail(ErrorCode::kIo, "{}: ends at byte {}, it had {} when it was opened: it must not change",
           path_.string(), first, size_);
    }
    first += size_t(n);
    out = out.subspan(size_t(n));
  }
}

std::string read_text_file(const std::filesystem::path& path, size_t limit) {
  const Descriptor file(path, O_RDONLY, "open");
  const size_t size = regular_file_size(file.get(), path);
  if (size > limit) {
    fail(ErrorCode::kCapacity, "{}: {} bytes, expected at most {}", path.string(), size, limit);
  }
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(file.get(), text.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_io(path, "read", errno);
    if (n == 0) break;  // it shrank since fstat; what is there is what there is
    done += size_t(n);
  }
  text.resize(done);
  return text;
}

void write_file_atomically(const std::filesystem::path& path,
                           const std::vector<std::span<const std::byte>>& pieces) {
  static std::atomic<int> counter = 0;  // two threads may write the same file
  std::filesystem::path temporary = path;
  temporary += fmt::format(".tmp-{}-{}", getpid(), ++counter);
  // Opened first: once the file is replaced, nothing may fail that could have failed before.
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const Descriptor directory(folder, O_RDONLY | O_DIRECTORY, "open the folder");
  try {
    Descriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC, "create");
    for (std::span<const std::byte> piece : pieces) {
      while (!piece.empty()) {
        // Linux writes at most 2 GiB a call.
        const ssize_t n =
            ::write(file.get(), piece.data(), std::min<size_t>(piece.size(), size_t{1} << 30));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) fail_io(path, "write", errno);
        piece = piece.subspan(size_t(n));
      }
    }
    if (fsync(file.get()) != 0) fail_io(path, "sync", errno);
    if (file.close() != 0) fail_io(path, "close", errno);
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail_io(path, "replace", errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  // The rename itself must survive a power cut.
  if (fsync(directory.get()) != 0 && errno != EINVAL) fail_io(folder, "sync", errno);
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  write_file_atomically(path, {std::as_bytes(std::span(text.data(), text.size()))});
}

}  // namespace freeformer
