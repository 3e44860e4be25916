#include "text/token_file.h"

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "core/json.h"
#include "core/suggest.h"

namespace freeformer {
namespace {

// Of one file's JSON: beyond these, several files serve better.
constexpr size_t kMaxDocuments = 16'000'000;
constexpr size_t kMaxJsonBytes = size_t{256} << 20;

constexpr const char* kByteTokenizer = "byte";
constexpr int64_t kByteVocabulary = 256;

std::filesystem::path json_path(std::filesystem::path path) {
  if (path.extension() != ".bin") {
    fail(ErrorCode::kInvalidArgument, "{}: expected a token file, whose name ends in .bin",
         path.string());
  }
  return path.replace_extension(".json");
}

// How many different ids a width can tell apart; ours are int32_t.
int64_t largest_vocabulary(int bytes_per_token) {
  return bytes_per_token == 2 ? int64_t{1} << 16 : int64_t{1} << 31;
}

const Json& require(const Json& json, const char* key, const std::string& where) {
  const auto found = json.find(key);
  if (found == json.end()) reject_file(where, "\"{}\" is missing", key);
  return *found;
}

uint64_t require_count(const Json& json, const char* key, const std::string& where) {
  const Json& value = require(json, key, where);
  if (!value.is_number_unsigned()) {
    reject_file(where, "\"{}\" is {}, expected a whole number", key, describe_type(value));
  }
  return value.get<uint64_t>();
}

std::string require_string(const Json& json, const char* key, const std::string& where) {
  const Json& value = require(json, key, where);
  if (!value.is_string()) {
    reject_file(where, "\"{}\" is {}, expected a string", key, describe_type(value));
  }
  return value.get<std::string>();
}

void refuse_unknown_keys(const Json& json, const std::string& where) {
  static const std::vector<std::string> known = {"dtype", "count", "vocab_size", "tokenizer",
                                                 "documents"};
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      reject_file(where, "unknown key \"{}\"{}", key, suggest(key, known));
    }
  }
}

int parse_width(const std::string& dtype, const std::string& where) {
  if (dtype == "uint16") return 2;
  if (dtype == "uint32") return 4;
  reject_file(where, "\"dtype\" is \"{}\", expected \"uint16\" or \"uint32\"", dtype);
}

// Where each document begins. None is empty: the first begins at 0, each later one beyond the last,
// all below `count`.
std::vector<uint64_t> parse_documents(const Json& json, uint64_t count, const std::string& where) {
  const auto found = json.find("documents");
  if (found == json.end()) return std::vector<uint64_t>(count > 0 ? 1 : 0, 0);
  if (!found->is_array()) {
    reject_file(where, "\"documents\" is {}, expected an array", describe_type(*found));
  }
  if (found->empty() && count > 0) {
    reject_file(where, "\"documents\" is empty, expected the first to begin at 0");
  }
  std::vector<uint64_t> documents;
  documents.reserve(found->size());
  for (const Json& value : *found) {
    if (!value.is_number_unsigned()) {
      reject_file(where, "document {} begins at {}, expected a whole number", documents.size(),
                  describe_type(value));
    }
    const auto begin = value.get<uint64_t>();
    if (documents.empty() ? begin != 0 : begin <= documents.back()) {
      reject_file(where, "document {} begins at token {}, expected {}", documents.size(), begin,
                  documents.empty() ? "0" : fmt::format("more than {}", documents.back()));
    }
    if (begin >= count) {
      reject_file(where, "document {} begins at token {}, expected below \"count\", {}",
                  documents.size(), begin, count);
    }
    documents.push_back(begin);
  }
  return documents;
}

// Little-endian whatever the machine; one load or store on those that are.
uint32_t load(const std::byte* at, int width) {
  uint32_t value = 0;
  for (int i = 0; i < width; ++i) value |= uint32_t(at[i]) << 8 * i;
  return value;
}

void store(uint32_t value, int width, std::byte* at) {
  for (int i = 0; i < width; ++i) at[i] = std::byte(value >> 8 * i & 0xFF);
}

}  // namespace

TokenFile::TokenFile(const std::filesystem::path& path) : path_(path), file_(path) {
  const std::filesystem::path description = json_path(path);
  const std::string where = description.string();
  const Json json = parse_json(read_text_file(description, kMaxJsonBytes), where,
                               ErrorCode::kBadCheckpoint, kMaxDocuments + 100);
  if (!json.is_object()) reject_file(where, "holds {}, expected an object", describe_type(json));
  refuse_unknown_keys(json, where);

  bytes_per_token_ = parse_width(require_string(json, "dtype", where), where);
  count_ = require_count(json, "count", where);
  const size_t bytes = file_.size();
  if (bytes % size_t(bytes_per_token_) != 0 || bytes / size_t(bytes_per_token_) != count_) {
    reject_file(path.string(), "{} bytes, expected {} tokens of {} bytes as in {}", bytes, count_,
                bytes_per_token_, where);
  }
  const uint64_t vocab_size = require_count(json, "vocab_size", where);
  const int64_t most = largest_vocabulary(bytes_per_token_);
  if (vocab_size < 1 || vocab_size > uint64_t(most)) {
    reject_file(where, "\"vocab_size\" is {}, expected 1 to {} with tokens of {} bytes", vocab_size,
                most, bytes_per_token_);
  }
  vocab_size_ = int64_t(vocab_size);
  tokenizer_ = require_string(json, "tokenizer", where);
  if (tokenizer_ == kByteTokenizer && vocab_size_ != kByteVocabulary) {
    reject_file(where, "\"vocab_size\" is {}, expected {} with tokenizer \"{}\"", vocab_size_,
                kByteVocabulary, kByteTokenizer);
  }
  documents_ = parse_documents(json, count_, where);
}

void TokenFile::read(uint64_t first, std::span<int32_t> out) const {
  FF_CHECK(first <= count_ && out.size() <= count_ - first);
  std::vector<std::byte> bytes(out.size() * size_t(bytes_per_token_));
  file_.read(first * uint64_t(bytes_per_token_), bytes);
  const std::byte* at = bytes.data();
  for (size_t i = 0; i < out.size(); ++i, at += bytes_per_token_) {
    const uint32_t token = load(at, bytes_per_token_);
    if (token >= vocab_size_) {
      reject_file(path_.string(), "token {} at position {}, expected below the vocab_size, {}",
                  token, first + i, vocab_size_);
    }
    out[i] = int32_t(token);
  }
}

void write_token_file(const std::filesystem::path& path, std::span<const int32_t> tokens,
                      int64_t vocab_size, const std::string& tokenizer,
                      const std::vector<uint64_t>& documents) {
  const std::filesystem::path description = json_path(path);
  if (documents.size() > kMaxDocuments) {
    fail(ErrorCode::kCapacity, "{}: {} documents, expected at most {}: write several files",
         path.string(), documents.size(), kMaxDocuments);
  }
  FF_CHECK(vocab_size >= 1 && vocab_size <= largest_vocabulary(4));
  FF_CHECK(tokenizer != kByteTokenizer || vocab_size == kByteVocabulary);
  const int width = vocab_size <= largest_vocabulary(2) ? 2 : 4;

  OrderedJson json;
  json["dtype"] = width == 2 ? "uint16" : "uint32";
  json["count"] = tokens.size();
  json["vocab_size"] = vocab_size;
  json["tokenizer"] = tokenizer;
  if (!documents.empty()) {
    FF_CHECK(documents.front() == 0 && documents.back() < tokens.size());
    FF_CHECK(std::adjacent_find(documents.begin(), documents.end(), std::greater_equal()) ==
             documents.end());
    json["documents"] = documents;
  }

  std::vector<std::byte> bytes(tokens.size() * size_t(width));
  for (size_t i = 0; i < tokens.size(); ++i) {
    FF_CHECK(tokens[i] >= 0 && tokens[i] < vocab_size);
    store(uint32_t(tokens[i]), width, &bytes[i * size_t(width)]);
  }
  write_file_atomically(path, {std::span<const std::byte>(bytes)});
  write_file_atomically(description, to_text(json) + "\n");
}

}  // namespace freeformer
