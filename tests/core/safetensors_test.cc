// The reader refuses every lie a file can tell, each in its own words; the writer's files hold what
// they were given, laid out as the format asks.
#include "core/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "core/json.h"
#include "expect_error.h"
#include "full_disk.h"
#include "temporary_folder.h"

namespace freeformer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWhere = "folder/model.safetensors";

std::string little_endian(uint64_t number) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += char(number >> (8 * i));
  return bytes;
}

// A file of this header and so many bytes of data.
std::string file_of(const std::string& header, size_t data_bytes = 0) {
  return little_endian(header.size()) + header + std::string(data_bytes, '\x5A');
}

// A file of one tensor "t" with these fields and four bytes of data.
std::string tensor_of(const std::string& fields) { return file_of("{\"t\":{" + fields + "}}", 4); }

std::string entry(const std::string& name, uint64_t begin, uint64_t end) {
  return fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name,
                     end - begin, begin, end);
}

SafetensorsHeader parse(const std::string& file) {
  // A copy of its own, so that the sanitizer sees a read beyond its end.
  const std::vector<char> bytes(file.begin(), file.end());
  return parse_safetensors(std::as_bytes(std::span(bytes)), kWhere);
}

std::string refusal_of(const std::string& file) {
  try {
    parse(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string many_tensors_on_one_range() {
  std::string header = "{" + entry("t", 0, 4);
  for (int i = 0; i < 1000; ++i) header += "," + entry("t" + std::to_string(i), 0, 4);
  return file_of(header + "}", 4);
}

std::string deep_header(int levels) {
  return file_of(R"({"__metadata__":)" + std::string(size_t(levels), '[') +
                 std::string(size_t(levels), ']') + "}");
}

// --- Refusals

struct Lie {
  std::string name;
  std::string file;
  std::string words;  // in this case's message and in no other's
};

std::ostream& operator<<(std::ostream& out, const Lie& lie) { return out << lie.words; }

const std::vector<Lie>& lies() {
  static const std::vector<Lie> all = {
      // The header's length.
      {"EmptyFile", "", "not a safetensors file: 0 bytes, expected at least 8"},
      {"SevenBytes", std::string(7, '\0'), "not a safetensors file: 7 bytes, expected at least 8"},
      {"HeaderOverTheLimit", little_endian(100'000'001) + "{}",
       "header of 100000001 bytes, expected at most 100000000"},
      {"HeaderOf2To64", little_endian(UINT64_MAX) + "{}",
       "header of 18446744073709551615 bytes, expected at most 100000000"},
      {"HeaderBeyondTheFile", little_endian(100'000'000) + "{}",
       "truncated: header of 100000000 bytes in a file of 10"},
      {"HeaderOneByteBeyondTheFile", little_endian(3) + "{}",
       "truncated: header of 3 bytes in a file of 10"},
      {"NoHeader", little_endian(0), "the header is empty"},

      // The header's text.
      {"NotUtf8", file_of("{\"\xFF\":1}"), "the header is not UTF-8: bad byte at offset 2"},
      {"OverlongUtf8", file_of("{\"a\xC0\xAF\":1}"),
       "the header is not UTF-8: bad byte at offset 3"},
      {"NotJson", file_of("model"), "invalid literal; last read: 'm'"},
      {"TruncatedJson", file_of("{\"t\":{"), "unexpected end of input; expected string literal"},
      {"GarbageAfterTheJson", file_of("{}x"), "invalid literal; last read: '{}x'"},
      {"SecondDocument", file_of("{}{}"), "unexpected '{'; expected end of input"},
      {"TrailingComma", file_of("{" + entry("t", 0, 4) + ",}", 4), "unexpected '}'"},
      {"NulPadding", file_of(std::string("{}\0\0\0", 5)), "NUL byte at offset 2"},
      {"ByteOrderMark", file_of("\xEF\xBB\xBF{}"), "starts with a byte-order mark"},
      {"NumberOverflow", file_of(R"({"t":1e999})"), "number overflow parsing '1e999'"},
      {"HeaderIsAnArray", file_of("[]"), "the header is an array, expected an object"},
      {"HeaderIsANumber", file_of("1"), "the header is a whole number, expected an object"},
      {"HeaderIsNull", file_of("null"), "the header is null, expected an object"},
      {"DeepNesting", deep_header(200), "the header is nested over 128 levels deep"},

      // Keys that occur twice.
      {"TensorTwice", file_of("{" + entry("t", 0, 4) + "," + entry("t", 4, 8) + "}", 8),
       "the header has the key 't' twice"},
      {"MetadataTwice", file_of(R"({"__metadata__":{},"__metadata__":{}})"),
       "the header has the key '__metadata__' twice"},
      {"MetadataKeyTwice", file_of(R"({"__metadata__":{"a":"1","a":"2"}})"),
       "the header has the key 'a' twice"},
      {"FieldTwice", tensor_of(R"("dtype":"U8","shape":[4],"data_offsets":[0,4],"shape":[4])"),
       "the header has the key 'shape' twice"},

      // A tensor's entry.
      {"EntryIsAString", file_of(R"({"t":"F32"})"), "tensor 't' is a string, expected an object"},
      {"EntryIsNull", file_of(R"({"t":null})"), "tensor 't' is null, expected an object"},
      {"NulInAName", file_of(R"({"a\u0000b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
       "tensor 'a?b' has a NUL in its name"},
      {"NoDtype", tensor_of(R"("shape":[1],"data_offsets":[0,4])"), "tensor 't' has no \"dtype\""},
      {"NoShape", tensor_of(R"("dtype":"F32","data_offsets":[0,4])"),
       "tensor 't' has no \"shape\""},
      {"NoOffsets", tensor_of(R"("dtype":"F32","shape":[1])"),
       "tensor 't' has no \"data_offsets\""},
      {"DtypeIsANumber", tensor_of(R"("dtype":32,"shape":[1],"data_offsets":[0,4])"),
       "\"dtype\" is a whole number, expected a string"},
      {"DtypeIsNull", tensor_of(R"("dtype":null,"shape":[1],"data_offsets":[0,4])"),
       "\"dtype\" is null, expected a string"},
      {"UnknownDtype", tensor_of(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"),
       "unknown dtype 'F33'"},
      {"DtypeInLowerCase", tensor_of(R"("dtype":"f32","shape":[1],"data_offsets":[0,4])"),
       "unknown dtype 'f32'"},
      {"ShapeIsANumber", tensor_of(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"),
       "\"shape\" is a whole number, expected an array"},
      {"NegativeSize", tensor_of(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"),
       "\"shape\" holds a negative number"},
      {"FractionalSize", tensor_of(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"),
       "\"shape\" holds a fractional or oversized number"},
      {"SizeInAString", tensor_of(R"("dtype":"F32","shape":["1"],"data_offsets":[0,4])"),
       "\"shape\" holds a string"},
      {"NestedShape", tensor_of(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"),
       "\"shape\" holds an array"},
      {"OffsetsAreAnObject",
       tensor_of(R"("dtype":"F32","shape":[1],"data_offsets":{"begin":0,"end":4})"),
       "\"data_offsets\" is an object, expected an array"},
      {"OneOffset", tensor_of(R"("dtype":"F32","shape":[1],"data_offsets":[4])"),
       "\"data_offsets\" has 1 numbers, expected 2"},
      {"ThreeOffsets", tensor_of(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"),
       "\"data_offsets\" has 3 numbers, expected 2"},
      {"NegativeOffset", tensor_of(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])"),
       "\"data_offsets\" holds a negative number"},
      {"OffsetOf2To64",
       tensor_of(R"("dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551616])"),
       "\"data_offsets\" holds a fractional or oversized number"},
      {"OffsetIsABoolean", tensor_of(R"("dtype":"F32","shape":[1],"data_offsets":[false,4])"),
       "\"data_offsets\" holds a boolean"},

      // Sizes that do not agree.
      {"EndBeforeBegin", tensor_of(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"),
       "tensor 't': its data ends at 0 before it begins at 4"},
      {"ShapeOverflows",
       tensor_of(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])"),
       "the product of its shape overflows 64 bits"},
      {"SizeInBitsOverflows",  // 2^62 elements of 32 bits: 0 modulo 2^64
       tensor_of(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"),
       "its size in bits overflows 64 bits"},
      {"TooFewBytesForTheShape", tensor_of(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"),
       "data of 4 bytes, expected 8 for its shape in F32"},
      {"TooManyBytesForTheShape", tensor_of(R"("dtype":"U8","shape":[3],"data_offsets":[0,4])"),
       "data of 4 bytes, expected 3 for its shape in U8"},
      {"ScalarWithoutBytes", file_of(R"({"t":{"dtype":"F32","shape":[],"data_offsets":[0,0]}})"),
       "data of 0 bytes, expected 4 for its shape in F32"},
      {"HalfAByte", tensor_of(R"("dtype":"F4","shape":[7],"data_offsets":[0,4])"),
       "its F4 elements do not fill whole bytes"},
      {"SixBitsOver", tensor_of(R"("dtype":"F6_E2M3","shape":[5],"data_offsets":[0,4])"),
       "its F6_E2M3 elements do not fill whole bytes"},
      {"DimensionOver2To63",
       file_of(R"({"t":{"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]}})"),
       "a dimension of 9223372036854775808 is over 2^63-1"},

      // Tensors that do not lie end to end.
      {"FirstTensorNotAtZero", file_of("{" + entry("t", 4, 8) + "}", 8),
       "tensor 't': its data begins at 4, expected 0 (a hole)"},
      {"HoleBetweenTensors", file_of("{" + entry("a", 0, 4) + "," + entry("b", 5, 9) + "}", 9),
       "tensor 'b': its data begins at 5, expected 4 (a hole)"},
      {"Overlap", file_of("{" + entry("a", 0, 4) + "," + entry("b", 3, 7) + "}", 7),
       "tensor 'b': its data begins at 3, expected 4 (an overlap)"},
      {"TwoTensorsOnOneRange", file_of("{" + entry("a", 0, 4) + "," + entry("b", 0, 4) + "}", 4),
       "tensor 'b': its data begins at 0, expected 4 (an overlap)"},
      {"ManyTensorsOnOneRange", many_tensors_on_one_range(),
       "tensor 't0': its data begins at 0, expected 4 (an overlap)"},
      {"EmptyTensorInsideAnother",
       file_of("{" + entry("a", 0, 4) + "," + entry("b", 2, 2) + "}", 4),
       "tensor 'b': its data begins at 2, expected 4 (an overlap)"},
      {"EmptyTensorAtTheEndOfTheWorld", file_of("{" + entry("b", UINT64_MAX, UINT64_MAX) + "}"),
       "begins at 18446744073709551615, expected 0 (a hole)"},
      {"DataCutShort", file_of("{" + entry("t", 0, 4) + "}", 3),
       "truncated: the tensors take 4 bytes, the file has 3"},
      {"BytesAfterTheLastTensor", file_of("{" + entry("t", 0, 4) + "}", 6),
       "2 bytes after the last tensor, expected none"},
      {"BytesWithoutAnyTensor", file_of("{}", 1), "1 bytes after the last tensor, expected none"},

      // Metadata.
      {"MetadataIsAnArray", file_of(R"({"__metadata__":[]})"),
       "\"__metadata__\" is an array, expected an object of strings"},
      {"MetadataHoldsANumber", file_of(R"({"__metadata__":{"step":12}})"),
       "\"__metadata__\": 'step' is a whole number, expected a string"},
      {"MetadataHoldsNull", file_of(R"({"__metadata__":{"step":null}})"),
       "\"__metadata__\": 'step' is null, expected a string"},
      {"TensorNamedMetadata", file_of("{" + entry("__metadata__", 0, 4) + "}", 4),
       "\"__metadata__\": 'data_offsets' is an array, expected a string"},
  };
  return all;
}

class SafetensorsRefuses : public testing::TestWithParam<Lie> {};

TEST_P(SafetensorsRefuses, TheFile) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, GetParam().words, parse(GetParam().file));
  EXPECT_THAT(refusal_of(GetParam().file), testing::StartsWith(std::string(kWhere) + ": "));
}

INSTANTIATE_TEST_SUITE_P(EachLie, SafetensorsRefuses, testing::ValuesIn(lies()),
                         [](const auto& lie) { return lie.param.name; });

TEST(Safetensors, RefusesEachLieInItsOwnWords) {
  for (const Lie& lie : lies()) {
    const std::string message = refusal_of(lie.file);
    for (const Lie& other : lies()) {
      if (&other == &lie) continue;
      EXPECT_THAT(message, testing::Not(testing::HasSubstr(other.words))) << lie.name;
    }
  }
}

TEST(Safetensors, RefusesEveryTruncationOfAValidFile) {
  const std::string file =
      file_of(R"({"__metadata__":{"a":"b"},)" + entry("t", 0, 4) + "," + entry("u", 4, 9) + "}", 9);
  EXPECT_NO_THROW(parse(file));
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(refusal_of(file.substr(0, size)), "") << size;
  }
}

TEST(Safetensors, MessagesShowAStrangeNameSafely) {
  const std::string hostile = R"(\n\u001b[2J\u007f)" + std::string(1'000'000, 'x');
  const std::string message = refusal_of(file_of("{\"" + hostile + "\":1}"));
  EXPECT_THAT(message, testing::HasSubstr("tensor '??[2J?xxx"));
  EXPECT_LT(message.size(), 300u);
  // The cut is between characters: 80 bytes would end inside the 27th of three bytes each.
  std::string euros;
  for (int i = 0; i < 100; ++i) euros += "€";
  EXPECT_THAT(refusal_of(file_of("{\"" + euros + "\":1}")),
              testing::HasSubstr("tensor '" + euros.substr(0, size_t{26 * 3}) + "…' is"));
}

// --- What must be accepted

TEST(Safetensors, AcceptsAFileWithoutTensors) {
  const SafetensorsHeader header = parse(file_of("{}"));
  EXPECT_TRUE(header.tensors.empty());
  EXPECT_TRUE(header.metadata.empty());
  EXPECT_EQ(header.data_start, 10u);
}

TEST(Safetensors, AcceptsAScalar) {
  const auto header = parse(tensor_of(R"("dtype":"F32","shape":[],"data_offsets":[0,4])"));
  ASSERT_EQ(header.tensors.size(), 1u);
  EXPECT_EQ(header.tensors[0].shape, std::vector<int64_t>{});
  EXPECT_EQ(header.tensors[0].element_count(), 1);
}

TEST(Safetensors, AcceptsADimensionOfZero) {
  const auto header =
      parse(file_of(R"({"t":{"dtype":"F32","shape":[2,0,3],"data_offsets":[0,0]}})"));
  ASSERT_EQ(header.tensors.size(), 1u);
  EXPECT_EQ(header.tensors[0].shape, (std::vector<int64_t>{2, 0, 3}));
  EXPECT_EQ(header.tensors[0].element_count(), 0);
}

TEST(Safetensors, CountsNoElementsWhereTheOtherSizesOverflow) {
  const auto header = parse(
      file_of(R"({"t":{"dtype":"U8","shape":[9223372036854775807,2,0],"data_offsets":[0,0]}})"));
  EXPECT_EQ(header.tensors[0].element_count(), 0);
}

TEST(Safetensors, AcceptsEmptyTensorsBetweenOthers) {
  const auto header = parse(file_of("{" + entry("d", 4, 9) + "," + entry("c", 4, 4) + "," +
                                        entry("b", 4, 4) + "," + entry("a", 0, 4) + "}",
                                    9));
  std::string order;
  for (const TensorInfo& tensor : header.tensors) order += tensor.name;
  EXPECT_EQ(order, "abcd");
}

TEST(Safetensors, AcceptsWhitespaceAroundTheHeader) {
  EXPECT_NO_THROW(parse(file_of("{" + entry("t", 0, 4) + "}\r \t\n ", 4)));
  EXPECT_NO_THROW(parse(file_of("\n\t \r{" + entry("t", 0, 4) + "}", 4)));
}

TEST(Safetensors, AcceptsTensorsAndFieldsInAnyOrder) {
  const auto header = parse(file_of(
      R"({"z":{"data_offsets":[0,4],"shape":[2,2],"dtype":"I8"},"__metadata__":{"k":"v"},)" +
          entry("a", 4, 7) + "}",
      7));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "z") << "in the order of their bytes";
  EXPECT_EQ(header.tensors[0].dtype, DType::kI8);
  EXPECT_EQ(header.tensors[0].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(header.tensors[1].name, "a");
  EXPECT_EQ(header.tensors[1].begin, 4u);
  EXPECT_EQ(header.tensors[1].end, 7u);
}

TEST(Safetensors, IgnoresUnknownFieldsOfATensor) {
  EXPECT_NO_THROW(
      parse(tensor_of(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"strides":[1],"x":null)")));
}

TEST(Safetensors, ReadsMetadata) {
  const auto header = parse(file_of(R"({"__metadata__":{"format":"pt","é":"\u0000"}})"));
  EXPECT_EQ(header.metadata,
            (std::map<std::string, std::string>{{"format", "pt"}, {"é", std::string(1, '\0')}}));
  EXPECT_TRUE(parse(file_of(R"({"__metadata__":null})")).metadata.empty());
}

TEST(Safetensors, AcceptsAnyNameThatIsText) {
  const auto header = parse(file_of("{" + entry("", 0, 1) + "," + entry("é/../ 😀", 1, 2) + "}", 2));
  EXPECT_EQ(header.tensors[0].name, "");
  EXPECT_EQ(header.tensors[1].name, "é/../ 😀");
}

TEST(Safetensors, AcceptsNestingUpToTheLimit) {
  // 100 levels inside a field that is not ours to read.
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  EXPECT_NO_THROW(
      parse(tensor_of(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"x":)" + deep)));
}

TEST(Safetensors, AcceptsEveryDtypeOfTheFormat) {
  const std::vector<std::pair<std::string, int>> dtypes = {
      {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64},
  };
  for (const auto& [dtype, bits] : dtypes) {
    const auto header = parse(file_of(
        fmt::format(R"({{"t":{{"dtype":"{}","shape":[2,4],"data_offsets":[0,{}]}}}})", dtype, bits),
        size_t(bits)));
    EXPECT_EQ(name(header.tensors[0].dtype), dtype);
    EXPECT_EQ(bit_size(header.tensors[0].dtype), bits) << dtype;
  }
}

TEST(DescribeShape, ReadsLikeAList) {
  EXPECT_EQ(describe_shape({}), "[]");
  EXPECT_EQ(describe_shape({3}), "[3]");
  EXPECT_EQ(describe_shape({3, 0, 4}), "[3, 0, 4]");
}

// --- Files

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// `count` bytes, different for each seed.
std::vector<std::byte> some_bytes(size_t count, int seed) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = std::byte(i * 7 + size_t(seed) * 31);
  return bytes;
}

// Tensors to write, with the bytes they show.
struct Tensors {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<TensorToWrite> list;

  void add(const std::string& name, DType dtype, std::vector<int64_t> shape) {
    int64_t bits = bit_size(dtype);
    for (const int64_t size : shape) bits *= size;
    bytes.push_back(some_bytes(size_t(bits / 8), int(bytes.size())));
    list.push_back({name, dtype, std::move(shape), bytes.back()});
  }
};

Tensors tensors_of_many_dtypes() {
  Tensors tensors;
  tensors.add("bytes", DType::kU8, {3});
  tensors.add("halves", DType::kBF16, {3, 1});
  tensors.add("b.floats", DType::kF32, {5});
  tensors.add("a.floats", DType::kF32, {1, 2, 3});
  tensors.add("doubles", DType::kF64, {});
  tensors.add("tiny", DType::kF4, {6});
  tensors.add("none", DType::kI64, {0, 4});
  tensors.add("flags", DType::kBool, {1});
  tensors.add("f16 \"quoted\\ é", DType::kF16, {1});
  return tensors;
}

TEST(WriteSafetensors, TheReaderFindsWhatWasWritten) {
  const TemporaryFolder folder;
  const Tensors tensors = tensors_of_many_dtypes();
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"note", "a \"b\"\n"}};
  write_safetensors(folder.path() / "m", tensors.list, metadata);
  const SafetensorsFile file(folder.path() / "m");
  EXPECT_EQ(file.path(), folder.path() / "m");
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.tensors().size(), tensors.list.size());
  for (const TensorToWrite& tensor : tensors.list) {
    const TensorInfo* info = file.find(tensor.name);
    ASSERT_NE(info, nullptr) << tensor.name;
    EXPECT_EQ(info->dtype, tensor.dtype);
    EXPECT_EQ(info->shape, tensor.shape);
    EXPECT_TRUE(std::ranges::equal(file.data(*info), tensor.data)) << tensor.name;
  }
  EXPECT_EQ(file.find("other"), nullptr);
}

TEST(WriteSafetensors, LaysTensorsOutByDtypeWidestFirstThenByName) {
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "m", tensors_of_many_dtypes().list);
  const SafetensorsFile file(folder.path() / "m");
  std::vector<std::string> order;
  for (const TensorInfo& tensor : file.tensors()) {
    // An empty tensor shares its offset with the next, so its place says nothing.
    if (tensor.begin != tensor.end) order.push_back(tensor.name);
  }
  // BF16 comes after F16, U8 after BOOL.
  EXPECT_EQ(order, (std::vector<std::string>{"doubles", "a.floats", "b.floats", "halves",
                                             "f16 \"quoted\\ é", "bytes", "tiny", "flags"}));
}

TEST(WriteSafetensors, AlignsHeaderAndData) {
  // Names of all lengths, so that the header needs every padding from 0 to 7.
  for (size_t length = 1; length <= 8; ++length) {
    const TemporaryFolder folder;
    Tensors tensors = tensors_of_many_dtypes();
    tensors.add(std::string(length, 'n'), DType::kI16, {2});
    write_safetensors(folder.path() / "m", tensors.list);
    const MappedFile file(folder.path() / "m");
    const SafetensorsHeader header = parse_safetensors(file.bytes(), kWhere);
    EXPECT_EQ(header.data_start % 8, 0u);
    EXPECT_EQ(file.bytes()[8], std::byte{'{'}) << "padding goes to the end";
    for (const TensorInfo& tensor : header.tensors) {
      const auto element_bytes = size_t(std::max(1, bit_size(tensor.dtype) / 8));
      EXPECT_EQ((header.data_start + tensor.begin) % element_bytes, 0u) << tensor.name;
    }
  }
}

// Byte for byte what the reference writer gives: keys in this order, no spaces, padded to 8.
TEST(WriteSafetensors, WritesTheReferencesBytes) {
  const TemporaryFolder folder;
  Tensors tensors;
  tensors.add("b", DType::kU8, {1});
  tensors.add("a", DType::kI32, {1, 2});
  write_safetensors(folder.path() / "m", tensors.list);
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("a":{"dtype":"I32","shape":[1,2],"data_offsets":[0,8]},)"
                       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})";
  ASSERT_NE(header.size() % 8, 0u) << "choose a header that needs padding";
  header.resize((header.size() / 8 + 1) * 8, ' ');
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  EXPECT_EQ(read_bytes(folder.path() / "m"), little_endian(header.size()) + header +
                                                 text(tensors.bytes[1]) + text(tensors.bytes[0]));
}

TEST(WriteSafetensors, TheOrderOfTheTensorsGivenDoesNotMatter) {
  const TemporaryFolder folder;
  Tensors tensors = tensors_of_many_dtypes();
  write_safetensors(folder.path() / "a", tensors.list);
  std::reverse(tensors.list.begin(), tensors.list.end());
  write_safetensors(folder.path() / "b", tensors.list);
  EXPECT_EQ(read_bytes(folder.path() / "a"), read_bytes(folder.path() / "b"));
}

TEST(WriteSafetensors, WritesAFileWithoutTensors) {
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "m", {}, {});
  EXPECT_EQ(read_bytes(folder.path() / "m"), little_endian(8) + "{}      ");
  const SafetensorsFile file(folder.path() / "m");
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_TRUE(file.metadata().empty());
}

TEST(WriteSafetensors, WritesWhatAGoldenCaseHolds) {
  const TemporaryFolder folder;
  const SafetensorsFile golden(fs::path(FREEFORMER_GOLDEN_DIR) / "free-h6-tied" /
                               "expected.safetensors");
  std::vector<TensorToWrite> list;
  for (const TensorInfo& tensor : golden.tensors()) {
    list.push_back({tensor.name, tensor.dtype, tensor.shape, golden.data(tensor)});
  }
  write_safetensors(folder.path() / "m", list, golden.metadata());
  const SafetensorsFile copy(folder.path() / "m");
  ASSERT_GT(golden.tensors().size(), 40u);
  EXPECT_EQ(copy.tensors().size(), golden.tensors().size());
  EXPECT_EQ(copy.metadata(), golden.metadata());
  for (const TensorInfo& tensor : golden.tensors()) {
    const TensorInfo* info = copy.find(tensor.name);
    ASSERT_NE(info, nullptr) << tensor.name;
    EXPECT_EQ(info->shape, tensor.shape);
    EXPECT_TRUE(std::ranges::equal(copy.data(*info), golden.data(tensor))) << tensor.name;
  }
}

TEST(WriteSafetensors, ChecksItsCaller) {
  const TemporaryFolder folder;
  const auto bytes = some_bytes(8, 0);
  const auto write = [&](std::vector<TensorToWrite> list) {
    write_safetensors(folder.path() / "m", std::move(list));
  };
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "core/safetensors.cc",
                          write({{"t", DType::kF32, {3}, bytes}}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "core/safetensors.cc",
                          write({{"t", DType::kF4, {15}, bytes}}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "core/safetensors.cc",
                          write({{"t", DType::kF32, {2}, bytes}, {"t", DType::kU8, {8}, bytes}}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "core/safetensors.cc",
                          write({{"__metadata__", DType::kF32, {2}, bytes}}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "core/safetensors.cc",
                          write({{"t", DType::kF32, {0, -1}, {}}}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "core/safetensors.cc",
                          write({{std::string("a\0b", 3), DType::kF32, {2}, bytes}}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "core/safetensors.cc",
                          write({{"\xFF", DType::kF32, {2}, bytes}}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "core/safetensors.cc",
                          write({{"t", DType::kU8, {int64_t{1} << 61}, {}}}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "core/safetensors.cc",
                          write_safetensors(folder.path() / "m", {}, {{"a", "\xFF"}}));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(WriteSafetensors, ReplacesAnOlderFile) {
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "m", tensors_of_many_dtypes().list);
  Tensors other;
  other.add("only", DType::kF32, {2});
  write_safetensors(folder.path() / "m", other.list);
  EXPECT_EQ(SafetensorsFile(folder.path() / "m").tensors().size(), 1u);
}

TEST(WriteSafetensors, KeepsTheOlderFileWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  Tensors old;
  old.add("old", DType::kF32, {2});
  write_safetensors(folder.path() / "m", old.list);
  const std::string before = read_bytes(folder.path() / "m");
  Tensors large;
  large.add("large", DType::kF32, {4096});
  EXPECT_TRUE(
      fails_on_a_full_disk(4096, [&] { write_safetensors(folder.path() / "m", large.list); }));
  EXPECT_EQ(read_bytes(folder.path() / "m"), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1)
      << "a temporary file is left behind";
}

TEST(WriteSafetensors, RefusesAMissingFolder) {
  const TemporaryFolder folder;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "No such file",
                          write_safetensors(folder.path() / "none" / "m", {}));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(SafetensorsFile, RefusesAMissingFile) {
  const TemporaryFolder folder;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo,
                          (folder.path() / "none").string() + ": cannot open: No such file",
                          SafetensorsFile(folder.path() / "none"));
}

TEST(SafetensorsFile, RefusesAFolder) {
  const TemporaryFolder folder;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, folder.path().string() + ": cannot read: Is a directory",
                          SafetensorsFile(folder.path()));
}

TEST(SafetensorsFile, RefusesAnEmptyFile) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "m").close();
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint,
                          (folder.path() / "m").string() + ": not a safetensors file: 0 bytes",
                          SafetensorsFile(folder.path() / "m"));
}

TEST(SafetensorsFile, MovesWithItsTensors) {
  const TemporaryFolder folder;
  const Tensors tensors = tensors_of_many_dtypes();
  write_safetensors(folder.path() / "m", tensors.list);
  SafetensorsFile first(folder.path() / "m");
  const SafetensorsFile moved(std::move(first));
  const TensorInfo* info = moved.find("halves");
  ASSERT_NE(info, nullptr);
  EXPECT_TRUE(std::ranges::equal(moved.data(*info), tensors.list[1].data));
}

}  // namespace
}  // namespace freeformer
