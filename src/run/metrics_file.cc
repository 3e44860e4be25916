#include "run/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "core/file.h"

namespace freeformer {
namespace {

// Bytes of the lines to keep. Lines are in order of steps, so the first that is later ends it.
size_t length_up_to(const std::filesystem::path& path, int64_t step) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return 0;
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = text.find('\n', begin);
    if (end == text.npos) break;  // half a line
    const Json line = Json::parse(text.substr(begin, end - begin), nullptr, false);
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) {
      reject_file(path.string(), "byte {}: expected a JSON object with a \"step\"", begin);
    }
    if (line["step"].get<int64_t>() > step) break;
    begin = end + 1;
  }
  return begin;
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path, int64_t step) : path_(path) {
  const size_t length = length_up_to(path, step);
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0 || ::ftruncate(fd_, off_t(length)) != 0) {
    fail_io(path, "open for writing", errno);
  }
}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) ::close(fd_);
}

void MetricsFile::append(const OrderedJson& object) {
  const std::string line = to_text(object) + "\n";
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      if (::ftruncate(fd_, before) != 0) { /* the next resume cuts it off */
      }
      fail_io(path_, "write", error);
    }
    done += size_t(n);
  }
}

void MetricsFile::sync() {
  if (::fsync(fd_) != 0 && errno != EINVAL) {
    fail_io(path_, "sync", errno);
  }
}

}  // namespace freeformer
