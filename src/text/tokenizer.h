// Text to tokens and back. A tokenizer travels with its checkpoint as tokenizer.json, in the format
// of Hugging Face's tokenizers, so that other tools read it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace freeformer {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual int64_t vocab_size() const = 0;
  // Throws kInvalidArgument where the text holds what the vocabulary cannot say.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Bytes: a token may end inside a UTF-8 character. Throws kInvalidArgument for an unknown id.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
  virtual std::string to_json() const = 0;  // the text of tokenizer.json
};

// One byte, one token. As tokenizer.json it is a byte-level BPE without merges.
class ByteTokenizer : public Tokenizer {
 public:
  // All 256 bytes, each its own id.
  ByteTokenizer();
  // These bytes alone; ids in their order. No byte twice.
  explicit ByteTokenizer(std::string_view alphabet);

  int64_t vocab_size() const override { return int64_t(alphabet_.size()); }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> tokens) const override;
  std::string to_json() const override;

 private:
  std::string alphabet_;        // byte of each id
  std::vector<int32_t> id_of_;  // [256], -1: not in the alphabet
};

// Reads a tokenizer.json. This version knows byte-level BPE without merges, of any alphabet in any
// order; another tokenizer is refused with kUnsupported, a broken file with kBadCheckpoint, both in
// one line that says what was found. `where` names the file.
std::unique_ptr<Tokenizer> parse_tokenizer(const std::string& json_text, const std::string& where);
std::unique_ptr<Tokenizer> read_tokenizer(const std::filesystem::path& path);

}  // namespace freeformer
