#include "data/corpus.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/philox.h"
#include "data/shuffle.h"
#include "text/token_file.h"

namespace freeformer {
namespace {

// A stretch of one file that no row's prediction leaves.
struct Document {
  size_t file;
  uint64_t begin;  // in the file, in tokens
  uint64_t count;  // 1 or more
};
using Documents = std::vector<Document>;

class TokenReader {
 public:
  virtual ~TokenReader() = default;
  virtual void read(uint64_t first, std::span<int32_t> out) const = 0;
};
using Files = std::vector<std::unique_ptr<TokenReader>>;

class ByteReader : public TokenReader {
 public:
  explicit ByteReader(const std::string& path) : file_(path) {}
  void read(uint64_t first, std::span<int32_t> out) const override {
    std::vector<std::byte> bytes(out.size());
    file_.read(first, bytes);
    std::transform(bytes.begin(), bytes.end(), out.begin(),
                   [](std::byte byte) { return int32_t(byte); });
  }

 private:
  RandomAccessFile file_;
};

class TokenFileReader : public TokenReader {
 public:
  explicit TokenFileReader(TokenFile file) : file_(std::move(file)) {}
  void read(uint64_t first, std::span<int32_t> out) const override { file_.read(first, out); }

 private:
  TokenFile file_;
};

// What the settings' paths hold.
struct Collection {
  Files files;
  Documents documents;
  int64_t vocab_size = 0;
  std::string tokenizer;
};

// The stretches between separators, without the empty ones.
void add_documents(std::string_view text, std::string_view separator, size_t file,
                   Documents& documents) {
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t found = separator.empty() ? text.npos : text.find(separator, begin);
    const size_t end = std::min(found, text.size());
    if (end > begin) documents.push_back({file, begin, end - begin});
    begin = end + separator.size();
  }
}

Collection open_texts(const DataSettings& settings) {
  Collection collection;
  collection.vocab_size = ByteTokenizer().vocab_size();
  collection.tokenizer = "byte";
  for (const std::string& path : settings.paths) {
    const MappedFile file(path);  // only while the documents are counted
    const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                                file.bytes().size());
    add_documents(text, settings.separator, collection.files.size(), collection.documents);
    collection.files.push_back(std::make_unique<ByteReader>(path));
  }
  return collection;
}

Collection open_token_files(const DataSettings& settings) {
  Collection collection;
  for (const std::string& path : settings.paths) {
    TokenFile file(path);
    if (collection.files.empty()) {
      collection.tokenizer = file.tokenizer();
    } else if (file.tokenizer() != collection.tokenizer) {
      fail(ErrorCode::kInvalidConfig,
           "data.paths: {} has tokens of \"{}\", but {} has tokens of \"{}\"", path,
           file.tokenizer(), settings.paths.front(), collection.tokenizer);
    }
    collection.vocab_size = std::max(collection.vocab_size, file.vocab_size());
    const std::vector<uint64_t>& begins = file.documents();
    for (size_t i = 0; i < begins.size(); ++i) {
      const uint64_t end = i + 1 < begins.size() ? begins[i + 1] : file.count();
      collection.documents.push_back({collection.files.size(), begins[i], end - begins[i]});
    }
    collection.files.push_back(std::make_unique<TokenFileReader>(std::move(file)));
  }
  return collection;
}

uint64_t token_count(const Documents& documents) {
  uint64_t count = 0;
  for (const Document& document : documents) count += document.count;
  return count;
}

// Takes the last `share` of the tokens out of `documents` and returns it.
Documents split_off(Documents& documents, double share) {
  if (share == 0 || documents.empty()) return {};
  const uint64_t total = token_count(documents);
  const uint64_t kept = total - uint64_t(std::llround(double(total) * share));
  if (documents.size() == 1) {
    const Document whole = documents[0];
    documents.clear();
    if (kept > 0) documents.push_back({whole.file, whole.begin, kept});
    if (kept == total) return {};
    return {{whole.file, whole.begin + kept, total - kept}};
  }
  // The boundary between two documents that is nearest to `kept`.
  size_t best = 1;
  uint64_t best_distance = UINT64_MAX, boundary = 0;
  for (size_t i = 1; i < documents.size(); ++i) {
    boundary += documents[i - 1].count;
    const uint64_t distance = boundary > kept ? boundary - kept : kept - boundary;
    if (distance < best_distance) {
      best = i;
      best_distance = distance;
    }
  }
  const Documents held_out(documents.begin() + ptrdiff_t(best), documents.end());
  documents.resize(best);
  return held_out;
}

// The rows of one side of the split.
class Rows {
 public:
  // `files` must live longer.
  Rows(const Files& files, Documents documents, int64_t context)
      : files_(files), documents_(std::move(documents)), context_(uint64_t(context)) {}
  virtual ~Rows() = default;

  virtual uint64_t count() const = 0;
  // `shift`, below T, moves the grid of packed rows.
  virtual Row row(uint64_t index, uint64_t shift) const = 0;

 protected:
  // T+1 tokens of padding.
  Row padding() const {
    return {std::vector<int32_t>(context_ + 1, 0), std::vector<int32_t>(context_ + 1, -1)};
  }

  // Copies `count` tokens of a document into the row.
  void fill(const Document& document, uint64_t first, uint64_t count, int32_t id, uint64_t at,
            Row& row) const {
    files_[document.file]->read(document.begin + first, std::span(row.tokens).subspan(at, count));
    std::fill_n(row.documents.begin() + ptrdiff_t(at), count, id);
  }

  // A row that is one document says so by saying nothing. Ids ascend, and padding is last.
  static Row finish(Row row) {
    if (row.documents.back() == 0) row.documents.clear();
    return row;
  }

  const Files& files_;
  const Documents documents_;
  const uint64_t context_;
};

class PackedRows : public Rows {
 public:
  PackedRows(const Files& files, Documents documents, int64_t context)
      : Rows(files, std::move(documents), context) {
    for (const Document& document : documents_) ends_.push_back(total_ += document.count);
  }

  uint64_t count() const override {
    return total_ > 0 ? std::max<uint64_t>(1, (total_ - 1) / context_) : 0;
  }

  Row row(uint64_t index, uint64_t shift) const override {
    const uint64_t length = std::min(context_ + 1, total_);
    const uint64_t first = std::min(shift + index * context_, total_ - length);
    size_t i = size_t(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
    Row row = padding();
    int32_t id = 0;
    for (uint64_t at = 0; at < length; ++i, ++id) {
      const Document& document = documents_[i];
      const uint64_t skipped = first + at - (ends_[i] - document.count);
      const uint64_t count = std::min(document.count - skipped, length - at);
      fill(document, skipped, count, id, at, row);
      at += count;
    }
    return finish(std::move(row));
  }

 private:
  uint64_t total_ = 0;
  std::vector<uint64_t> ends_;  // of each document, in the stream
};

class CutRows : public Rows {
 public:
  CutRows(const Files& files, Documents documents, int64_t context)
      : Rows(files, std::move(documents), context) {
    uint64_t pieces = 0;
    for (const Document& document : documents_) {
      // A document of one token predicts nothing and has no piece.
      ends_.push_back(pieces += (document.count - 1 + context_ - 1) / context_);
    }
  }

  uint64_t count() const override { return ends_.empty() ? 0 : ends_.back(); }

  Row row(uint64_t index, uint64_t) const override {
    const size_t i = size_t(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
    const uint64_t piece = index - (i > 0 ? ends_[i - 1] : 0);
    const uint64_t first = piece * context_;
    Row row = padding();
    fill(documents_[i], first, std::min(context_ + 1, documents_[i].count - first), 0, 0, row);
    return finish(std::move(row));
  }

 private:
  std::vector<uint64_t> ends_;  // of each document's pieces among all pieces
};

std::unique_ptr<Rows> make_rows(const DataSettings& settings, const Files& files,
                                Documents documents) {
  if (settings.documents == "cut") {
    return std::make_unique<CutRows>(files, std::move(documents), settings.context);
  }
  return std::make_unique<PackedRows>(files, std::move(documents), settings.context);
}

class Corpus : public DataSource {
 public:
  Corpus(const DataSettings& settings, Collection collection, Documents held_out, uint64_t seed)
      : context_(settings.context),
        vocab_size_(collection.vocab_size),
        knows_tokenizer_(collection.tokenizer == "byte"),
        seed_(seed),
        files_(std::move(collection.files)),
        train_(make_rows(settings, files_, std::move(collection.documents))),
        held_out_(make_rows(settings, files_, std::move(held_out))) {}

  const Tokenizer* tokenizer() const override { return knows_tokenizer_ ? &tokenizer_ : nullptr; }
  int64_t vocab_size() const override { return vocab_size_; }
  int64_t context() const override { return context_; }

  Row train_row(uint64_t index) const override {
    const uint64_t epoch = index / rows_per_epoch();
    const Shuffle shuffle(rows_per_epoch(), seed_, epoch);
    return train_->row(shuffle(index % rows_per_epoch()), grid_shift(epoch));
  }
  uint64_t rows_per_epoch() const override { return train_->count(); }

  uint64_t held_out_count() const override { return held_out_->count(); }
  Row held_out_row(uint64_t index) const override {
    FF_CHECK(index < held_out_count());
    return held_out_->row(index, 0);
  }

 private:
  uint64_t grid_shift(uint64_t epoch) const {
    const RandomSource random(seed_, RandomStream::kData);
    const uint32_t bits = random.block(epoch, 0, data_index(DataUse::kGridShift, 0))[0];
    return scale_bits(bits, uint32_t(context_));
  }

  int64_t context_;
  int64_t vocab_size_;
  ByteTokenizer tokenizer_;
  bool knows_tokenizer_;
  uint64_t seed_;
  Files files_;
  std::unique_ptr<Rows> train_, held_out_;
};

// Tokens that have another of their document before them.
uint64_t predictable_count(const Documents& documents) {
  return token_count(documents) - documents.size();
}

void check_training_part(const DataSettings& settings, const Documents& documents) {
  const uint64_t tokens = token_count(documents);
  if (settings.documents == "packed" && tokens <= uint64_t(settings.context)) {
    fail(ErrorCode::kInvalidConfig,
         "data.paths: {} tokens for training, expected {} or more, a row of data.context = {} and "
         "one: give more text, or a smaller data.context",
         tokens, settings.context + 1, settings.context);
  }
  if (predictable_count(documents) == 0) {
    fail(ErrorCode::kInvalidConfig,
         "data.paths: {} tokens in {} documents for training, expected a document of two tokens "
         "or more: give more text",
         tokens, documents.size());
  }
}

void check_held_out_part(const DataSettings& settings, const Documents& documents) {
  if (settings.held_out == 0 || predictable_count(documents) > 0) return;
  fail(ErrorCode::kInvalidConfig,
       "data.held_out: {} of the tokens of data.paths are {} tokens in {} documents, expected a "
       "document of two tokens or more: give more text, a larger data.held_out, or 0",
       settings.held_out, token_count(documents), documents.size());
}

}  // namespace

std::unique_ptr<DataSource> open_corpus(const DataSettings& settings, uint64_t seed) {
  FF_CHECK(settings.context >= 1 && settings.context <= INT32_MAX);
  Collection collection = settings.kind == "tokens" ? open_token_files(settings)  //
                                                    : open_texts(settings);
  Documents held_out = split_off(collection.documents, settings.held_out);
  check_training_part(settings, collection.documents);
  check_held_out_part(settings, held_out);
  return std::make_unique<Corpus>(settings, std::move(collection), std::move(held_out), seed);
}

}  // namespace freeformer
