#include "text/tokenizer.h"

#include <array>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"

namespace freeformer {
namespace {

constexpr int kByteCount = 256;
constexpr const char* kWhatIsRead = "this version reads byte-level BPE without merges";

template <typename... Args>
[[noreturn]] void refuse(const std::string& where, fmt::format_string<Args...> format,
                         Args&&... args) {
  fail(ErrorCode::kUnsupported, "{}: {}; {}", where,
       fmt::format(format, std::forward<Args>(args)...), kWhatIsRead);
}

// A value in a message: short, whatever the file says.
std::string brief(const Json& value) {
  return value.is_structured() ? describe_type(value)
                               : value.dump(-1, ' ', /*ensure_ascii=*/true).substr(0, 40);
}

// 49,152
std::string grouped(size_t count) {
  std::string text = std::to_string(count);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

bool is_printable_latin1(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// GPT-2's spelling of the bytes, so that any of them can stand in a JSON key: a printable character
// of Latin-1 is itself, the others are U+0100, U+0101, … in their order.
std::array<std::string, kByteCount> make_byte_symbols() {
  std::array<std::string, kByteCount> symbols;
  int next = 0x100;
  for (int byte = 0; byte < kByteCount; ++byte) {
    const int code_point = is_printable_latin1(byte) ? byte : next++;
    if (code_point < 0x80) {
      symbols[byte] = {char(code_point)};
    } else {
      symbols[byte] = {char(0xC0 | code_point >> 6), char(0x80 | (code_point & 0x3F))};
    }
  }
  return symbols;
}

const std::array<std::string, kByteCount>& byte_symbols() {
  static const std::array<std::string, kByteCount> symbols = make_byte_symbols();
  return symbols;
}

// -1: the symbol is not one byte's.
int byte_of(const std::string& symbol) {
  for (int byte = 0; byte < kByteCount; ++byte) {
    if (byte_symbols()[byte] == symbol) return byte;
  }
  return -1;
}

// An absent key and null mean the same in tokenizer.json.
const Json& member(const Json& object, const char* key) {
  static const Json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

// What part `key` of the tokenizer is: "ByteLevel", or "null".
std::string type_of(const Json& root, const char* key, const std::string& where) {
  const Json& part = member(root, key);
  if (part.is_null()) return "null";
  if (!part.is_object()) reject_file(where, "\"{}\" is {}, expected an object", key, brief(part));
  const Json& type = member(part, "type");
  if (!type.is_string()) {
    reject_file(where, "\"{}.type\" is {}, expected a string", key, brief(type));
  }
  return type.get<std::string>().substr(0, 40);
}

// Everything that could make the tokens differ from one byte, one token. Left alone: what only
// concerns offsets, merges or unknown tokens, where there are none; and "truncation" and "padding",
// which are left over from whoever saved the file and which callers override.
void refuse_more_than_bytes(const Json& root, const std::string& where) {
  const std::string normalizer = type_of(root, "normalizer", where);
  const std::string pre_tokenizer = type_of(root, "pre_tokenizer", where);
  const std::string post_processor = type_of(root, "post_processor", where);
  const std::string decoder = type_of(root, "decoder", where);
  if (normalizer != "null") refuse(where, "has a normalizer ({})", normalizer);
  if (pre_tokenizer != "ByteLevel") refuse(where, "\"pre_tokenizer\" is {}", pre_tokenizer);
  if (const Json& prefix = member(root["pre_tokenizer"], "add_prefix_space"); prefix != false) {
    refuse(where, "\"pre_tokenizer.add_prefix_space\" is {}, not false", brief(prefix));
  }
  if (post_processor != "null" && post_processor != "ByteLevel") {
    refuse(where, "has a post-processor ({})", post_processor);
  }
  if (decoder != "ByteLevel") refuse(where, "\"decoder\" is {}", decoder);
  const Json& added = member(root, "added_tokens");
  if (!added.is_null() && !added.is_array()) {
    reject_file(where, "\"added_tokens\" is {}, expected an array", describe_type(added));
  }
  if (!added.empty()) refuse(where, "has {} added tokens", grouped(added.size()));
  for (const char* key : {"unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = member(root["model"], key);
    if (!value.is_null() && value != "") refuse(where, "\"model.{}\" is {}", key, brief(value));
  }
}

// The byte of each id.
std::string parse_alphabet(const Json& vocab, const std::string& where) {
  if (!vocab.is_object() || vocab.empty()) {
    reject_file(where, "\"model.vocab\" is {}, expected an object with a token or more",
                vocab.is_object() ? "empty" : describe_type(vocab));
  }
  std::string alphabet(vocab.size(), '\0');
  std::vector<bool> taken(vocab.size());
  for (const auto& [symbol, id] : vocab.items()) {
    const int byte = byte_of(symbol);
    if (byte < 0) refuse(where, "token {} is not one byte", brief(symbol));
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= vocab.size()) {
      reject_file(where, "token {} has the id {}, expected a whole number from 0 to {}",
                  brief(symbol), brief(id), vocab.size() - 1);
    }
    const auto place = id.get<size_t>();
    if (taken[place]) reject_file(where, "two tokens have the id {}", place);
    taken[place] = true;
    alphabet[place] = char(byte);
  }
  return alphabet;
}

std::string all_bytes() {
  std::string bytes;
  for (int byte = 0; byte < kByteCount; ++byte) bytes += char(byte);
  return bytes;
}

}  // namespace

ByteTokenizer::ByteTokenizer() : ByteTokenizer(all_bytes()) {}

ByteTokenizer::ByteTokenizer(std::string_view alphabet)
    : alphabet_(alphabet), id_of_(kByteCount, -1) {
  for (size_t id = 0; id < alphabet_.size(); ++id) {
    int32_t& slot = id_of_[uint8_t(alphabet_[id])];
    FF_CHECK(slot < 0);
    slot = int32_t(id);
  }
}

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = uint8_t(text[i]);
    tokens[i] = id_of_[byte];
    if (tokens[i] < 0) {
      fail(ErrorCode::kInvalidArgument,
           "the text has '{}' (byte 0x{:02X}) at offset {}, which the vocabulary of {} bytes lacks",
           text[i], byte, i, alphabet_.size());
    }
  }
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text(tokens.size(), '\0');
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size()) {
      fail(ErrorCode::kInvalidArgument, "token {} at position {}, expected 0 to {}", tokens[i], i,
           vocab_size() - 1);
    }
    text[i] = alphabet_[size_t(tokens[i])];
  }
  return text;
}

std::string ByteTokenizer::to_json() const {
  const OrderedJson byte_level = {{"type", "ByteLevel"},
                                  {"add_prefix_space", false},
                                  {"trim_offsets", true},
                                  {"use_regex", false}};
  OrderedJson vocab = OrderedJson::object();
  for (size_t id = 0; id < alphabet_.size(); ++id) {
    vocab[byte_symbols()[uint8_t(alphabet_[id])]] = id;
  }
  OrderedJson json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = OrderedJson::array();
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = byte_level;
  json["post_processor"] = nullptr;
  json["decoder"] = byte_level;
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", false},
                   {"vocab", std::move(vocab)},
                   {"merges", OrderedJson::array()}};
  return to_text(json, 2) + "\n";
}

std::unique_ptr<Tokenizer> parse_tokenizer(const std::string& json_text, const std::string& where) {
  const Json root = parse_json(json_text, where, ErrorCode::kBadCheckpoint);
  if (!root.is_object()) reject_file(where, "holds {}, expected an object", describe_type(root));
  if (member(root, "model").is_null()) reject_file(where, "\"model\" is missing");
  const std::string model_type = type_of(root, "model", where);
  if (model_type != "BPE") refuse(where, "its model is {}", model_type);
  const Json& merges = member(root["model"], "merges");
  if (!merges.is_array()) {
    reject_file(where, "\"model.merges\" is {}, expected an array", describe_type(merges));
  }
  if (!merges.empty()) refuse(where, "has {} merges", grouped(merges.size()));
  refuse_more_than_bytes(root, where);
  return std::make_unique<ByteTokenizer>(parse_alphabet(member(root["model"], "vocab"), where));
}

std::unique_ptr<Tokenizer> read_tokenizer(const std::filesystem::path& path) {
  return parse_tokenizer(read_text_file(path), path.string());
}

}  // namespace freeformer
