// A folder that is gone when the test is over.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>

namespace freeformer {

// In memory where that is offered: the product syncs what it writes, and on a disk hundreds of
// syncs take minutes.
inline std::filesystem::path temporary_root() {
  const std::filesystem::path memory = "/dev/shm";
  const bool usable = std::getenv("TMPDIR") == nullptr && access(memory.c_str(), W_OK) == 0;
  return usable ? memory : std::filesystem::temp_directory_path();
}

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(temporary_root() / ("freeformer-test-" + std::to_string(std::random_device()()))) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace freeformer
