// Token files: NAME.bin holds little-endian uint16 or uint32 ids and nothing else; NAME.json beside
// it says what they are:
//
//   {"dtype": "uint16", "count": 1115394, "vocab_size": 256, "tokenizer": "byte",
//    "documents": [0, 5120, …]}
//
// "documents" lists where each document begins (in tokens; ascending, the first is 0; none is
// empty). It may be left out: one document. With tokenizer "byte" the ids are bytes and vocab_size
// is 256; any other name is only compared. Both files are checked against each other when opened;
// the ids are read where they are, never loaded as a whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"

namespace freeformer {

class TokenFile {
 public:
  // `path` is the .bin; another name is refused with kInvalidArgument. Throws kIo, or
  // kBadCheckpoint where the two files disagree: a truncated .bin, an unknown dtype or key,
  // documents out of order, a vocabulary over what the dtype can hold.
  explicit TokenFile(const std::filesystem::path& path);

  uint64_t count() const { return count_; }
  int64_t vocab_size() const { return vocab_size_; }
  const std::string& tokenizer() const { return tokenizer_; }
  const std::vector<uint64_t>& documents() const { return documents_; }

  // Tokens first..first+out.size(). Throws kBadCheckpoint for an id that is not below vocab_size,
  // naming file and place.
  void read(uint64_t first, std::span<int32_t> out) const;

 private:
  std::filesystem::path path_;
  RandomAccessFile file_;
  uint64_t count_ = 0;
  int64_t vocab_size_ = 0;
  int bytes_per_token_ = 2;
  std::string tokenizer_;
  std::vector<uint64_t> documents_;
};

// Writes both files atomically, the .json last; uint16 where the vocabulary allows. Without
// `documents` the key is left out.
void write_token_file(const std::filesystem::path& path, std::span<const int32_t> tokens,
                      int64_t vocab_size, const std::string& tokenizer,
                      const std::vector<uint64_t>& documents);

}  // namespace freeformer
