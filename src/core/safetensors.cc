#include "core/safetensors.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "core/error.h"
#include "core/json.h"

namespace freeformer {
namespace {

// The reference implementation's limit: a larger header is a memory bomb, not a model.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr const char* kMetadataKey = "__metadata__";

// A tensor's name in a message: short, whatever the file says. A name may be 100 MB long.
std::string in_quotes(std::string_view name) {
  constexpr size_t kMost = 80;
  if (name.size() <= kMost) return "'" + std::string(name) + "'";
  size_t cut = kMost;
  while (cut > 0 && (name[cut] & 0xC0) == 0x80) --cut;
  return "'" + std::string(name.substr(0, cut)) + "…'";
}

const Json& require(const Json& entry, const char* key, const std::string& tensor,
                    const std::string& where) {
  const auto found = entry.find(key);
  if (found == entry.end()) reject_file(where, "tensor {} has no \"{}\"", tensor, key);
  return *found;
}

std::vector<uint64_t> unsigned_numbers(const Json& value, const char* key,
                                       const std::string& tensor, const std::string& where) {
  if (!value.is_array()) {
    reject_file(where, "tensor {}: \"{}\" is {}, expected an array of whole numbers", tensor, key,
                describe_type(value));
  }
  std::vector<uint64_t> numbers;
  numbers.reserve(value.size());
  for (const Json& number : value) {
    if (!number.is_number_unsigned()) {
      reject_file(where, "tensor {}: \"{}\" holds {}, expected whole numbers from 0 to 2^64-1",
                  tensor, key, describe_type(number));
    }
    numbers.push_back(number.get<uint64_t>());
  }
  return numbers;
}

// Bytes of shape × dtype; nothing where the bits do not fill whole bytes.
std::optional<uint64_t> checked_byte_count(const std::vector<uint64_t>& shape, DType dtype,
                                           const std::string& tensor, const std::string& where) {
  uint64_t elements = 1;
  for (const uint64_t size : shape) {
    if (__builtin_mul_overflow(elements, size, &elements)) {
      reject_file(where, "tensor {}: the product of its shape overflows 64 bits", tensor);
    }
  }
  uint64_t bits = 0;
  if (__builtin_mul_overflow(elements, uint64_t(bit_size(dtype)), &bits)) {
    reject_file(where, "tensor {}: its size in bits overflows 64 bits", tensor);
  }
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

TensorInfo parse_entry(const std::string& key, const Json& entry, const std::string& where) {
  const std::string tensor = in_quotes(key);
  if (key.find('\0') != key.npos) reject_file(where, "tensor {} has a NUL in its name", tensor);
  if (!entry.is_object()) {
    reject_file(where, "tensor {} is {}, expected an object", tensor, describe_type(entry));
  }
  const Json& dtype_name = require(entry, "dtype", tensor, where);
  if (!dtype_name.is_string()) {
    reject_file(where, "tensor {}: \"dtype\" is {}, expected a string", tensor,
                describe_type(dtype_name));
  }
  const auto dtype = parse_dtype(dtype_name.get_ref<const std::string&>());
  if (!dtype) {
    reject_file(where, "tensor {}: unknown dtype {}", tensor,
                in_quotes(dtype_name.get_ref<const std::string&>()));
  }
  const auto shape =
      unsigned_numbers(require(entry, "shape", tensor, where), "shape", tensor, where);
  const auto offsets = unsigned_numbers(require(entry, "data_offsets", tensor, where),
                                        "data_offsets", tensor, where);
  if (offsets.size() != 2) {
    reject_file(where, "tensor {}: \"data_offsets\" has {} numbers, expected 2", tensor,
                offsets.size());
  }
  if (offsets[1] < offsets[0]) {
    reject_file(where, "tensor {}: its data ends at {} before it begins at {}", tensor, offsets[1],
                offsets[0]);
  }
  const auto bytes = checked_byte_count(shape, *dtype, tensor, where);
  if (!bytes) {
    reject_file(where, "tensor {}: its {} elements do not fill whole bytes", tensor, name(*dtype));
  }
  if (offsets[1] - offsets[0] != *bytes) {
    reject_file(where, "tensor {}: data of {} bytes, expected {} for its shape in {}", tensor,
                offsets[1] - offsets[0], *bytes, name(*dtype));
  }
  TensorInfo info{key, *dtype, {}, offsets[0], offsets[1]};
  for (const uint64_t size : shape) {
    // Only a tensor without elements can get here with such a dimension; nobody can use it.
    if (size > uint64_t(INT64_MAX)) {
      reject_file(where, "tensor {}: a dimension of {} is over 2^63-1", tensor, size);
    }
    info.shape.push_back(int64_t(size));
  }
  return info;
}

}  // namespace

int64_t TensorInfo::element_count() const {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size == 0) return 0;  // whatever the others are: their product may overflow
  }
  for (const int64_t size : shape) count *= size;
  return count;
}

std::string describe_shape(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& where) {
  if (file.size() < 8) {
    reject_file(where,
                "not a safetensors file: {} bytes, expected at least 8 for the header's length",
                file.size());
  }
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) header_bytes = header_bytes << 8 | uint64_t(file[size_t(i)]);
  if (header_bytes > kMaxHeaderBytes) {
    reject_file(where, "not a safetensors file: header of {} bytes, expected at most {}",
                header_bytes, kMaxHeaderBytes);
  }
  if (header_bytes > file.size() - 8) {
    reject_file(where, "truncated: header of {} bytes in a file of {}", header_bytes, file.size());
  }
  if (header_bytes == 0) reject_file(where, "the header is empty, expected an object");
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
  const Json json = parse_json(text, where + ": the header", ErrorCode::kBadCheckpoint);
  if (!json.is_object()) {
    reject_file(where, "the header is {}, expected an object", describe_type(json));
  }

  SafetensorsHeader header;
  header.data_start = 8 + header_bytes;
  for (const auto& [key, value] : json.items()) {
    if (key != kMetadataKey) {
      header.tensors.push_back(parse_entry(key, value, where));
      continue;
    }
    if (value.is_null()) continue;  // the reference reads it as absent
    if (!value.is_object()) {
      reject_file(where, "\"{}\" is {}, expected an object of strings", kMetadataKey,
                  describe_type(value));
    }
    for (const auto& [name, item] : value.items()) {
      if (!item.is_string()) {
        reject_file(where, "\"{}\": {} is {}, expected a string", kMetadataKey, in_quotes(name),
                    describe_type(item));
      }
      header.metadata.emplace(name, item.get<std::string>());
    }
  }

  // Laid end to end from 0: no hole, no overlap, nothing twice.
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  uint64_t expected = 0;
  for (const TensorInfo& tensor : header.tensors) {
    if (tensor.begin != expected) {
      reject_file(where, "tensor {}: its data begins at {}, expected {} ({})",
                  in_quotes(tensor.name), tensor.begin, expected,
                  tensor.begin < expected ? "an overlap" : "a hole");
    }
    expected = tensor.end;
  }
  const uint64_t data_bytes = file.size() - header.data_start;
  if (expected > data_bytes) {
    reject_file(where, "truncated: the tensors take {} bytes, the file has {}", expected,
                data_bytes);
  }
  if (expected < data_bytes) {
    reject_file(where, "{} bytes after the last tensor, expected none", data_bytes - expected);
  }
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(path), header_(parse_safetensors(file_.bytes(), path.string())) {
  for (size_t i = 0; i < header_.tensors.size(); ++i) by_name_[header_.tensors[i].name] = i;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
}

std::span<const std::byte> SafetensorsFile::data(const TensorInfo& tensor) const {
  return file_.bytes().subspan(header_.data_start + tensor.begin, tensor.end - tensor.begin);
}

void write_safetensors(const std::filesystem::path& path, std::vector<TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  // The reference's order, by dtype: widest first, so that every tensor is aligned to its element
  // size. Then by name.
  std::sort(tensors.begin(), tensors.end(), [](const TensorToWrite& a, const TensorToWrite& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  for (const auto& [key, value] : metadata) {
    FF_CHECK(find_invalid_utf8(key + value) == std::string::npos);
  }
  OrderedJson header = OrderedJson::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  std::vector<std::span<const std::byte>> pieces(1);  // the header's place
  uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    uint64_t bits = uint64_t(bit_size(tensor.dtype));
    for (const int64_t size : tensor.shape) {
      FF_CHECK(size >= 0 && !__builtin_mul_overflow(bits, uint64_t(size), &bits));
    }
    FF_CHECK(bits == 8 * tensor.data.size());
    FF_CHECK(find_invalid_utf8(tensor.name) == std::string::npos);
    FF_CHECK(tensor.name.find('\0') == std::string::npos);
    FF_CHECK(tensor.name != kMetadataKey && !header.contains(tensor.name));
    header[tensor.name] = {{"dtype", name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.data.size()}}};
    offset += tensor.data.size();
    pieces.push_back(tensor.data);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  FF_CHECK(text.size() <= kMaxHeaderBytes);
  std::string head(8, '\0');
  for (size_t i = 0; i < 8; ++i) head[i] = char(uint64_t(text.size()) >> (8 * i));
  head += text;
  pieces[0] = std::as_bytes(std::span(head.data(), head.size()));
  write_file_atomically(path, pieces);
}

}  // namespace freeformer
