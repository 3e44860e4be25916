#include "data/corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/file.h"
#include "expect_error.h"
#include "temporary_folder.h"
#include "text/token_file.h"

namespace freeformer {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;
using Begins = std::vector<uint64_t>;

// Files and the settings that read them.
class Corpus {
 public:
  // A token file whose token i is first + i, so that a row says where it is from.
  void add_numbers(int64_t count, const Begins& documents, int32_t first = 0,
                   int64_t vocab_size = 60000, const char* tokenizer = "numbers") {
    Ids tokens(size_t(count), 0);
    std::iota(tokens.begin(), tokens.end(), first);
    settings.kind = "tokens";
    write_token_file(new_file(".bin"), tokens, vocab_size, tokenizer, documents);
  }
  void add_text(const std::string& text) { write_file_atomically(new_file(".txt"), text); }

  std::unique_ptr<DataSource> open(uint64_t seed = 1) const { return open_corpus(settings, seed); }

  DataSettings settings;

 private:
  fs::path new_file(const char* extension) {
    settings.paths.push_back(folder_.path() / (std::to_string(settings.paths.size()) + extension));
    return settings.paths.back();
  }

  TemporaryFolder folder_;
};

std::vector<Row> epoch_of(const DataSource& source, uint64_t epoch) {
  std::vector<Row> rows;
  const uint64_t count = source.rows_per_epoch();
  for (uint64_t i = 0; i < count; ++i) rows.push_back(source.train_row(epoch * count + i));
  return rows;
}

std::vector<Row> held_out_of(const DataSource& source) {
  std::vector<Row> rows;
  for (uint64_t i = 0; i < source.held_out_count(); ++i) rows.push_back(source.held_out_row(i));
  return rows;
}

std::vector<int32_t> first_tokens(const std::vector<Row>& rows) {
  std::vector<int32_t> tokens;
  for (const Row& row : rows) tokens.push_back(row.tokens.front());
  return tokens;
}

Ids numbers(int32_t first, int32_t count) {
  Ids ids(size_t(count), 0);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// The documents of text rows as strings, in order of their text. One row is one document: cut.
std::vector<std::string> texts_of(const std::vector<Row>& rows) {
  std::vector<std::string> texts;
  for (const Row& row : rows) {
    std::string text;
    for (size_t i = 0; i < row.tokens.size(); ++i) {
      if (row.documents.empty() || row.documents[i] == 0) text += char(row.tokens[i]);
    }
    texts.push_back(text);
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

std::vector<std::string> documents_of(const std::vector<std::string>& files,
                                      const std::string& separator) {
  Corpus corpus;
  for (const std::string& file : files) corpus.add_text(file);
  corpus.settings.separator = separator;
  corpus.settings.documents = "cut";
  corpus.settings.context = 50;
  corpus.settings.held_out = 0;
  return texts_of(epoch_of(*corpus.open(), 0));
}

TEST(PackedRows, AreWindowsOfTheStreamOnAShiftedGrid) {
  Corpus corpus;
  corpus.add_numbers(1010, {});
  corpus.settings.context = 10;
  corpus.settings.held_out = 0;
  const auto source = corpus.open();
  EXPECT_EQ(source->rows_per_epoch(), 100u);
  EXPECT_EQ(source->context(), 10);
  std::set<int32_t> shifts;
  for (uint64_t epoch = 0; epoch < 60; ++epoch) {
    const std::vector<Row> rows = epoch_of(*source, epoch);
    for (const Row& row : rows) {
      ASSERT_EQ(row.tokens, numbers(row.tokens[0], 11));
      ASSERT_TRUE(row.documents.empty());
    }
    std::vector<int32_t> begins = first_tokens(rows);
    std::sort(begins.begin(), begins.end());
    const int32_t shift = begins[0];
    shifts.insert(shift);
    for (int32_t i = 0; i < 100; ++i) ASSERT_EQ(begins[size_t(i)], shift + 10 * i);
  }
  // Every shift below T; one is missing after 60 epochs with probability 2 %, were they random.
  EXPECT_EQ(shifts, std::set<int32_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(PackedRows, AreShiftedByAnotherAmountForAnotherSeed) {
  Corpus corpus;
  corpus.add_numbers(20000, {});
  corpus.settings.context = 10000;
  corpus.settings.held_out = 0;
  EXPECT_NE(corpus.open(1)->train_row(0).tokens[0], corpus.open(2)->train_row(0).tokens[0]);
}

TEST(PackedRows, EndWithTheStreamWhenTheShiftPushesThemOver) {
  Corpus corpus;
  corpus.add_numbers(31, {});  // three windows of 11 without a token to spare
  corpus.settings.context = 10;
  corpus.settings.held_out = 0;
  const auto source = corpus.open();
  ASSERT_EQ(source->rows_per_epoch(), 3u);
  std::set<int32_t> shifts;
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    std::vector<int32_t> begins = first_tokens(epoch_of(*source, epoch));
    std::sort(begins.begin(), begins.end());
    shifts.insert(begins[0]);
    EXPECT_EQ(begins, (std::vector<int32_t>{begins[0], begins[0] + 10, 20}));
  }
  EXPECT_GT(shifts.size(), 4u);
}

TEST(PackedRows, FitTheSmallestStream) {
  Corpus corpus;
  corpus.add_numbers(11, {});
  corpus.settings.context = 10;
  corpus.settings.held_out = 0;
  const auto source = corpus.open();
  ASSERT_EQ(source->rows_per_epoch(), 1u);
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(source->train_row(i).tokens, numbers(0, 11));
}

TEST(PackedRows, KnowTheDocumentOfEachToken) {
  Corpus corpus;
  corpus.add_numbers(40, {0, 3, 4, 20});
  corpus.settings.context = 39;
  corpus.settings.held_out = 0;
  Ids expected(40, 3);
  std::fill_n(expected.begin(), 20, 2);
  std::fill_n(expected.begin(), 4, 1);
  std::fill_n(expected.begin(), 3, 0);
  EXPECT_EQ(corpus.open()->train_row(0).tokens, numbers(0, 40));
  EXPECT_EQ(corpus.open()->train_row(0).documents, expected);

  corpus.settings.context = 5;  // rows count documents from 0, and a row in one document is silent
  const auto source = corpus.open();
  for (uint64_t i = 0; i < 100; ++i) {
    const Row row = source->train_row(i);
    const int32_t first = expected[size_t(row.tokens[0])];
    Ids documents;
    for (const int32_t token : row.tokens) documents.push_back(expected[size_t(token)] - first);
    if (documents.back() == 0) documents.clear();
    ASSERT_EQ(row.documents, documents) << row.tokens[0];
  }
}

TEST(PackedRows, RunOnFromFileToFile) {
  Corpus corpus;
  corpus.add_numbers(7, {0, 2});
  corpus.add_numbers(5, {}, 7);
  corpus.settings.context = 11;
  corpus.settings.held_out = 0;
  const Row row = corpus.open()->train_row(0);
  EXPECT_EQ(row.tokens, numbers(0, 12));
  EXPECT_EQ(row.documents, (Ids{0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2}));
}

TEST(CutRows, PredictEveryTokenButADocumentsFirstOnce) {
  const Begins begins = {0, 3, 4, 15, 26, 38, 39};
  Corpus corpus;
  corpus.add_numbers(50, begins);  // of 3, 1, 11, 11, 12, 1 and 11 tokens
  corpus.settings.context = 5;
  corpus.settings.documents = "cut";
  corpus.settings.held_out = 0;
  const auto source = corpus.open();
  EXPECT_EQ(source->rows_per_epoch(), 1u + 0 + 2 + 2 + 3 + 0 + 2);
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::multiset<int32_t> predicted;
    for (const Row& row : epoch_of(*source, epoch)) {
      ASSERT_EQ(row.tokens.size(), 6u);
      size_t length = 6;
      if (!row.documents.empty()) {
        ASSERT_EQ(row.documents.size(), 6u);
        length = size_t(std::count(row.documents.begin(), row.documents.end(), 0));
        ASSERT_GE(length, 2u);
        ASSERT_LT(length, 6u);
      }
      for (size_t i = 0; i < 6; ++i) {
        ASSERT_EQ(row.tokens[i], i < length ? row.tokens[0] + int32_t(i) : 0);
        if (!row.documents.empty()) {
          ASSERT_EQ(row.documents[i], i < length ? 0 : -1);
        }
        if (i > 0 && i < length) predicted.insert(row.tokens[i]);
      }
    }
    std::multiset<int32_t> expected;
    for (int32_t token = 0; token < 50; ++token) {
      if (std::find(begins.begin(), begins.end(), token) == begins.end()) expected.insert(token);
    }
    EXPECT_EQ(predicted, expected);
  }
}

TEST(TrainRows, AreTheSameForTheSameSeedWhateverTheOrderOfAsking) {
  for (const char* documents : {"packed", "cut"}) {
    Corpus corpus;
    corpus.add_numbers(1000, {0, 300, 310, 700});
    corpus.settings.context = 7;
    corpus.settings.documents = documents;
    const auto a = corpus.open(5), b = corpus.open(5);
    for (uint64_t i = 0; i < 400; ++i) {
      const uint64_t index = 399 - i;
      a->train_row(i);
      ASSERT_EQ(a->train_row(index).tokens, b->train_row(index).tokens);
    }
  }
}

TEST(TrainRows, ComeInAnotherOrderWithEveryEpochAndSeed) {
  for (const char* documents : {"packed", "cut"}) {
    Corpus corpus;
    corpus.add_numbers(1000, {});
    corpus.settings.context = 7;
    corpus.settings.documents = documents;
    corpus.settings.held_out = 0;
    const auto order = [&](uint64_t seed, uint64_t epoch) {
      // Which window, whatever the shift.
      std::vector<int32_t> windows = first_tokens(epoch_of(*corpus.open(seed), epoch));
      for (int32_t& window : windows) window /= 7;
      return windows;
    };
    const std::vector<int32_t> first = order(1, 0);
    EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
    EXPECT_NE(order(1, 1), first);
    EXPECT_NE(order(2, 0), first);
  }
}

TEST(HeldOut, IsTheEndOfASingleDocument) {
  Corpus corpus;
  corpus.add_numbers(1000, {});
  corpus.settings.context = 10;
  corpus.settings.held_out = 0.25;
  for (const char* documents : {"packed", "cut"}) {
    corpus.settings.documents = documents;
    const auto source = corpus.open();
    std::set<int32_t> trained;
    for (uint64_t epoch = 0; epoch < 40; ++epoch) {
      for (const Row& row : epoch_of(*source, epoch)) {
        trained.insert(row.tokens.begin(), row.tokens.end());
      }
    }
    EXPECT_EQ(trained.size(), 750u) << documents;
    EXPECT_EQ(*trained.rbegin(), 749) << documents;
    EXPECT_EQ(source->held_out_row(0).tokens, numbers(750, 11)) << documents;
  }
}

TEST(HeldOut, IsAFixedGridInOrder) {
  Corpus corpus;
  corpus.add_numbers(1000, {});
  corpus.settings.context = 10;
  corpus.settings.held_out = 0.1;
  for (const uint64_t seed : {1, 2}) {
    const auto source = corpus.open(seed);
    // 100 tokens are 9 windows of 11 that share their ends; 9 tokens remain and are dropped.
    EXPECT_EQ(first_tokens(held_out_of(*source)),
              (std::vector<int32_t>{900, 910, 920, 930, 940, 950, 960, 970, 980}));
    EXPECT_EQ(source->held_out_row(8).tokens, numbers(980, 11));
    EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", source->held_out_row(9));
  }
  corpus.settings.documents = "cut";
  const std::vector<Row> rows = held_out_of(*corpus.open());
  ASSERT_EQ(rows.size(), 10u);
  EXPECT_EQ(rows[0].tokens, numbers(900, 11));
  EXPECT_EQ(rows[9].tokens, (Ids{990, 991, 992, 993, 994, 995, 996, 997, 998, 999, 0}));
  EXPECT_EQ(rows[9].documents, (Ids{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1}));
}

TEST(HeldOut, IsOnePaddedRowWhenItIsShort) {
  Corpus corpus;
  corpus.add_numbers(100, {});
  corpus.settings.context = 7;
  corpus.settings.held_out = 0.05;
  const std::vector<Row> rows = held_out_of(*corpus.open());
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].tokens, (Ids{95, 96, 97, 98, 99, 0, 0, 0}));
  EXPECT_EQ(rows[0].documents, (Ids{0, 0, 0, 0, 0, -1, -1, -1}));
}

TEST(HeldOut, IsWholeDocumentsWhereThereAreSeveral) {
  const auto first_held_out = [](const Begins& documents, double share) {
    Corpus corpus;
    corpus.add_numbers(100, documents);
    corpus.settings.context = 2;
    corpus.settings.held_out = share;
    const auto source = corpus.open();
    return source->held_out_row(0).tokens[0];
  };
  const Begins documents = {0, 30, 55, 85, 95};
  EXPECT_EQ(first_held_out(documents, 0.06), 95);
  EXPECT_EQ(first_held_out(documents, 0.09), 95);  // the nearest boundary
  EXPECT_EQ(first_held_out(documents, 0.11), 85);
  EXPECT_EQ(first_held_out(documents, 0.5), 55);
  EXPECT_EQ(first_held_out(documents, 0.001), 95);  // at least one document on either side
  EXPECT_EQ(first_held_out(documents, 0.999), 30);
  EXPECT_EQ(first_held_out({0, 20}, 0.1), 20);
}

TEST(HeldOut, MayBeNothing) {
  for (const char* documents : {"packed", "cut"}) {
    Corpus corpus;
    corpus.add_numbers(100, {0, 50});
    corpus.settings.context = 9;
    corpus.settings.held_out = 0;
    corpus.settings.documents = documents;
    EXPECT_EQ(corpus.open()->held_out_count(), 0u);
    EXPECT_EQ(corpus.open()->rows_per_epoch(), documents == std::string("packed") ? 11u : 12u);
  }
}

TEST(Text, IsReadByteByByte) {
  Corpus corpus;
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += char(byte);
  corpus.add_text(text);
  corpus.settings.context = 255;
  corpus.settings.held_out = 0;
  const auto source = corpus.open();
  EXPECT_EQ(source->vocab_size(), 256);
  ASSERT_NE(source->tokenizer(), nullptr);
  EXPECT_EQ(source->tokenizer()->vocab_size(), 256);
  EXPECT_EQ(source->train_row(0).tokens, numbers(0, 256));
  EXPECT_TRUE(source->train_row(0).documents.empty());
}

TEST(Text, IsOneDocumentAFile) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(documents_of({"one\n\ntwo", "", "three"}, ""), (Texts{"one\n\ntwo", "three"}));
}

TEST(Text, IsSplitAtTheSeparator) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(documents_of({"aa--bb--cc"}, "--"), (Texts{"aa", "bb", "cc"}));
  EXPECT_EQ(documents_of({"--aa----bb--", "cc"}, "--"), (Texts{"aa", "bb", "cc"}));
  EXPECT_EQ(documents_of({"aa---bb"}, "--"), (Texts{"-bb", "aa"}));
  EXPECT_EQ(documents_of({"aa-", "-bb"}, "--"), (Texts{"-bb", "aa-"}));
}

TEST(Text, HasNoEmptyDocuments) {
  Corpus corpus;
  corpus.add_text("--aa----bb--");
  corpus.add_text("");
  corpus.add_text("cc");
  corpus.settings.separator = "--";
  corpus.settings.context = 5;
  corpus.settings.held_out = 0;
  EXPECT_EQ(corpus.open()->train_row(0).tokens, (Ids{'a', 'a', 'b', 'b', 'c', 'c'}));
  EXPECT_EQ(corpus.open()->train_row(0).documents, (Ids{0, 0, 1, 1, 2, 2}));
}

TEST(Text, IsMappedHoweverLarge) {
  Corpus corpus;
  corpus.add_text("");
  fs::resize_file(corpus.settings.paths[0], uintmax_t{1} << 40);  // a hole, no blocks on the disk
  corpus.settings.context = 1023;
  corpus.settings.held_out = 0.5;
  const auto source = corpus.open();
  EXPECT_EQ(source->rows_per_epoch(), ((uint64_t{1} << 39) - 1) / 1023);
  EXPECT_EQ(source->held_out_count(), ((uint64_t{1} << 39) - 1) / 1023);
  EXPECT_EQ(source->train_row(12345).tokens, Ids(1024, 0));
  EXPECT_EQ(source->held_out_row(source->held_out_count() - 1).tokens, Ids(1024, 0));
}

TEST(TokenFiles, HaveTheLargestVocabularyAndMaybeATokenizer) {
  Corpus unknown;
  unknown.add_numbers(50, {}, 0, 1000);
  unknown.add_numbers(50, {}, 0, 3000);
  unknown.add_numbers(50, {}, 0, 2000);
  unknown.settings.context = 5;
  EXPECT_EQ(unknown.open()->vocab_size(), 3000);
  EXPECT_EQ(unknown.open()->tokenizer(), nullptr);
  Corpus bytes;
  bytes.add_numbers(50, {}, 0, 256, "byte");
  bytes.settings.context = 5;
  const auto source = bytes.open();
  ASSERT_NE(source->tokenizer(), nullptr);
  EXPECT_EQ(source->tokenizer()->vocab_size(), 256);
}

TEST(TokenFiles, MustAgreeOnTheTokenizer) {
  Corpus corpus;
  corpus.add_numbers(50, {}, 0, 1000, "one");
  corpus.add_numbers(50, {}, 0, 1000, "two");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "1.bin has tokens of \"two\", but ",
                          corpus.open());
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "0.bin has tokens of \"one\"", corpus.open());
}

TEST(OpenCorpus, AFileThatShrinksUnderTheRunIsAnErrorThatNamesIt) {
  for (const bool tokens : {false, true}) {
    Corpus corpus;
    corpus.settings.context = 8;
    if (tokens) {
      corpus.add_numbers(10000, {0});
    } else {
      corpus.add_text(std::string(10000, 'x'));
    }
    const auto source = corpus.open();
    fs::resize_file(corpus.settings.paths[0], 10);
    EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "it must not change", epoch_of(*source, 0));
  }
}

TEST(Fingerprint, ChangesWithTheTextAndItsLength) {
  Corpus corpus;
  corpus.settings.context = 8;
  corpus.add_text(std::string(1000, 'x'));
  const std::string before = fingerprint(*corpus.open());
  EXPECT_EQ(fingerprint(*corpus.open()), before);
  write_file_atomically(corpus.settings.paths[0], std::string(1000, 'y'));
  EXPECT_NE(fingerprint(*corpus.open()), before);
  write_file_atomically(corpus.settings.paths[0], std::string(1100, 'x'));
  EXPECT_NE(fingerprint(*corpus.open()), before);
}

TEST(OpenCorpus, NamesAFileThatIsMissing) {
  Corpus corpus;
  corpus.settings.paths = {"no/such/file"};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "no/such/file: cannot open", corpus.open());
  corpus.settings.kind = "tokens";
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "no/such/file: cannot open", corpus.open());
}

TEST(OpenCorpus, RefusesLessThanARow) {
  Corpus corpus;
  corpus.add_numbers(100, {});
  corpus.settings.context = 90;
  corpus.settings.held_out = 0.1;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig,
                          "data.paths: 90 tokens for training, expected 91 or more, a row of "
                          "data.context = 90 and one: give more text, or a smaller data.context",
                          corpus.open());
  corpus.settings.context = 89;
  EXPECT_EQ(corpus.open()->rows_per_epoch(), 1u);
  Corpus empty;
  empty.add_text("");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "data.paths: 0 tokens for training",
                          empty.open());
}

TEST(OpenCorpus, RefusesWhatPredictsNothing) {
  Corpus corpus;
  corpus.add_numbers(4, {0, 1, 2, 3});
  corpus.settings.held_out = 0;
  for (const char* documents : {"packed", "cut"}) {
    corpus.settings.documents = documents;
    corpus.settings.context = 2;
    EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig,
                            "data.paths: 4 tokens in 4 documents for training", corpus.open());
  }
  Corpus one;
  one.add_numbers(100, {});
  one.settings.context = 5;
  for (const double share : {0.01, 0.001}) {
    one.settings.held_out = share;
    EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "data.held_out: 0.0", one.open());
  }
  one.settings.held_out = 0.999;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "data.paths: 0 tokens for training",
                          one.open());
  one.settings.documents = "cut";
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "data.paths: 0 tokens in 0 documents",
                          one.open());
}

}  // namespace
}  // namespace freeformer
