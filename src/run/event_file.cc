#include "run/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <span>
#include <string_view>

#include "core/crc32c.h"
#include "core/file.h"

namespace freeformer {
namespace {

// --- Protocol buffers: the little of the encoding that an Event needs ----------------------------

enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename Unsigned>
void put_fixed(std::string& out, Unsigned value) {  // little-endian
  for (size_t i = 0; i < sizeof(value); ++i) out += char(value >> 8 * i & 0xFF);
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += char((value & 0x7F) | 0x80);
  out += char(value);
}

void put_key(std::string& out, int field, WireType type) { put_varint(out, field << 3 | type); }

void put_bytes(std::string& out, int field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// The field numbers are those of tensorflow/core/util/event.proto and
// tensorflow/core/framework/summary.proto.

std::string event_at(double wall_time, int64_t step) {
  std::string event;
  put_key(event, 1, kFixed64);  // wall_time
  put_fixed(event, std::bit_cast<uint64_t>(wall_time));
  put_key(event, 2, kVarint);  // step
  put_varint(event, uint64_t(step));
  return event;
}

std::string version_event(double wall_time) {
  std::string event = event_at(wall_time, 0);
  put_bytes(event, 3, "brain.Event:2");  // file_version
  return event;
}

std::string start_event(double wall_time, int64_t step) {
  std::string log;
  put_key(log, 1, kVarint);  // status
  put_varint(log, 1);        // START
  std::string event = event_at(wall_time, step);
  put_bytes(event, 7, log);  // session_log
  return event;
}

std::string value_message(const std::string& tag, double value) {
  std::string message;
  put_bytes(message, 1, tag);
  put_key(message, 2, kFixed32);  // simple_value
  put_fixed(message, std::bit_cast<uint32_t>(float(value)));
  return message;
}

// --- Records -------------------------------------------------------------------------------------

// A checksum of data that holds checksums is weak; so TensorFlow stores them rotated and shifted.
uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xA282EAD8;
}

std::string record_of(const std::string& event) {
  std::string record;
  put_fixed(record, uint64_t{event.size()});
  put_fixed(record, masked_crc(record));
  record += event;
  put_fixed(record, masked_crc(event));
  return record;
}

// --- Files ---------------------------------------------------------------------------------------

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  std::replace(std::begin(name), std::end(name), '/', '_');
  return name;
}

std::filesystem::path new_path(const std::filesystem::path& folder) {
  static std::atomic<int> counter = 0;
  return folder / fmt::format("events.out.tfevents.{}.{}.{}.{}", std::time(nullptr), host_name(),
                              getpid(), counter++);
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step) {
  // A file of that name can only be of another machine that thinks it is this one: take the next.
  do {
    path_ = new_path(folder);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  } while (fd_ < 0 && (errno == EEXIST || errno == EINTR));
  if (fd_ < 0) fail_io(path_, "create", errno);
  try {
    write_record(version_event(now()));
    if (first_step > 0) write_record(start_event(now(), first_step));
  } catch (...) {
    ::close(fd_);
    ::unlink(path_.c_str());
    throw;
  }
}

EventFile::~EventFile() { ::close(fd_); }

void EventFile::scalars(int64_t step, double wall_time,
                        const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, value] : values) put_bytes(summary, 1, value_message(tag, value));
  std::string event = event_at(wall_time, step);
  put_bytes(event, 5, summary);
  write_record(event);
}

void EventFile::write_record(const std::string& event) {
  // TensorBoard stops at a torn record: nothing behind it would ever be seen.
  if (torn_ && ::ftruncate(fd_, size_) != 0) fail_io(path_, "remove a torn record", errno);
  torn_ = true;
  const std::string record = record_of(event);
  std::string_view rest = record;  // all of it in one write, unless the system does it in parts
  while (!rest.empty()) {
    const ssize_t n = ::write(fd_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      torn_ = ::ftruncate(fd_, size_) != 0;
      fail_io(path_, "write", error);
    }
    rest.remove_prefix(size_t(n));
  }
  torn_ = false;
  size_ += int64_t(record.size());
}

}  // namespace freeformer
