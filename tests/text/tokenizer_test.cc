#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "expect_error.h"
#include "temporary_folder.h"

namespace freeformer {
namespace {

using Tokens = std::vector<int32_t>;

std::string all_bytes() {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += char(byte);
  return bytes;
}

// tokenizer.json of the alphabet "ab", with `value` (JSON) in the place `pointer`.
std::string edited(const std::string& pointer, const std::string& value) {
  Json json = Json::parse(ByteTokenizer("ab").to_json());
  json[Json::json_pointer(pointer)] = Json::parse(value);
  return json.dump();
}

std::string without(const std::string& part, const std::string& key) {
  Json json = Json::parse(ByteTokenizer("ab").to_json());
  json[Json::json_pointer(part)].erase(key);
  return json.dump();
}

TEST(ByteTokenizer, GivesEveryByteItsOwnId) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.vocab_size(), 256);
  Tokens expected;
  for (int id = 0; id < 256; ++id) expected.push_back(id);
  EXPECT_EQ(tokenizer.encode(all_bytes()), expected);
  EXPECT_EQ(tokenizer.decode(expected), all_bytes());
}

TEST(ByteTokenizer, NumbersItsAlphabetInOrder) {
  const ByteTokenizer tokenizer("zA\xFF");
  EXPECT_EQ(tokenizer.vocab_size(), 3);
  EXPECT_EQ(tokenizer.encode("A\xFFzz"), (Tokens{1, 2, 0, 0}));
  EXPECT_EQ(tokenizer.decode(Tokens{2, 1, 0}),
            "\xFF"
            "Az");
  EXPECT_EQ(tokenizer.encode(""), Tokens{});
  EXPECT_EQ(tokenizer.decode({}), "");
}

TEST(ByteTokenizer, RefusesTextThatItsAlphabetCannotSay) {
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kInvalidArgument,
      "the text has 'h' (byte 0x68) at offset 2, which the vocabulary of 3 bytes lacks",
      ByteTokenizer("xyz").encode("xyhx"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "(byte 0xE9) at offset 0",
                          ByteTokenizer("xyz").encode("\xE9"));
}

TEST(ByteTokenizer, RefusesUnknownIds) {
  const ByteTokenizer tokenizer("xyz");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "token 3 at position 1, expected 0 to 2",
                          tokenizer.decode(Tokens{2, 3}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "token -1 at position 0",
                          tokenizer.decode(Tokens{-1}));
}

TEST(ByteTokenizer, HasNoByteTwice) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", ByteTokenizer("xyx"));
}

TEST(TokenizerJson, IsAByteLevelBpeWithoutMerges) {
  EXPECT_EQ(ByteTokenizer("b \xFF").to_json(), R"({
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [],
  "normalizer": null,
  "pre_tokenizer": {
    "type": "ByteLevel",
    "add_prefix_space": false,
    "trim_offsets": true,
    "use_regex": false
  },
  "post_processor": null,
  "decoder": {
    "type": "ByteLevel",
    "add_prefix_space": false,
    "trim_offsets": true,
    "use_regex": false
  },
  "model": {
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": false,
    "vocab": {
      "b": 0,
      "Ġ": 1,
      "ÿ": 2
    },
    "merges": []
  }
}
)");
}

TEST(TokenizerJson, SpellsBytesAsGpt2Does) {
  const Json vocab = Json::parse(ByteTokenizer().to_json())["model"]["vocab"];
  ASSERT_EQ(vocab.size(), 256u);
  const std::vector<std::pair<std::string, int>> expected = {
      {"Ā", 0x00}, {"Ċ", '\n'}, {"Ġ", ' '},  {"!", '!'},  {"~", '~'},  {"ġ", 0x7F}, {"Ģ", 0x80},
      {"ł", 0xA0}, {"¡", 0xA1}, {"¬", 0xAC}, {"Ń", 0xAD}, {"®", 0xAE}, {"ÿ", 0xFF}};
  for (const auto& [symbol, byte] : expected) EXPECT_EQ(vocab.value(symbol, -1), byte) << symbol;
}

TEST(TokenizerJson, ReadsBackAsItWasWritten) {
  const std::string every = all_bytes();
  for (const std::string& alphabet :
       {every, std::string(every.rbegin(), every.rend()), std::string("ba\0 \xC3", 5)}) {
    const std::string json = ByteTokenizer(alphabet).to_json();
    const auto tokenizer = parse_tokenizer(json, "t");
    EXPECT_EQ(tokenizer->to_json(), json);
    Tokens ids(alphabet.size());
    for (size_t id = 0; id < ids.size(); ++id) ids[id] = int32_t(id);
    EXPECT_EQ(tokenizer->decode(ids), alphabet);
  }
}

TEST(TokenizerJson, ReadsWhatDiffersOnlyInName) {
  for (const std::string& json :
       {edited("/pre_tokenizer/use_regex", "true"), edited("/pre_tokenizer/trim_offsets", "false"),
        edited("/post_processor", R"({"type": "ByteLevel", "trim_offsets": false})"),
        edited("/model/end_of_word_suffix", "\"\""), edited("/truncation", R"({"max_length": 5})"),
        without("", "added_tokens"), without("", "normalizer"), without("/model", "unk_token"),
        edited("/comment", "\"of nobody's concern\"")}) {
    EXPECT_EQ(parse_tokenizer(json, "t")->encode("abba"), (Tokens{0, 1, 1, 0})) << json;
  }
  EXPECT_EQ(
      parse_tokenizer(edited("/model/vocab", R"({"x": 2, "a": 1, "Ġ": 0})"), "t")->encode("a x"),
      (Tokens{1, 0, 2}));
}

TEST(TokenizerJson, RefusesOtherTokenizers) {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {edited("/model/type", "\"Unigram\""), "its model is Unigram; this version reads byte-level"},
      {edited("/model/merges", R"(["a b"])"), "has 1 merges; this version reads byte-level BPE"},
      {edited("/normalizer", R"({"type": "NFC"})"), "has a normalizer (NFC)"},
      {edited("/pre_tokenizer", "null"), "\"pre_tokenizer\" is null"},
      {edited("/pre_tokenizer/type", "\"Whitespace\""), "\"pre_tokenizer\" is Whitespace"},
      {edited("/pre_tokenizer/add_prefix_space", "true"), "add_prefix_space\" is true, not false"},
      {without("/pre_tokenizer", "add_prefix_space"), "add_prefix_space\" is null, not false"},
      {edited("/post_processor", R"({"type": "TemplateProcessing"})"),
       "has a post-processor (TemplateProcessing)"},
      {edited("/decoder", "null"), "\"decoder\" is null"},
      {edited("/added_tokens", R"([{"id": 2, "content": "<s>"}])"), "has 1 added tokens"},
      {edited("/model/unk_token", "\"a\""), "\"model.unk_token\" is \"a\""},
      {edited("/model/continuing_subword_prefix", "\"##\""), "continuing_subword_prefix\" is"},
      {edited("/model/end_of_word_suffix", "\"</w>\""), "\"model.end_of_word_suffix\" is"},
      {edited("/model/vocab", R"({"a": 0, "ab": 1})"), "token \"ab\" is not one byte"},
      {edited("/model/vocab", R"({"a": 0, "": 1})"), "token \"\" is not one byte"},
      {edited("/model/vocab", R"({"a": 0, " ": 1})"), "token \" \" is not one byte"},
      {edited("/model/vocab", R"({"a": 0, "ń": 1})"), "is not one byte"}};
  for (const auto& [json, words] : refused) {
    EXPECT_FREEFORMER_ERROR(ErrorCode::kUnsupported, words, parse_tokenizer(json, "t"));
    EXPECT_FREEFORMER_ERROR(ErrorCode::kUnsupported, "t: ", parse_tokenizer(json, "t"));
  }
}

TEST(TokenizerJson, CountsMergesForPeople) {
  const auto with_merges = [](size_t count) {
    return edited("/model/merges", Json(std::vector<std::string>(count, "a b")).dump());
  };
  EXPECT_FREEFORMER_ERROR(ErrorCode::kUnsupported, "t: has 999 merges",
                          parse_tokenizer(with_merges(999), "t"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kUnsupported, "t: has 1,000 merges",
                          parse_tokenizer(with_merges(1000), "t"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kUnsupported,
                          "t: has 49,152 merges; this version reads byte-level BPE without merges",
                          parse_tokenizer(with_merges(49152), "t"));
}

TEST(TokenizerJson, RefusesBrokenFiles) {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"", "t is not JSON"},
      {"[]", "t: holds an array, expected an object"},
      {"{}", "t: \"model\" is missing"},
      {R"({"model": 3})", "t: \"model\" is 3, expected an object"},
      {R"({"model": {}})", "t: \"model.type\" is null, expected a string"},
      {edited("/decoder", "[1]"), "\"decoder\" is an array, expected an object"},
      {edited("/model/merges", "{}"), "\"model.merges\" is an object, expected an array"},
      {without("/model", "merges"), "\"model.merges\" is null, expected an array"},
      {edited("/added_tokens", "\"a\""), "\"added_tokens\" is a string, expected an array"},
      {edited("/model/vocab", "[]"), "\"model.vocab\" is an array, expected an object"},
      {edited("/model/vocab", "{}"), "\"model.vocab\" is empty"},
      {without("/model", "vocab"), "\"model.vocab\" is null"},
      {edited("/model/vocab/b", "2"), "token \"b\" has the id 2, expected a whole number from 0"},
      {edited("/model/vocab/b", "-1"), "token \"b\" has the id -1"},
      {edited("/model/vocab/b", "0.5"), "token \"b\" has the id 0.5"},
      {edited("/model/vocab/b", "18446744073709551615"), "has the id 18446744073709551615"},
      {edited("/model/vocab/b", "\"1\""), "token \"b\" has the id \"1\""},
      {edited("/model/vocab/b", "0"), "two tokens have the id 0"}};
  for (const auto& [json, words] : refused) {
    EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, words, parse_tokenizer(json, "t"));
  }
}

TEST(ReadTokenizer, ReadsAFile) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "tokenizer.json", ByteTokenizer("01").to_json());
  EXPECT_EQ(read_tokenizer(folder.path() / "tokenizer.json")->encode("10"), (Tokens{1, 0}));
}

TEST(ReadTokenizer, NamesTheFile) {
  const TemporaryFolder folder;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "none.json: cannot open: No such file",
                          read_tokenizer(folder.path() / "none.json"));
  write_file_atomically(folder.path() / "broken.json", "{");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "broken.json is not JSON",
                          read_tokenizer(folder.path() / "broken.json"));
}

}  // namespace
}  // namespace freeformer
