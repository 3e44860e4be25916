#include "targets.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/model_config.h"
#include "core/safetensors.h"
#include "core/utf8.h"

namespace freeformer {
namespace {

constexpr const char* kWhere = "fuzz input";

void require(bool condition, const char* promise) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

// What `parse` returns, or nothing where it refuses: with this code, in one line that names the
// place first.
template <typename Parse>
auto accepted(ErrorCode code, Parse parse) -> std::optional<decltype(parse())> {
  try {
    return parse();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    require(error.code() == code, "a refusal has the parser's code");
    require(message.starts_with(kWhere), "a refusal names the file first");
    require(message.size() < 2100 && message.find_first_of("\r\n\x1B") == message.npos,
            "a refusal is one line");
    require(find_invalid_utf8(message) == message.npos, "a refusal is text");
    return std::nullopt;
  }
}

}  // namespace

void fuzz_safetensors(std::span<const std::byte> input) {
  const auto header =
      accepted(ErrorCode::kBadCheckpoint, [&] { return parse_safetensors(input, kWhere); });
  if (!header) return;
  require(header->data_start >= 8 && header->data_start <= input.size(), "the data is in the file");
  const uint64_t data_bytes = input.size() - header->data_start;
  std::set<std::string_view> names;
  uint64_t end = 0;
  for (const TensorInfo& tensor : header->tensors) {
    require(tensor.begin == end, "tensors lie end to end");
    require(tensor.end >= tensor.begin && tensor.end <= data_bytes, "a tensor is in the file");
    end = tensor.end;
    for (const int64_t size : tensor.shape) require(size >= 0, "a size is not negative");
    require(uint64_t(tensor.element_count()) * uint64_t(bit_size(tensor.dtype)) ==
                8 * (tensor.end - tensor.begin),
            "a tensor has the bytes of its shape");
    require(names.insert(tensor.name).second, "no name occurs twice");
  }
  require(end == data_bytes, "tensors fill the file");
}

void fuzz_model_config(std::span<const std::byte> input) {
  const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  const auto config =
      accepted(ErrorCode::kInvalidConfig, [&] { return parse_model_config(text, kWhere); });
  if (!config) return;
  require(parse_model_config(write_model_config(*config), kWhere) == *config,
          "a config survives writing and reading");
}

}  // namespace freeformer
