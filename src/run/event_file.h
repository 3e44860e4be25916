// TensorBoard event files: scalars in TensorFlow's record format (length, masked CRC-32C of the
// length, an Event protocol buffer, masked CRC-32C of it).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace freeformer {

class EventFile {
 public:
  // Creates events.out.tfevents.SECONDS.HOST.PID.N in the folder. Its first record is the version;
  // with first_step > 0 the next tells TensorBoard to forget what an earlier file says about
  // first_step and later (SessionLog START), as after a resume.
  EventFile(const std::filesystem::path& folder, int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // One record with all values of a step, appended by one write. Throws kIo, and the file is then
  // as it was.
  void scalars(int64_t step, double wall_time,
               const std::vector<std::pair<std::string, double>>& values);

  const std::filesystem::path& path() const { return path_; }

 private:
  void write_record(const std::string& event);

  std::filesystem::path path_;
  int fd_ = -1;
  int64_t size_ = 0;   // of the whole records
  bool torn_ = false;  // part of a record may follow them
};

}  // namespace freeformer
