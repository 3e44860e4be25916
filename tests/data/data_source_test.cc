#include "data/data_source.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "data/synthetic.h"
#include "expect_error.h"
#include "temporary_folder.h"
#include "text/token_file.h"

namespace freeformer {
namespace {

// Settings as --set gives them, checked.
DataSettings checked(const std::vector<std::string>& assignments) {
  DataSettings settings;
  Fields fields;
  fields.section("data", [&](Fields& section) { list_fields(section, settings); });
  for (const std::string& assignment : assignments) fields.set("data." + assignment);
  check(fields, "data.", settings);
  return settings;
}

TEST(DataSettings, ReadsEveryField) {
  const DataSettings text = checked({"kind=text", "paths=[\"a\", \"b\"]", "context=32",
                                     "held_out=1/4", "documents=cut", "separator=--"});
  EXPECT_EQ(text.kind, "text");
  EXPECT_EQ(text.paths, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(text.context, 32);
  EXPECT_EQ(text.held_out, 0.25);
  EXPECT_EQ(text.documents, "cut");
  EXPECT_EQ(text.separator, "--");
  EXPECT_EQ(checked({"kind=coin", "coin_flip=0.25"}).coin_flip, 0.25);
  EXPECT_EQ(checked({"kind=letters"}).kind, "letters");
  EXPECT_EQ(checked({"kind=tokens", "paths=a.bin", "documents=packed"}).documents, "packed");
}

TEST(DataSettings, ExplainsEveryField) {
  DataSettings settings;
  Fields fields;
  list_fields(fields, settings);
  EXPECT_EQ(fields.all().size(), 7u);
  for (const Fields::Field& field : fields.all()) EXPECT_GT(field.help.size(), 20u) << field.key;
}

TEST(DataSettings, RefusesValuesOutOfRange) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> refused = {
      {{"paths=a", "context=0"}, "data.context is 0, expected 1 to 16777216"},
      {{"paths=a", "context=16777217"}, "data.context is 16777217"},
      {{"kind=coin", "context=-1"}, "data.context is -1"},
      {{"paths=a", "held_out=-0.1"}, "data.held_out is -0.1, expected 0 or more and less than 1"},
      {{"paths=a", "held_out=1"}, "data.held_out is 1"},
      {{"kind=tokens", "paths=a", "held_out=2"}, "data.held_out is 2"},
      {{"kind=coin", "coin_flip=0.6"}, "data.coin_flip is 0.6, expected 0 to 0.5"},
      {{"kind=coin", "coin_flip=-0.1"}, "data.coin_flip is -0.1"},
      {{"paths=[\"a\", \"\"]"}, "expected names of files, none of them empty"}};
  for (const auto& [assignments, words] : refused) {
    EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, words, checked(assignments));
  }
  for (const char* edge : {"held_out=0", "held_out=0.999", "context=1", "context=16777216"}) {
    EXPECT_NO_THROW(checked({"paths=a", edge})) << edge;
  }
  for (const char* edge : {"coin_flip=0", "coin_flip=0.5"}) {
    EXPECT_NO_THROW(checked({"kind=coin", edge})) << edge;
  }
}

TEST(DataSettings, AsksForFiles) {
  for (const char* kind : {"kind=text", "kind=tokens"}) {
    EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig,
                            "expected a file or more, as in --set data.paths=FILE",
                            checked({kind}));
  }
}

TEST(DataSettings, RefusesWhatHasNoEffect) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> idle = {
      {"letters",
       {"paths=a", "context=9", "held_out=0.2", "documents=cut", "separator=-", "coin_flip=0.2"}},
      {"coin", {"paths=a", "held_out=0.2", "documents=cut", "separator=-"}},
      {"tokens", {"separator=-", "coin_flip=0.2"}},
      {"text", {"coin_flip=0.2"}}};
  for (const auto& [kind, assignments] : idle) {
    for (const std::string& assignment : assignments) {
      std::vector<std::string> all = {"kind=" + kind, assignment};
      if (kind == "text" || kind == "tokens") all.push_back("paths=a");
      EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "data.kind is \"" + kind + "\"",
                              checked(all));
    }
  }
}

TEST(OpenData, OpensEveryKind) {
  DataSettings settings;
  settings.kind = "letters";
  const auto letters = open_data(settings, 3);
  EXPECT_EQ(letters->tokenizer()->decode(letters->train_row(5).tokens), letters_sequence(3, 5));

  settings.kind = "coin";
  settings.context = 17;
  settings.coin_flip = 0.3;
  const auto coin = open_data(settings, 3);
  EXPECT_EQ(coin->tokenizer()->decode(coin->train_row(5).tokens), coin_sequence(3, 5, 18, 0.3));

  const TemporaryFolder folder;
  const std::string text = "a text of some letters";
  write_file_atomically(folder.path() / "a.txt", text);
  settings.kind = "text";
  settings.context = int64_t(text.size()) - 1;
  settings.held_out = 0;
  settings.paths = {folder.path() / "a.txt"};
  const std::vector<int32_t> bytes(text.begin(), text.end());
  EXPECT_EQ(open_data(settings, 3)->train_row(0).tokens, bytes);

  write_token_file(folder.path() / "a.bin", bytes, 200, "mine", {});
  settings.kind = "tokens";
  settings.paths = {folder.path() / "a.bin"};
  EXPECT_EQ(open_data(settings, 3)->vocab_size(), 200);
  EXPECT_EQ(open_data(settings, 3)->train_row(0).tokens, bytes);
}

TEST(HeldOutSequences, AreOfRowsSpreadOverAll) {
  DataSettings settings;
  settings.kind = "letters";
  const auto data = open_data(settings, 3);
  const uint64_t all = data->held_out_count();
  ASSERT_GT(all, 8U);
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t i = 0; i < 4; ++i) expected.push_back(data->held_out_row(i * all / 4).tokens);
  EXPECT_EQ(held_out_sequences(*data, 4), expected);
  EXPECT_EQ(held_out_sequences(*data, 0).size(), all);
  EXPECT_EQ(held_out_sequences(*data, int64_t(all) + 1).size(), all);
}

TEST(SplitDocuments, DocumentsOfARowBecomeSequences) {
  std::vector<std::vector<int32_t>> sequences;
  split_documents({{5, 6, 7, 8, 9, 0}, {0, 0, 1, 2, 2, -1}}, sequences);
  split_documents({{1, 2, 3}, {}}, sequences);
  EXPECT_EQ(sequences, (std::vector<std::vector<int32_t>>{{5, 6}, {8, 9}, {1, 2, 3}}));
}

}  // namespace
}  // namespace freeformer
