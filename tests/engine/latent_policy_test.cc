#include "engine/latent_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/philox.h"
#include "core/shape.h"
#include "expect_error.h"
#include "temporary_folder.h"

namespace freeformer {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

using Codes = std::vector<int32_t>;
using Kind = LatentPolicy::Kind;

LatentPolicy policy_of(Kind kind, uint64_t seed = 0, Codes codes = {}, std::string text = "") {
  LatentPolicy policy;
  policy.kind = kind;
  policy.seed = seed;
  policy.codes = std::move(codes);
  policy.text = std::move(text);
  return policy;
}

// --- The grammar ---------------------------------------------------------------------------------

struct PolicyText {
  std::string text;
  LatentPolicy policy;
};

std::vector<PolicyText> policy_texts() {
  return {
      {"posterior", policy_of(Kind::kPosterior)},
      {"map", policy_of(Kind::kMap)},
      {"prior", policy_of(Kind::kPrior)},
      {"seed:0", policy_of(Kind::kSeed, 0)},
      {"seed:18446744073709551615", policy_of(Kind::kSeed, ~uint64_t{0})},
      {"code:5", policy_of(Kind::kCodes, 0, {5})},
      {"code:0,2147483647,3", policy_of(Kind::kCodes, 0, {0, 2147483647, 3})},
      {"from:a text: with \"colons\", commas,\nlines ",
       policy_of(Kind::kFrom, 0, {}, "a text: with \"colons\", commas,\nlines ")},
      {"from: ", policy_of(Kind::kFrom, 0, {}, " ")},
      {"file:codes:1.json", policy_of(Kind::kFile, 0, {}, "codes:1.json")},
  };
}

TEST(LatentPolicy, IsReadAsItIsWritten) {
  for (const auto& [text, policy] : policy_texts()) {
    SCOPED_TRACE(text);
    EXPECT_EQ(parse_latent_policy(text), policy);
    EXPECT_EQ(to_text(policy), text);
  }
}

TEST(LatentPolicy, IsPosteriorByDefault) {
  EXPECT_EQ(LatentPolicy(), parse_latent_policy("posterior"));
}

TEST(LatentPolicy, KeepsItsTextWhenItIsResolved) {
  EXPECT_EQ(to_text(policy_of(Kind::kFrom, 0, {1, 2}, "abc")), "from:abc");
  EXPECT_EQ(to_text(policy_of(Kind::kFile, 0, {1, 2}, "a.json")), "file:a.json");
}

TEST(LatentPolicy, RefusesWhatItDoesNotKnow) {
  const auto expect_error = [](const std::string& text, const std::string& words) {
    SCOPED_TRACE(text);
    EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, words, parse_latent_policy(text));
  };
  const std::string all =
      "expected posterior, map, prior, seed:N, code:V[,V2,…], from:TEXT or file:PATH";
  expect_error("", "z is \"\", " + all);
  expect_error("random", "z is \"random\", " + all);
  expect_error("Prior", "z is \"Prior\", " + all + "; did you mean \"prior\"?");
  expect_error(" prior", "; did you mean \"prior\"?");
  expect_error("codes:1", "z is \"codes:1\", " + all + "; did you mean \"code\"?");
  expect_error(":5", "z is \":5\", " + all);

  expect_error("prior:3", "z is \"prior:3\", expected prior and nothing after it");
  expect_error("map:", "z is \"map:\", expected map and nothing after it");
  expect_error("posterior:x", "expected posterior and nothing after it");

  expect_error("seed", "z is \"seed\", expected seed:N");
  expect_error("seed:", "z is \"seed:\", expected seed:N");
  expect_error("code", "z is \"code\", expected code:V[,V2,…]");
  expect_error("code:", "z is \"code:\", expected code:V[,V2,…]");
  expect_error("from", "z is \"from\", expected from:TEXT");
  expect_error("from:", "z is \"from:\", expected from:TEXT");
  expect_error("file", "z is \"file\", expected file:PATH");
  expect_error("file:", "z is \"file:\", expected file:PATH");
}

TEST(LatentPolicy, RefusesSeedsThatAreNoWholeNumbers) {
  for (const char* seed : {"x", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "1,2",
                           "18446744073709551616", "99999999999999999999999"}) {
    SCOPED_TRACE(seed);
    EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument,
                            std::string("z is \"seed:") + seed +
                                "\", expected seed:N with N from 0 to 18446744073709551615",
                            parse_latent_policy(std::string("seed:") + seed));
  }
}

TEST(LatentPolicy, RefusesCodesThatAreNoWholeNumbers) {
  const auto expect_error = [](const std::string& codes, int number, const std::string& found) {
    SCOPED_TRACE(codes);
    EXPECT_FREEFORMER_ERROR(
        ErrorCode::kInvalidArgument,
        fmt::format("z is \"code:{}\", expected codes from 0 to 2147483647 with commas between "
                    "them; number {} is \"{}\"",
                    codes, number, found),
        parse_latent_policy("code:" + codes));
  };
  expect_error("x", 1, "x");
  expect_error("-1", 1, "-1");
  expect_error("2147483648", 1, "2147483648");
  expect_error("1.5", 1, "1.5");
  expect_error("1,", 2, "");
  expect_error(",1", 1, "");
  expect_error("1,,2", 2, "");
  expect_error("1, 2", 2, " 2");
  expect_error("1,2,3;4", 3, "3;4");
}

// --- Codes in a file -----------------------------------------------------------------------------

class ReadCodes : public ::testing::Test {
 protected:
  std::string path() const { return folder_.path() / "codes.json"; }
  Codes read(const std::string& text) const {
    std::ofstream(path(), std::ios::binary) << text;
    return read_codes(path());
  }
  void expect_error(const std::string& text, const std::string& words) const {
    SCOPED_TRACE(text);
    EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, path() + words, read(text));
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(ReadCodes, TakesAnArrayOrAnObjectWithOne) {
  EXPECT_THAT(read("[3, 0, 2147483647]\n"), ElementsAre(3, 0, 2147483647));
  EXPECT_THAT(read(R"({"model": "a", "codes": [1, 2], "kl": [0.5, 0.25]})"), ElementsAre(1, 2));
}

TEST_F(ReadCodes, RefusesWhatIsNoArrayOfCodes) {
  const std::string either = ", expected an array of codes or {\"codes\": […]}";
  expect_error("3", ": the document is a whole number" + either);
  expect_error("{\"code\": [1]}", ": the document is an object" + either);
  expect_error("{\"codes\": 1}", ": \"codes\" is a whole number, expected an array of codes");
  expect_error("[]", ": holds no codes, expected at least one");
  expect_error("{\"codes\": []}", ": holds no codes");
  const std::string code = ", expected a code from 0 to 2147483647";
  expect_error("[1, -2]", ": number 2 is -2" + code);
  expect_error("[2147483648]", ": number 1 is 2147483648" + code);
  expect_error("[1, 2, 0.5]", ": number 3 is 0.5" + code);
  expect_error("[\"1\"]", ": number 1 is a string" + code);
  expect_error("[[1]]", ": number 1 is an array" + code);
  expect_error("[true]", ": number 1 is a boolean" + code);
}

TEST_F(ReadCodes, RefusesWhatIsNoJson) {
  expect_error("", " is not JSON: ");
  expect_error("[1, 2", " is not JSON: ");
  expect_error("{\"codes\": [1], \"codes\": [2]}", " has the key 'codes' twice");
}

TEST_F(ReadCodes, RefusesAMissingFile) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, path() + ": cannot open: No such file",
                          read_codes(path()));
}

TEST_F(ReadCodes, RefusesAnAbsurdFile) {
  std::ofstream(path()) << "[1]";
  std::filesystem::resize_file(path(), (64 << 20) + 1);  // a hole: no byte of it is written
  EXPECT_FREEFORMER_ERROR(ErrorCode::kCapacity, path() + ": 67108865 bytes, expected at most",
                          read_codes(path()));
}

// --- What a policy means -------------------------------------------------------------------------

constexpr int kBits = 6;
constexpr uint64_t kSeed = 21, kSequence = 5;

CodePlan plan_of(const std::string& policy, int bits = kBits, uint64_t seed = kSeed,
                 uint64_t sequence = kSequence) {
  return {parse_latent_policy(policy), bits, seed, sequence};
}

// The bits that the uniforms of (seed, sequence, position) give at even odds.
int32_t prior_code(uint64_t seed, uint64_t sequence, uint32_t position, int bits = kBits) {
  std::vector<float> uniforms(static_cast<size_t>(bits));
  RandomSource(seed, RandomStream::kLatent).uniforms(sequence, position, bits, uniforms.data());
  int32_t code = 0;
  for (int h = 0; h < bits; ++h) code += uniforms[size_t(h)] < 0.5F ? 1 << h : 0;
  return code;
}

Codes prior_codes(uint64_t seed, uint64_t sequence, uint32_t first, uint32_t count) {
  Codes codes;
  for (uint32_t i = 0; i < count; ++i) codes.push_back(prior_code(seed, sequence, first + i));
  return codes;
}

TEST(CodePlan, DrawsFromThePriorOfTheSequence) {
  for (const char* policy : {"posterior", "map", "prior"}) {
    SCOPED_TRACE(policy);
    EXPECT_EQ(plan_of(policy).codes(3, 40), prior_codes(kSeed, kSequence, 3, 40));
  }
  EXPECT_EQ(plan_of("prior").code(7), plan_of("prior").codes(0, 8).back()) << "whatever the batch";
  EXPECT_NE(plan_of("prior", kBits, kSeed, 6).codes(0, 40), plan_of("prior").codes(0, 40));
  EXPECT_NE(plan_of("prior", kBits, 22).codes(0, 40), plan_of("prior").codes(0, 40));
}

TEST(CodePlan, EveryCodeOfThePriorIsEquallyLikely) {
  std::vector<int> counts(8);
  for (const int32_t code : plan_of("prior", 3).codes(0, 8000)) ++counts[size_t(code)];
  double statistic = 0;
  for (const int count : counts) statistic += (count - 1000.0) * (count - 1000.0) / 1000;
  EXPECT_LT(statistic, 24.3);  // once in a thousand for seven degrees of freedom
}

TEST(CodePlan, SequencesThatShareASeedShareTheirCodes) {
  const Codes codes = plan_of("seed:9").codes(0, 40);
  EXPECT_EQ(codes, prior_codes(9, 0, 0, 40));
  EXPECT_EQ(plan_of("seed:9", kBits, 1, 2).codes(0, 40), codes);
  EXPECT_NE(plan_of("seed:10").codes(0, 40), codes);
}

TEST(CodePlan, RepeatsTheLastOfTheGivenCodes) {
  EXPECT_THAT(plan_of("code:7").codes(0, 3), ElementsAre(7, 7, 7));
  EXPECT_THAT(plan_of("code:7,0,63").codes(1, 4), ElementsAre(0, 63, 63, 63));
}

TEST(CodePlan, GoesOnWithThePriorAfterTheCodesOfATextOrAFile) {
  for (const Kind kind : {Kind::kFrom, Kind::kFile}) {
    const CodePlan plan(policy_of(kind, 0, {7, 8}, "x"), kBits, kSeed, kSequence);
    EXPECT_THAT(plan.codes(0, 2), ElementsAre(7, 8));
    EXPECT_EQ(plan.codes(2, 20), prior_codes(kSeed, kSequence, 2, 20));
  }
}

TEST(CodePlan, OnlyPosteriorAndMapEncodeThePrompt) {
  EXPECT_TRUE(plan_of("posterior").encodes_prompt());
  EXPECT_TRUE(plan_of("map").encodes_prompt());
  EXPECT_FALSE(plan_of("prior").encodes_prompt());
  EXPECT_FALSE(plan_of("seed:1").encodes_prompt());
  EXPECT_FALSE(plan_of("code:1").encodes_prompt());
  EXPECT_FALSE(CodePlan(policy_of(Kind::kFrom, 0, {1}, "x"), kBits, 0, 0).encodes_prompt());
  EXPECT_FALSE(CodePlan(policy_of(Kind::kFile, 0, {1}, "x"), kBits, 0, 0).encodes_prompt());
}

TEST(CodePlan, SamplesThePosteriorWithTheUniformsOfEachPosition) {
  const std::vector<float> uniforms = plan_of("posterior").uniforms(4, 3);
  std::vector<float> expected(3 * kBits);
  for (uint32_t i = 0; i < 3; ++i) {
    RandomSource(kSeed, RandomStream::kLatent)
        .uniforms(kSequence, 4 + i, kBits, expected.data() + i * kBits);
  }
  EXPECT_EQ(uniforms, expected);
  EXPECT_TRUE(plan_of("posterior").uniforms(4, 0).empty());
}

TEST(CodePlan, TakesTheMostLikelyBitsForMap) {
  EXPECT_EQ(plan_of("map").uniforms(4, 3), std::vector<float>(3 * kBits, 0.5F));
}

TEST(CodePlan, AModelWithoutBitsHasOneCodeAndNoEncoder) {
  const CodePlan plan = plan_of("posterior", 0);
  EXPECT_FALSE(plan.encodes_prompt());
  EXPECT_THAT(plan.codes(0, 5), Each(0));
  EXPECT_TRUE(plan.uniforms(0, 5).empty());
}

TEST(CodePlan, TakesAsManyBitsAsAModelMayHave) {
  EXPECT_EQ(plan_of("prior", kMaxLatentBits).code(3),
            prior_code(kSeed, kSequence, 3, kMaxLatentBits));
  EXPECT_EQ(plan_of("code:1048575", kMaxLatentBits).code(3), 1048575);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "bits", plan_of("prior", kMaxLatentBits + 1));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "bits", plan_of("prior", -1));
}

TEST(CodePlan, RefusesCodesThatTheModelDoesNotHave) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument,
                          "z: number 2 is 64, expected a code from 0 to 63 (6 bits)",
                          plan_of("code:63,64"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument,
                          "a.json: number 1 is 64, expected a code from 0 to 63 (6 bits)",
                          CodePlan(policy_of(Kind::kFile, 0, {64}, "a.json"), kBits, 0, 0));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "z: number 1 is -1",
                          CodePlan(policy_of(Kind::kCodes, 0, {-1}), kBits, 0, 0));
}

TEST(CodePlan, ChecksThatItsPolicyIsResolved) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "codes", plan_of("from:abc"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "codes", plan_of("file:abc"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "codes",
                          CodePlan(policy_of(Kind::kPrior, 0, {1}), kBits, 0, 0));
}

TEST(CodePlan, ChecksItsPositions) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "position", plan_of("code:1").code(-1));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "first", plan_of("map").uniforms(-1, 1));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "count", plan_of("map").uniforms(0, -1));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "count", plan_of("map").codes(0, -1));
}

}  // namespace
}  // namespace freeformer
