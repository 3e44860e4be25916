#include "text/token_file.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "expect_error.h"
#include "temporary_folder.h"

namespace freeformer {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<int32_t>;
using Begins = std::vector<uint64_t>;

Tokens read_all(const TokenFile& file) {
  Tokens tokens(file.count());
  file.read(0, tokens);
  return tokens;
}

// A .bin of four uint16 tokens, 1 to 4, with this .json.
class FourTokens {
 public:
  explicit FourTokens(const std::string& json) {
    write_file_atomically(path(), std::string("\1\0\2\0\3\0\4\0", 8));
    write_file_atomically(folder_.path() / "a.json", json);
  }
  fs::path path() const { return folder_.path() / "a.bin"; }

 private:
  TemporaryFolder folder_;
};

TEST(TokenFile, ReadsWhatWasWritten) {
  const TemporaryFolder folder;
  const Tokens tokens = {5, 0, 299, 7, 5};
  write_token_file(folder.path() / "a.bin", tokens, 300, "mine", {0, 2, 3});
  const TokenFile file(folder.path() / "a.bin");
  EXPECT_EQ(file.count(), 5u);
  EXPECT_EQ(file.vocab_size(), 300);
  EXPECT_EQ(file.tokenizer(), "mine");
  EXPECT_EQ(file.documents(), (Begins{0, 2, 3}));
  EXPECT_EQ(read_all(file), tokens);
  Tokens some(2);
  file.read(2, some);
  EXPECT_EQ(some, (Tokens{299, 7}));
}

TEST(TokenFile, IsLittleEndianWithItsDescriptionBeside) {
  const TemporaryFolder folder;
  write_token_file(folder.path() / "a.bin", Tokens{0x0102, 3}, 1000, "mine", {0, 1});
  EXPECT_EQ(read_text_file(folder.path() / "a.bin"), std::string("\x02\x01\x03\x00", 4));
  EXPECT_EQ(read_text_file(folder.path() / "a.json"),
            R"({"dtype":"uint16","count":2,"vocab_size":1000,"tokenizer":"mine","documents":[0,1]})"
            "\n");
  write_token_file(folder.path() / "b.bin", Tokens{0x01020304}, 0x02000000, "mine", {});
  EXPECT_EQ(read_text_file(folder.path() / "b.bin"), "\x04\x03\x02\x01");
  EXPECT_EQ(read_text_file(folder.path() / "b.json"),
            R"({"dtype":"uint32","count":1,"vocab_size":33554432,"tokenizer":"mine"})"
            "\n");
}

TEST(TokenFile, TakesTheNarrowestWidthThatHoldsTheVocabulary) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.bin";
  write_token_file(path, Tokens{65535, 0}, 65536, "mine", {});
  EXPECT_EQ(fs::file_size(path), 4u);
  EXPECT_EQ(read_all(TokenFile(path)), (Tokens{65535, 0}));
  write_token_file(path, Tokens{65536, 0}, 65537, "mine", {});
  EXPECT_EQ(fs::file_size(path), 8u);
  EXPECT_EQ(read_all(TokenFile(path)), (Tokens{65536, 0}));
  write_token_file(path, Tokens{INT32_MAX}, int64_t{1} << 31, "mine", {});
  EXPECT_EQ(read_all(TokenFile(path)), Tokens{INT32_MAX});
}

TEST(TokenFile, IsOneDocumentWhenItDoesNotSay) {
  const TemporaryFolder folder;
  write_token_file(folder.path() / "a.bin", Tokens{1, 2}, 256, "byte", {});
  EXPECT_EQ(TokenFile(folder.path() / "a.bin").documents(), Begins{0});
}

TEST(TokenFile, MayBeEmpty) {
  const TemporaryFolder folder;
  write_token_file(folder.path() / "a.bin", {}, 256, "byte", {});
  const TokenFile file(folder.path() / "a.bin");
  EXPECT_EQ(file.count(), 0u);
  EXPECT_EQ(file.documents(), Begins{});
}

TEST(TokenFile, RefusesFilesThatDisagree) {
  const std::string start = R"({"dtype": "uint16", "count": 4, "vocab_size": 9, "tokenizer": "x")";
  ASSERT_EQ(read_all(TokenFile(FourTokens(start + "}").path())), (Tokens{1, 2, 3, 4}));
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"", "a.json is not JSON"},
      {"[]", "a.json: holds an array, expected an object"},
      {"{}", "a.json: \"dtype\" is missing"},
      {R"({"dtype": "uint8", "count": 4, "vocab_size": 9, "tokenizer": "x"})",
       "a.json: \"dtype\" is \"uint8\", expected \"uint16\" or \"uint32\""},
      {R"({"dtype": 2, "count": 4, "vocab_size": 9, "tokenizer": "x"})",
       "\"dtype\" is a whole number, expected a string"},
      {R"({"dtype": "uint32", "count": 4, "vocab_size": 9, "tokenizer": "x"})",
       "a.bin: 8 bytes, expected 4 tokens of 4 bytes as in "},
      {R"({"dtype": "uint16", "count": 5, "vocab_size": 9, "tokenizer": "x"})",
       "a.bin: 8 bytes, expected 5 tokens of 2 bytes as in "},
      {R"({"dtype": "uint16", "count": 9223372036854775812, "vocab_size": 9, "tokenizer": "x"})",
       "a.bin: 8 bytes, expected 9223372036854775812 tokens"},
      {R"({"dtype": "uint16", "count": -4, "vocab_size": 9, "tokenizer": "x"})",
       "\"count\" is a negative number, expected a whole number"},
      {R"({"dtype": "uint16", "vocab_size": 9, "tokenizer": "x"})", "\"count\" is missing"},
      {R"({"dtype": "uint16", "count": 4, "tokenizer": "x"})", "\"vocab_size\" is missing"},
      {R"({"dtype": "uint16", "count": 4, "vocab_size": 65537, "tokenizer": "x"})",
       "\"vocab_size\" is 65537, expected 1 to 65536 with tokens of 2 bytes"},
      {R"({"dtype": "uint16", "count": 4, "vocab_size": 0, "tokenizer": "x"})",
       "\"vocab_size\" is 0"},
      {R"({"dtype": "uint16", "count": 4, "vocab_size": 9})", "\"tokenizer\" is missing"},
      {R"({"dtype": "uint16", "count": 4, "vocab_size": 9, "tokenizer": "byte"})",
       "\"vocab_size\" is 9, expected 256 with tokenizer \"byte\""},
      {start + R"(, "document": [0]})", "unknown key \"document\"; did you mean \"documents\"?"},
      {start + R"(, "documents": 0})", "\"documents\" is a whole number, expected an array"},
      {start + R"(, "documents": []})", "\"documents\" is empty, expected the first to begin at 0"},
      {start + R"(, "documents": [1]})", "document 0 begins at token 1, expected 0"},
      {start + R"(, "documents": [0, 2, 2]})",
       "document 2 begins at token 2, expected more than 2"},
      {start + R"(, "documents": [0, 3, 1]})", "document 2 begins at token 1"},
      {start + R"(, "documents": [0, -1]})", "document 1 begins at a negative number"},
      {start + R"(, "documents": [0, 4]})",
       "document 1 begins at token 4, expected below \"count\", 4"}};
  for (const auto& [json, words] : refused) {
    const FourTokens files(json);
    EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, words, TokenFile(files.path()));
  }
}

TEST(TokenFile, RefusesATornToken) {
  const FourTokens files(R"({"dtype": "uint16", "count": 3, "vocab_size": 9, "tokenizer": "x"})");
  fs::resize_file(files.path(), 7);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "a.bin: 7 bytes, expected 3 tokens",
                          TokenFile(files.path()));
}

TEST(TokenFile, RefusesIdsOverTheVocabularyWhereItMeetsThem) {
  const FourTokens files(R"({"dtype": "uint16", "count": 4, "vocab_size": 3, "tokenizer": "x"})");
  const TokenFile file(files.path());
  Tokens two(2);
  file.read(0, two);
  EXPECT_EQ(two, (Tokens{1, 2}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint,
                          "a.bin: token 3 at position 2, expected below the vocab_size, 3",
                          file.read(1, two));
}

TEST(TokenFile, IsNotReadBeyondItsEnd) {
  const TemporaryFolder folder;
  write_token_file(folder.path() / "a.bin", Tokens{1, 2}, 9, "x", {});
  const TokenFile file(folder.path() / "a.bin");
  Tokens two(2);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", file.read(1, two));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", file.read(UINT64_MAX, two));
}

TEST(TokenFile, NamesTheFileThatIsMissing) {
  const TemporaryFolder folder;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "a.bin: cannot open: No such file",
                          TokenFile(folder.path() / "a.bin"));
  write_file_atomically(folder.path() / "a.bin", "");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "a.json: cannot open: No such file",
                          TokenFile(folder.path() / "a.bin"));
  write_file_atomically(folder.path() / "a.txt", "");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument,
                          "a.txt: expected a token file, whose name ends in .bin",
                          TokenFile(folder.path() / "a.txt"));
}

TEST(WriteTokenFile, DescribesNothingThatIsNotThere) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / "a.bin");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "a.bin",
                          write_token_file(folder.path() / "a.bin", Tokens{1}, 9, "x", {}));
  EXPECT_FALSE(fs::exists(folder.path() / "a.json"));
}

TEST(WriteTokenFile, WritesNothingThatCouldNotBeRead) {
  const TemporaryFolder folder;
  const auto write = [&](const Tokens& tokens, int64_t vocab_size, const char* tokenizer,
                         const Begins& documents) {
    write_token_file(folder.path() / "a.bin", tokens, vocab_size, tokenizer, documents);
  };
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", write({9}, 9, "x", {}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", write({-1}, 9, "x", {}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", write({1, 2}, 9, "x", {1}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", write({1, 2}, 9, "x", {0, 0}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", write({1, 2}, 9, "x", {0, 2}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", write({1, 2}, 0, "x", {}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", write({1}, (int64_t{1} << 31) + 1, "x", {}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", write({1, 2}, 9, "byte", {}));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

}  // namespace
}  // namespace freeformer
