#include "core/json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "expect_error.h"

namespace freeformer {
namespace {

Json parse(std::string_view text) { return parse_json(text, "a.json", ErrorCode::kInvalidConfig); }

std::string nested(int levels, const std::string& core = "") {
  return std::string(size_t(levels), '[') + core + std::string(size_t(levels), ']');
}

void expect_refused(std::string_view text, const std::string& words) {
  SCOPED_TRACE(text.substr(0, 60));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, words, parse(text));
}

TEST(ParseJson, ReadsEveryKindOfValue) {
  const Json json = parse(R"( {"a": [1, -2, 2.5, "é\n", true, null], "b": {}} )");
  EXPECT_EQ(json, (Json{{"a", {1, -2, 2.5, "é\n", true, nullptr}}, {"b", Json::object()}}));
  EXPECT_EQ(parse("18446744073709551615").get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(parse("-9223372036854775808").get<int64_t>(), INT64_MIN);
  EXPECT_EQ(parse(R"("\ud83d\ude00")").get<std::string>(), "\xF0\x9F\x98\x80");
}

TEST(ParseJson, TheErrorHasTheCallersCodeAndOpensWithItsPlace) {
  for (const ErrorCode code : {ErrorCode::kBadCheckpoint, ErrorCode::kInvalidArgument}) {
    for (const char* text : {"{", "{\"a\":1,\"a\":2}", "\xFF", "\xEF\xBB\xBF{}"}) {
      try {
        parse_json(text, "dir/model.safetensors: the header", code);
        ADD_FAILURE() << text;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code);
        EXPECT_TRUE(std::string_view(error.what()).starts_with("dir/model.safetensors: the header"))
            << error.what();
      }
    }
  }
}

TEST(ParseJson, RefusesWhatIsNotJson) {
  expect_refused("", "a.json is not JSON: parse error at line 1, column 1");
  expect_refused("   ", "unexpected end of input");
  expect_refused("{\"a\":1", "unexpected end of input");
  expect_refused("{} x", "expected end of input");
  expect_refused("{\n\"a\": 1,\n}", "line 3");
  expect_refused("{'a': 1}", "is not JSON");
  expect_refused("[1, 2,]", "is not JSON");
  expect_refused("[01]", "is not JSON");
  expect_refused("[.5]", "is not JSON");
  expect_refused("NaN", "is not JSON");
  expect_refused("[Infinity]", "is not JSON");
  expect_refused("// note\n{}", "is not JSON");
  expect_refused("\"a\nb\"", "control character");
  expect_refused(R"("\ud800")", "surrogate");
  expect_refused(R"("\x41")", "is not JSON");
}

TEST(ParseJson, MessagesHaveNoTagOfTheParser) {
  try {
    parse("{");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("json.exception"), std::string::npos) << error.what();
  }
}

TEST(ParseJson, RefusesNumbersThatOverflow) {
  expect_refused("[1e999]", "number overflow");
  expect_refused("-1e400", "number overflow");
  EXPECT_EQ(parse("1e-999").get<double>(), 0.0);
}

TEST(ParseJson, RefusesDuplicateKeysAtAnyDepth) {
  expect_refused(R"({"a": 1, "a": 1})", "a.json has the key 'a' twice");
  expect_refused(R"({"x": [{"y": {"b": 1, "c": 2, "b": 3}}]})", "the key 'b' twice");
  expect_refused(R"({"a": {"a": 1}, "b": [], "a": 2})", "the key 'a' twice");
  expect_refused(R"({"é": 1, "\u00e9": 2})", "the key 'é' twice");  // the same key spelt twice
  expect_refused(R"({"": 1, "": 2})", "the key '' twice");
}

TEST(ParseJson, TheSameKeyInDifferentObjectsIsFine) {
  EXPECT_EQ(parse(R"({"a": {"a": [{"a": 1}, {"a": 2}]}, "b": {"a": 3}})")["b"]["a"], 3);
}

TEST(ParseJson, RefusesNulBytes) {
  using std::string_view_literals::operator""sv;
  expect_refused("{}\0"sv, "NUL byte at offset 2");
  expect_refused("{}\0{\"a\":1}"sv, "NUL byte at offset 2");
  expect_refused("\0"sv, "NUL byte at offset 0");
}

TEST(ParseJson, RefusesAByteOrderMark) {
  expect_refused("\xEF\xBB\xBF{}", "starts with a byte-order mark");
}

TEST(ParseJson, RefusesTextThatIsNotUtf8) {
  expect_refused("{\"a\": \"\xC3\"}", "a.json is not UTF-8: bad byte at offset 7");
}

TEST(ParseJson, RefusesAbsurdNesting) {
  EXPECT_NO_THROW(parse(nested(128)));
  EXPECT_NO_THROW(parse(nested(128, "1")));
  expect_refused(nested(129), "a.json is nested over 128 levels deep");
  std::string objects;
  for (int i = 0; i < 200; ++i) objects += "{\"a\":";
  expect_refused(objects, "nested over 128 levels deep");
  // As deep as memory allows: the parser must give up at once, not use up the stack.
  expect_refused(std::string(5'000'000, '['), "nested over 128 levels deep");
}

TEST(ParseJson, TakesTimeInProportionToTheText) {
  std::string objects = "[{}", members = "{\"0\":{}";
  for (int i = 1; i < 200'000; ++i) {
    objects += ",{}";
    members += fmt::format(",\"{}\":{{}}", i);
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(parse(objects + "]").size(), 200'000u);
  EXPECT_EQ(parse(members + "}").size(), 200'000u);
  // About a second under the sanitizers; quadratic work would take minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(ParseJson, RefusesMoreValuesThanTheLimit) {
  EXPECT_EQ(parse_json("[1, {\"a\": 2}]", "a.json", ErrorCode::kIo, 4).size(), 2u);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "a.json holds over 3 values",
                          parse_json("[1, {\"a\": 2}]", "a.json", ErrorCode::kIo, 3));
}

TEST(ParseJson, AMessageIsOneLineWhateverTheText) {
  expect_refused(R"({"a\n\u001b[2J": 1, "a\n\u001b[2J": 2})", "the key 'a??[2J' twice");
  const std::string key(100'000, 'k');
  expect_refused("{\"" + key + "\":1,\"" + key + "\":2}", "kkk…");
}

TEST(FindInvalidUtf8, AcceptsEveryCodePointAtItsShortest) {
  for (unsigned point = 1; point <= 0x10FFFF; ++point) {
    if (point >= 0xD800 && point < 0xE000) continue;
    std::string text;
    if (point < 0x80) {
      text = {char(point)};
    } else if (point < 0x800) {
      text = {char(0xC0 | point >> 6), char(0x80 | (point & 0x3F))};
    } else if (point < 0x10000) {
      text = {char(0xE0 | point >> 12), char(0x80 | (point >> 6 & 0x3F)),
              char(0x80 | (point & 0x3F))};
    } else {
      text = {char(0xF0 | point >> 18), char(0x80 | (point >> 12 & 0x3F)),
              char(0x80 | (point >> 6 & 0x3F)), char(0x80 | (point & 0x3F))};
    }
    ASSERT_EQ(find_invalid_utf8(text), std::string_view::npos) << point;
  }
  EXPECT_EQ(find_invalid_utf8(""), std::string_view::npos);
}

TEST(FindInvalidUtf8, FindsTheFirstBadByte) {
  for (const char* bad : {
           "\x80",              // a continuation without its lead
           "\xBF",              //
           "\xC3",              // cut short
           "\xE2\x82",          //
           "\xF0\x9F\x98",      //
           "\xC3(",             // a lead without its continuation
           "\xE2\x82(",         //
           "\xC0\xAF",          // overlong in two, three and four bytes
           "\xC1\xBF",          //
           "\xE0\x9F\xBF",      //
           "\xF0\x8F\xBF\xBF",  //
           "\xED\xA0\x80",      // the first and the last surrogate
           "\xED\xBF\xBF",      //
           "\xF4\x90\x80\x80",  // beyond U+10FFFF
           "\xF8\x88\x80\x80\x80",
           "\xFE",
           "\xFF",
       }) {
    EXPECT_EQ(find_invalid_utf8(bad), 0u) << bad;
    EXPECT_EQ(find_invalid_utf8(std::string("aé") + bad), 3u) << bad;
    EXPECT_EQ(find_invalid_utf8(std::string("aé") + bad + "z"), 3u) << bad;
  }
}

TEST(ToText, KeepsTheOrderAndReplacesWhatIsNotUtf8) {
  OrderedJson json;
  json["z"] = "é";
  json["a"] = "b\xFF";
  EXPECT_EQ(to_text(json), "{\"z\":\"é\",\"a\":\"b\uFFFD\"}");
  EXPECT_EQ(to_text(json, 1), "{\n \"z\": \"é\",\n \"a\": \"b\uFFFD\"\n}");
}

TEST(DescribeType, TellsTheTypesApart) {
  EXPECT_STREQ(describe_type(parse("null")), "null");
  EXPECT_STREQ(describe_type(parse("{}")), "an object");
  EXPECT_STREQ(describe_type(parse("[]")), "an array");
  EXPECT_STREQ(describe_type(parse("\"1\"")), "a string");
  EXPECT_STREQ(describe_type(parse("true")), "a boolean");
  EXPECT_STREQ(describe_type(parse("1")), "a whole number");
  EXPECT_STREQ(describe_type(parse("-1")), "a negative number");
  EXPECT_STREQ(describe_type(parse("1.5")), "a fractional or oversized number");
  EXPECT_STREQ(describe_type(parse("18446744073709551616")), "a fractional or oversized number");
}

}  // namespace
}  // namespace freeformer
