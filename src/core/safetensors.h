// safetensors: a u64 header length, a JSON header, the tensors' bytes. The reader maps the file and
// trusts nothing: every way in which a file can lie is refused with a message that names the file
// and the fault. The writer produces what the reference writer would.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/file.h"

namespace freeformer {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // empty for a scalar
  uint64_t begin = 0;          // bytes, from the start of the data
  uint64_t end = 0;

  int64_t element_count() const;
};

// "[3, 4]", for messages.
std::string describe_shape(const std::vector<int64_t>& shape);

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  size_t data_start = 0;  // 8 + length of the JSON
};

// Checks a whole file's bytes. `where` is the file's name for messages. Throws kBadCheckpoint.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& where);

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  const TensorInfo* find(std::string_view name) const;  // nullptr if there is none
  std::span<const std::byte> data(const TensorInfo& tensor) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> by_name_;
};

struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

// Atomic (write_file_atomically). Metadata {"format": "pt"} is what Hugging Face expects.
void write_safetensors(const std::filesystem::path& path, std::vector<TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace freeformer
