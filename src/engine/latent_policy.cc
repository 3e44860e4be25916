#include "engine/latent_policy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/philox.h"
#include "core/shape.h"
#include "core/suggest.h"

namespace freeformer {
namespace {

using Kind = LatentPolicy::Kind;

struct Form {
  Kind kind;
  std::string_view name;
  std::string_view argument;  // empty: takes none
};

constexpr std::array kForms = {
    Form{Kind::kPosterior, "posterior", ""}, Form{Kind::kMap, "map", ""},
    Form{Kind::kPrior, "prior", ""},         Form{Kind::kSeed, "seed", "N"},
    Form{Kind::kCodes, "code", "V[,V2,…]"},  Form{Kind::kFrom, "from", "TEXT"},
    Form{Kind::kFile, "file", "PATH"},
};

constexpr int32_t kMaxCode = std::numeric_limits<int32_t>::max();

template <typename... Args>
[[noreturn]] void reject(std::string_view text, fmt::format_string<Args...> expected,
                         Args&&... args) {
  fail(ErrorCode::kInvalidArgument, "z is \"{}\", expected {}", text,
       fmt::format(expected, std::forward<Args>(args)...));
}

const Form& find_form(std::string_view name, std::string_view text) {
  std::vector<std::string> names;
  for (const Form& form : kForms) {
    if (form.name == name) return form;
    names.emplace_back(form.name);
  }
  reject(text, "posterior, map, prior, seed:N, code:V[,V2,…], from:TEXT or file:PATH{}",
         suggest(name, names));
}

// Digits alone: no sign, no space, no fraction.
template <typename Number>
bool parse_number(std::string_view text, Number& number) {
  const bool digits = text.find_first_not_of("0123456789") == text.npos;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return digits && result.ec == std::errc();
}

uint64_t parse_seed(std::string_view argument, std::string_view text) {
  uint64_t seed = 0;
  if (!parse_number(argument, seed)) {
    reject(text, "seed:N with N from 0 to {}", std::numeric_limits<uint64_t>::max());
  }
  return seed;
}

std::vector<int32_t> parse_codes(std::string_view argument, std::string_view text) {
  std::vector<int32_t> codes;
  for (size_t begin = 0; begin <= argument.size();) {
    const size_t end = std::min(argument.find(',', begin), argument.size());
    const std::string_view item = argument.substr(begin, end - begin);
    if (!parse_number(item, codes.emplace_back())) {
      reject(text, "codes from 0 to {} with commas between them; number {} is \"{}\"", kMaxCode,
             codes.size(), item);
    }
    begin = end + 1;
  }
  return codes;
}

}  // namespace

LatentPolicy parse_latent_policy(std::string_view text) {
  const size_t colon = text.find(':');
  const Form& form = find_form(text.substr(0, colon), text);
  LatentPolicy policy;
  policy.kind = form.kind;
  if (form.argument.empty()) {
    if (colon != text.npos) reject(text, "{} and nothing after it", form.name);
    return policy;
  }
  const std::string_view argument = colon == text.npos ? "" : text.substr(colon + 1);
  if (argument.empty()) reject(text, "{}:{}", form.name, form.argument);
  if (form.kind == Kind::kSeed) {
    policy.seed = parse_seed(argument, text);
  } else if (form.kind == Kind::kCodes) {
    policy.codes = parse_codes(argument, text);
  } else {
    policy.text = argument;
  }
  return policy;
}

std::string to_text(const LatentPolicy& policy) {
  switch (policy.kind) {
    case Kind::kPosterior:
      return "posterior";
    case Kind::kMap:
      return "map";
    case Kind::kPrior:
      return "prior";
    case Kind::kSeed:
      return fmt::format("seed:{}", policy.seed);
    case Kind::kCodes:
      return fmt::format("code:{}", fmt::join(policy.codes, ","));
    case Kind::kFrom:
      return "from:" + policy.text;
    case Kind::kFile:
      return "file:" + policy.text;
  }
  FF_CHECK(false);
  return {};
}

std::vector<int32_t> read_codes(const std::string& path) {
  // The codes of a million tokens, with room for what else is said of them.
  constexpr size_t kMaxBytes = size_t{64} << 20, kMaxValues = 4'000'000;
  constexpr ErrorCode kCode = ErrorCode::kInvalidArgument;
  const Json json = parse_json(read_text_file(path, kMaxBytes), path, kCode, kMaxValues);
  const bool named = json.is_object() && json.contains("codes");
  const Json& list = named ? json["codes"] : json;
  if (!list.is_array()) {
    fail(kCode, "{}: {} is {}, expected {}", path, named ? "\"codes\"" : "the document",
         describe_type(list),
         named ? "an array of codes" : "an array of codes or {\"codes\": […]}");
  }
  if (list.empty()) fail(kCode, "{}: holds no codes, expected at least one", path);
  std::vector<int32_t> codes;
  codes.reserve(list.size());
  for (const Json& item : list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > uint64_t{kMaxCode}) {
      fail(kCode, "{}: number {} is {}, expected a code from 0 to {}", path, codes.size() + 1,
           item.is_number() ? item.dump() : describe_type(item), kMaxCode);
    }
    codes.push_back(item.get<int32_t>());
  }
  return codes;
}

CodePlan::CodePlan(const LatentPolicy& policy, int bits, uint64_t seed, uint64_t sequence)
    : policy_(policy),
      bits_(bits),
      seed_(policy.kind == Kind::kSeed ? policy.seed : seed),
      sequence_(policy.kind == Kind::kSeed ? 0 : sequence),
      encodes_prompt_(bits > 0 && (policy.kind == Kind::kPosterior || policy.kind == Kind::kMap)) {
  FF_CHECK(bits >= 0 && bits <= kMaxLatentBits);
  const bool holds_codes =
      policy.kind == Kind::kCodes || policy.kind == Kind::kFrom || policy.kind == Kind::kFile;
  FF_CHECK(policy.codes.empty() != holds_codes);
  const auto wrong = std::find_if(policy.codes.begin(), policy.codes.end(), [&](int32_t code) {
    return code < 0 || code >= code_count(bits);
  });
  if (wrong != policy.codes.end()) {
    fail(ErrorCode::kInvalidArgument, "{}: number {} is {}, expected a code from 0 to {} ({} bits)",
         policy.kind == Kind::kFile ? policy.text : "z", wrong - policy.codes.begin() + 1, *wrong,
         code_count(bits) - 1, bits);
  }
}

std::vector<float> CodePlan::uniforms(int64_t first, int64_t count) const {
  FF_CHECK(first >= 0 && count >= 0);
  std::vector<float> uniforms(size_t(count * bits_), 0.5F);
  if (policy_.kind == Kind::kMap) return uniforms;
  const RandomSource source(seed_, RandomStream::kLatent);
  for (int64_t i = 0; i < count; ++i) {
    source.uniforms(sequence_, uint32_t(first + i), bits_, uniforms.data() + i * bits_);
  }
  return uniforms;
}

int32_t CodePlan::code(int64_t position) const {
  FF_CHECK(position >= 0);
  if (size_t(position) < policy_.codes.size()) return policy_.codes[size_t(position)];
  if (policy_.kind == Kind::kCodes) return policy_.codes.back();
  std::array<float, kMaxLatentBits> uniforms;
  RandomSource(seed_, RandomStream::kLatent)
      .uniforms(sequence_, uint32_t(position), bits_, uniforms.data());
  int32_t code = 0;
  for (int h = 0; h < bits_; ++h) code |= int32_t(uniforms[size_t(h)] < 0.5F) << h;
  return code;
}

std::vector<int32_t> CodePlan::codes(int64_t first, int64_t count) const {
  FF_CHECK(count >= 0);
  std::vector<int32_t> codes(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) codes[size_t(i)] = code(first + i);
  return codes;
}

}  // namespace freeformer
