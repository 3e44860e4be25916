#include "targets.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/model_config.h"
#include "core/safetensors.h"
#include "core/settings.h"
#include "core/utf8.h"
#include "text/tokenizer.h"

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
auto accepted(ErrorCode code, Parse parse, std::string_view where = kWhere)
    -> std::optional<decltype(parse())> {
  try {
    return parse();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    require(error.code() == code, "a refusal has the parser's code");
    require(message.starts_with(where), "a refusal names the place first");
    require(message.size() < 2100 && message.find_first_of("\r\n\x1B") == message.npos,
            "a refusal is one line");
    require(find_invalid_utf8(message) == message.npos, "a refusal is text");
    return std::nullopt;
  }
}

// A field of every type, inside and outside of sections.
struct Sample {
  bool flag = false;
  int64_t count = 3;
  double ratio = 0.125;
  std::string text = "some \"text\"";
  std::string kind = "plain";
  std::vector<std::string> files{"a", "b"};
  Fields fields;

  Sample() {
    fields.add("count", &count, "a whole number");
    fields.section("outer", [&](Fields& outer) {
      outer.add("flag", &flag, "yes or no");
      outer.add("text", &text, "anything");
      outer.section("inner", [&](Fields& inner) {
        inner.add("ratio", &ratio, "a number");
        inner.add("files", &files, "a list");
        inner.choice("kind", kind, {"plain", "fancy"}, "one of two");
      });
    });
  }
  Sample(const Sample&) = delete;  // the fields point here
  Sample& operator=(const Sample&) = delete;
};

void require_round_trip(const Sample& sample) {
  require(std::isfinite(sample.ratio), "a number is finite");
  require(sample.kind == "plain" || sample.kind == "fancy", "a choice is one of its choices");
  Sample again;
  again.fields.read(sample.fields.write(), kWhere);
  require(again.fields.write() == sample.fields.write() && again.text == sample.text &&
              again.files == sample.files && again.ratio == sample.ratio,
          "settings survive writing and reading");
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

void read_sample_settings(const std::string& toml_text) {
  Sample sample;
  sample.fields.read(toml_text, kWhere);
  sample.fields.apply_conditions();
}

void fuzz_settings(std::span<const std::byte> input) {
  const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  Sample from_file;
  if (accepted(ErrorCode::kInvalidConfig, [&] {
        from_file.fields.read(text, kWhere);
        from_file.fields.apply_conditions();
        return true;
      })) {
    require_round_trip(from_file);
  }
  for (const Fields::Field& field : from_file.fields.all()) {
    Sample from_flag;
    const std::string assignment = field.key + "=" + text;
    if (accepted(
            ErrorCode::kInvalidArgument, [&] { return from_flag.fields.set(assignment), true; },
            "--set " + field.key)) {
      require_round_trip(from_flag);
    }
  }
}

void fuzz_tokenizer(std::span<const std::byte> input) {
  const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = parse_tokenizer(text, kWhere);
  } catch (const Error& error) {
    require(error.code() == ErrorCode::kBadCheckpoint || error.code() == ErrorCode::kUnsupported,
            "a refusal is about the file");
    require(std::string_view(error.what()).starts_with(kWhere), "a refusal names the file");
    return;
  }
  std::vector<int32_t> all(static_cast<size_t>(tokenizer->vocab_size()));
  std::iota(all.begin(), all.end(), 0);
  require(tokenizer->encode(tokenizer->decode(all)) == all, "tokens survive being text");
  require(parse_tokenizer(tokenizer->to_json(), kWhere)->decode(all) == tokenizer->decode(all),
          "a tokenizer survives writing and reading");
}

}  // namespace freeformer
