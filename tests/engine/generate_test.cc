#include "engine/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/philox.h"
#include "engine/bits.h"
#include "expect_error.h"
#include "fake_engine.h"
#include "temporary_folder.h"

namespace freeformer {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;

constexpr int kBits = 3;
constexpr int64_t kVocab = 11, kContext = 32;
constexpr int32_t kEnd = 10;
constexpr const char* kAlphabet = "abcdefghijk";

ModelConfig config_of(int bits) {
  ModelConfig config = fake_config(bits, kVocab, kContext);
  config.eos_token_id = {kEnd};
  return config;
}

GenerateRequest request_of(Tokens prompt, int64_t max_tokens, const std::string& z = "posterior") {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.z = parse_latent_policy(z);
  return request;
}

// One that goes on to its limit.
GenerateRequest endless_request(Tokens prompt, int64_t max_tokens,
                                const std::string& z = "posterior") {
  GenerateRequest request = request_of(std::move(prompt), max_tokens, z);
  request.sampling.logit_bias[kEnd] = -std::numeric_limits<double>::infinity();
  return request;
}

GenerateResult generate_one(Engine& engine, const Tokenizer* tokenizer,
                            const GenerateRequest& request, const GenerateCallback& callback = {}) {
  return generate(engine, tokenizer, std::span(&request, 1), callback).at(0);
}

Tokens tokens_of(const GenerateResult& result) {
  Tokens tokens;
  for (const GeneratedToken& token : result.tokens) tokens.push_back(token.sampled.token);
  return tokens;
}

Codes codes_of(const GenerateResult& result) {
  Codes codes;
  for (const GeneratedToken& token : result.tokens) codes.push_back(token.code);
  return codes;
}

void expect_same(const GenerateResult& found, const GenerateResult& expected) {
  EXPECT_EQ(found.reason, expected.reason);
  EXPECT_EQ(found.text, expected.text);
  EXPECT_EQ(found.prompt_codes, expected.prompt_codes);
  EXPECT_EQ(tokens_of(found), tokens_of(expected));
  EXPECT_EQ(codes_of(found), codes_of(expected));
  ASSERT_EQ(found.tokens.size(), expected.tokens.size());
  for (size_t i = 0; i < found.tokens.size(); ++i) {
    const SampledToken &a = found.tokens[i].sampled, &b = expected.tokens[i].sampled;
    EXPECT_EQ(a.log_probability, b.log_probability);
    ASSERT_EQ(a.top.size(), b.top.size());
    for (size_t k = 0; k < a.top.size(); ++k) {
      EXPECT_EQ(a.top[k].token, b.top[k].token);
      EXPECT_EQ(a.top[k].log_probability, b.top[k].log_probability);
    }
  }
}

// Nine requests of which no two have much in common; every policy is among them, resolved.
std::vector<GenerateRequest> mixed_requests(int bits) {
  std::vector<GenerateRequest> requests = {
      request_of({3}, 1),
      endless_request({1, 2}, 20, "posterior"),
      endless_request({9, 9, 9}, 12, "map"),
      endless_request({0, 5, 2, 7, 1}, 200, "prior"),
      endless_request({4, 4, 8}, 15, "seed:3"),
      endless_request({6}, 9, "code:5,0,7"),
      request_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2}, 16, "from:abcd"),
      endless_request({2, 0, 2, 0}, 10, "file:codes.json"),
      endless_request({7, 3}, 25, "posterior"),
  };
  requests[6].z.codes = {1, 2, 3, 4};
  requests[7].z.codes = {7, 0, 7, 0, 7, 0, 7};
  requests[1].sampling.temperature = 1.5;
  requests[1].logprobs = 3;
  requests[2].sampling.temperature = 0;
  requests[3].sampling.seed = 77;
  requests[4].sampling.repeat_penalty = 1.3;
  requests[4].sampling.frequency_penalty = 0.5;
  requests[5].sampling.top_k = 2;
  requests[5].logprobs = 20;
  requests[8].stop = {"a", "cc", "ef", "hi", "bd"};
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].sequence = i * i;
    if (bits == 0) requests[i].z = {};
  }
  return requests;
}

// --- Alone, in a batch, with and without a cache -------------------------------------------------

class GenerateMixed : public ::testing::TestWithParam<int> {
 protected:
  GenerateMixed() : engine_(config_of(GetParam())), requests_(mixed_requests(GetParam())) {}

  FakeEngine engine_;
  const ByteTokenizer tokenizer_{kAlphabet};
  std::vector<GenerateRequest> requests_;
};

TEST_P(GenerateMixed, EndsForDifferentReasons) {
  std::set<FinishReason> reasons;
  for (const auto& result : generate(engine_, &tokenizer_, requests_)) {
    reasons.insert(result.reason);
  }
  EXPECT_THAT(reasons,
              IsSupersetOf({FinishReason::kLength, FinishReason::kContext, FinishReason::kStop}));
}

TEST_P(GenerateMixed, GivesEachTheSameAloneAsInABatch) {
  std::vector<std::string> streamed(requests_.size());
  const auto together = generate(engine_, &tokenizer_, requests_,
                                 [&](size_t i, const GeneratedToken&, const std::string& text) {
                                   streamed[i] += text;
                                   return true;
                                 });
  ASSERT_EQ(together.size(), requests_.size());
  for (size_t i = 0; i < requests_.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same(together[i], generate_one(engine_, &tokenizer_, requests_[i]));
    EXPECT_EQ(streamed[i], together[i].text);
  }
}

TEST_P(GenerateMixed, GivesTheSameWithoutTheCache) {
  const auto cached = generate(engine_, &tokenizer_, requests_);
  EXPECT_EQ(engine_.prefills.size(), requests_.size());
  const int64_t decode_calls = engine_.decode_calls;
  EXPECT_GT(decode_calls, 0);
  for (GenerateRequest& request : requests_) request.use_cache = false;
  const auto uncached = generate(engine_, &tokenizer_, requests_);
  EXPECT_EQ(engine_.decode_calls, decode_calls);
  for (size_t i = 0; i < requests_.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same(uncached[i], cached[i]);
  }
}

TEST_P(GenerateMixed, CachedAndUncachedStandInOneBatch) {
  const auto cached = generate(engine_, &tokenizer_, requests_);
  for (size_t i = 0; i < requests_.size(); i += 2) requests_[i].use_cache = false;
  const auto mixed = generate(engine_, &tokenizer_, requests_);
  for (size_t i = 0; i < requests_.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same(mixed[i], cached[i]);
  }
}

// The engine scores the finished text in one go: every token was drawn from the distribution that
// its own history and codes give, and reported with its probability there.
TEST_P(GenerateMixed, LogProbabilitiesAreThoseOfTheFinishedText) {
  const auto results = generate(engine_, &tokenizer_, requests_);
  for (size_t i = 0; i < requests_.size(); ++i) {
    SCOPED_TRACE(i);
    Tokens tokens = requests_[i].prompt;
    Codes codes = results[i].prompt_codes;
    for (const GeneratedToken& token : results[i].tokens) {
      if (tokens.size() > requests_[i].prompt.size() && GetParam() > 0) codes.push_back(token.code);
      tokens.push_back(token.sampled.token);
    }
    const auto scores = engine_.score(std::vector<Engine::Score>{{tokens, codes}})[0];
    for (size_t k = 0; k < results[i].tokens.size(); ++k) {
      EXPECT_NEAR(results[i].tokens[k].sampled.log_probability,
                  scores[requests_[i].prompt.size() - 1 + k], 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(FreeAndPlain, GenerateMixed, ::testing::Values(kBits, 0),
                         [](const auto& one) { return one.param > 0 ? "Free" : "Plain"; });

TEST(Generate, OfNothingIsNothing) {
  FakeEngine engine(config_of(kBits));
  EXPECT_THAT(generate(engine, nullptr, {}), IsEmpty());
}

TEST(Generate, APlainModelHasNoCodes) {
  FakeEngine engine(config_of(0));
  const GenerateResult result = generate_one(engine, nullptr, endless_request({1, 2, 3}, 10));
  EXPECT_THAT(result.prompt_codes, IsEmpty());
  EXPECT_THAT(result.tokens, SizeIs(10));
  EXPECT_THAT(codes_of(result), Each(0));
}

// --- Codes ---------------------------------------------------------------------------------------

TEST(GenerateCodes, AreThePlansAtEveryPosition) {
  FakeEngine engine(config_of(kBits));
  for (const GenerateRequest& request : mixed_requests(kBits)) {
    SCOPED_TRACE(to_text(request.z));
    const GenerateResult result = generate_one(engine, nullptr, [&] {
      GenerateRequest without_stop = request;  // a stop needs a tokenizer
      without_stop.stop.clear();
      return without_stop;
    }());
    const CodePlan plan(request.z, kBits, request.sampling.seed, request.sequence);
    const auto P = int64_t(request.prompt.size());
    Codes expected;
    if (plan.encodes_prompt()) {
      const std::vector<std::span<const int32_t>> texts = {request.prompt};
      const std::vector<float> bit_logits = engine.encode(texts)[0];
      for (int64_t t = 0; t < P; ++t) {
        expected.push_back(draw_code(std::span(bit_logits).subspan(size_t(t * kBits), kBits),
                                     plan.uniforms(t, 1)));
      }
    } else {
      expected = plan.codes(0, P);
    }
    EXPECT_EQ(result.prompt_codes, expected);
    // A token comes with the code of the position before it.
    for (size_t i = 0; i < result.tokens.size(); ++i) {
      const int64_t position = P - 1 + int64_t(i);
      EXPECT_EQ(result.tokens[i].code, position < P ? expected.back() : plan.code(position));
    }
  }
}

TEST(GenerateCodes, OfThePromptStayWhenEverythingIsComputedAgain) {
  for (const std::string z : {"posterior", "map"}) {
    SCOPED_TRACE(z);
    FakeEngine engine(config_of(kBits));
    GenerateRequest request = endless_request({1, 2, 3}, 6, z);
    request.use_cache = false;
    const GenerateResult result = generate_one(engine, nullptr, request);
    ASSERT_THAT(engine.prefills, SizeIs(6));
    EXPECT_THAT(engine.prefills[0].uniforms, SizeIs(3 * kBits));
    EXPECT_THAT(result.prompt_codes, SizeIs(3));
    // The encoder would say something else of a prompt that has grown: it is not asked again.
    for (size_t step = 1; step < 6; ++step) {
      const Engine::Prefill& prefill = engine.prefills[step];
      EXPECT_THAT(prefill.uniforms, IsEmpty());
      EXPECT_THAT(prefill.tokens, SizeIs(3 + step));
      ASSERT_THAT(prefill.codes, SizeIs(3 + step));
      EXPECT_EQ(Codes(prefill.codes.begin(), prefill.codes.begin() + 3), result.prompt_codes);
    }
  }
}

TEST(GenerateCodes, SequencesShareThoseOfASeed) {
  FakeEngine engine(config_of(kBits));
  std::vector<GenerateRequest> requests(2, endless_request({1, 2}, 20, "seed:5"));
  requests[1].sequence = 1;
  const auto results = generate(engine, nullptr, requests);
  EXPECT_EQ(results[0].prompt_codes, results[1].prompt_codes);
  EXPECT_EQ(codes_of(results[0]), codes_of(results[1]));
  EXPECT_NE(tokens_of(results[0]), tokens_of(results[1]));
}

TEST(GenerateCodes, SequencesDoNotShareThoseOfThePrior) {
  FakeEngine engine(config_of(kBits));
  for (const std::string z : {"prior", "posterior", "map"}) {
    SCOPED_TRACE(z);
    std::vector<GenerateRequest> requests(2, endless_request({1, 2}, 20, z));
    requests[1].sequence = 1;
    const auto results = generate(engine, nullptr, requests);
    EXPECT_NE(codes_of(results[0]), codes_of(results[1]));
  }
}

// --- Draws ---------------------------------------------------------------------------------------

TEST(GenerateDraws, SameSeedAndSequenceGiveTheSame) {
  FakeEngine engine(config_of(kBits));
  const ByteTokenizer tokenizer(kAlphabet);
  const GenerateRequest request = endless_request({1, 2}, 20);
  const GenerateResult first = generate_one(engine, &tokenizer, request);
  expect_same(generate_one(engine, &tokenizer, request), first);
  // Also beside itself.
  for (const auto& twin : generate(engine, &tokenizer, std::vector(3, request))) {
    expect_same(twin, first);
  }
}

TEST(GenerateDraws, AnotherSeedOrSequenceGivesAnother) {
  FakeEngine engine(config_of(kBits));
  std::set<Tokens> all;
  for (const uint64_t seed : {0, 1}) {
    for (const uint64_t sequence : {0, 1, 2}) {
      GenerateRequest request = endless_request({1, 2}, 20);
      request.sampling.seed = seed;
      request.sequence = sequence;
      all.insert(tokens_of(generate_one(engine, nullptr, request)));
    }
  }
  EXPECT_THAT(all, SizeIs(6));
}

TEST(GenerateDraws, LogprobsAreTheMostLikelyOnesFirst) {
  FakeEngine engine(config_of(kBits));
  GenerateRequest request = endless_request({1, 2}, 8);
  for (const GeneratedToken& token : generate_one(engine, nullptr, request).tokens) {
    EXPECT_THAT(token.sampled.top, IsEmpty());
  }
  request.logprobs = 4;
  for (const GeneratedToken& token : generate_one(engine, nullptr, request).tokens) {
    ASSERT_THAT(token.sampled.top, SizeIs(4));
    for (size_t k = 1; k < 4; ++k) {
      EXPECT_LE(token.sampled.top[k].log_probability, token.sampled.top[k - 1].log_probability);
    }
  }
  request.logprobs = 100;
  for (const GeneratedToken& token : generate_one(engine, nullptr, request).tokens) {
    ASSERT_THAT(token.sampled.top, SizeIs(kVocab));
    double sum = 0;
    for (const TokenProbability& one : token.sampled.top) {
      sum += std::exp(one.log_probability);
      if (one.token == token.sampled.token) {
        EXPECT_EQ(one.log_probability, token.sampled.log_probability);
      }
    }
    EXPECT_NEAR(sum, 1, 1e-9);
  }
}

// --- Where it ends -------------------------------------------------------------------------------

TEST(GenerateEnd, HasAName) {
  EXPECT_STREQ(name(FinishReason::kLength), "length");
  EXPECT_STREQ(name(FinishReason::kEndOfText), "end of text");
  EXPECT_STREQ(name(FinishReason::kStop), "stop");
  EXPECT_STREQ(name(FinishReason::kContext), "context is full");
  EXPECT_STREQ(name(FinishReason::kCancelled), "cancelled");
}

TEST(GenerateEnd, TheEndOfTextTokenIsLeftOut) {
  ModelConfig config = config_of(kBits);
  config.eos_token_id = {kEnd, 7};
  const ByteTokenizer tokenizer(kAlphabet);
  for (const int32_t end : {kEnd, 7}) {
    FakeEngine engine(config);
    engine.script = {0, 1, 2, 3, end, 4};
    Tokens seen;
    const GenerateResult result =
        generate_one(engine, &tokenizer, request_of({0, 1}, 50),
                     [&](size_t, const GeneratedToken& token, const std::string&) {
                       seen.push_back(token.sampled.token);
                       return true;
                     });
    EXPECT_EQ(result.reason, FinishReason::kEndOfText);
    EXPECT_THAT(tokens_of(result), ElementsAre(2, 3));
    EXPECT_EQ(result.text, "cd");
    EXPECT_THAT(seen, ElementsAre(2, 3));
  }
}

TEST(GenerateEnd, AnEndAtOnceLeavesNothing) {
  FakeEngine engine(config_of(kBits));
  engine.script = {0, 0, kEnd};
  const GenerateResult result = generate_one(engine, nullptr, request_of({3, 4}, 50));
  EXPECT_EQ(result.reason, FinishReason::kEndOfText);
  EXPECT_THAT(result.tokens, IsEmpty());
  EXPECT_THAT(result.prompt_codes, SizeIs(2));
}

TEST(GenerateEnd, AnEndOfTextTokenInThePromptEndsNothing) {
  FakeEngine engine(config_of(kBits));
  const GenerateResult result = generate_one(engine, nullptr, endless_request({kEnd, kEnd}, 5));
  EXPECT_EQ(result.reason, FinishReason::kLength);
  EXPECT_THAT(result.tokens, SizeIs(5));
}

TEST(GenerateEnd, TheContextHoldsThePromptAndWhatWasGeneratedButTheLast) {
  // The last token needs no place of its own: nothing is predicted from it.
  for (const bool use_cache : {true, false}) {
    for (const int64_t prompt : {int64_t{1}, kContext - 1, kContext}) {
      SCOPED_TRACE(prompt);
      FakeEngine engine(config_of(kBits));
      GenerateRequest request = endless_request(Tokens(size_t(prompt), 2), 1000);
      request.use_cache = use_cache;
      const GenerateResult result = generate_one(engine, nullptr, request);
      EXPECT_EQ(result.reason, FinishReason::kContext);
      EXPECT_EQ(int64_t(result.tokens.size()), kContext - prompt + 1);
    }
  }
}

TEST(GenerateEnd, ALimitThatFillsTheContextIsALimit) {
  FakeEngine engine(config_of(kBits));
  const GenerateResult result =
      generate_one(engine, nullptr, endless_request(Tokens(kContext - 3, 2), 4));
  EXPECT_EQ(result.reason, FinishReason::kLength);
  EXPECT_THAT(result.tokens, SizeIs(4));
}

TEST(GenerateEnd, TheLimitIsExact) {
  FakeEngine engine(config_of(kBits));
  for (const int64_t limit : {1, 2, 7}) {
    EXPECT_EQ(int64_t(generate_one(engine, nullptr, endless_request({1}, limit)).tokens.size()),
              limit);
  }
}

// --- Stop texts ----------------------------------------------------------------------------------

// Token i+1 is piece i.
class PieceTokenizer : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}
  int64_t vocab_size() const override { return int64_t(pieces_.size()) + 2; }
  std::vector<int32_t> encode(std::string_view) const override { return {}; }
  std::string decode(std::span<const int32_t> tokens) const override {
    std::string text;
    for (const int32_t token : tokens) text += pieces_.at(size_t(token) - 1);
    return text;
  }
  std::string to_json() const override { return "{}"; }

 private:
  std::vector<std::string> pieces_;
};

struct Told {
  GenerateResult result;
  std::vector<std::string> shown;  // what the callback was given so far, after each of its calls
  std::string all_shown() const { return shown.empty() ? "" : shown.back(); }
};

// Generation on a model that says these pieces, a token each, and then its end-of-text token.
Told tell(const std::vector<std::string>& pieces, const std::vector<std::string>& stop,
          int64_t max_tokens = 1000) {
  const auto end = int32_t(pieces.size()) + 1;
  ModelConfig config = fake_config(kBits, end + 1, 64);
  config.eos_token_id = {end};
  FakeEngine engine(config);
  for (int32_t token = 0; token <= end; ++token) engine.script.push_back(token);
  GenerateRequest request = request_of({0}, max_tokens);
  request.stop = stop;
  const PieceTokenizer tokenizer(pieces);
  Told told;
  told.result = generate_one(engine, &tokenizer, request,
                             [&](size_t, const GeneratedToken&, const std::string& text) {
                               told.shown.push_back(told.all_shown() + text);
                               return true;
                             });
  return told;
}

void expect_told(const Told& told, const std::string& text, FinishReason reason, size_t tokens) {
  EXPECT_EQ(told.result.text, text);
  EXPECT_EQ(told.all_shown(), text);
  EXPECT_EQ(told.result.reason, reason) << name(told.result.reason);
  EXPECT_THAT(told.result.tokens, SizeIs(tokens));
}

TEST(GenerateStop, EndsTheTextAndIsCutOff) {
  expect_told(tell({"Hello", " wor", "ld. And", " more"}, {". "}), "Hello world",
              FinishReason::kStop, 3);
  expect_told(tell({"Hello", " world"}, {"Hello"}), "", FinishReason::kStop, 1);
}

TEST(GenerateStop, IsFoundAcrossTokens) {
  expect_told(tell({"one", " two<", "/", "s>", "three"}, {"</s>"}), "one two", FinishReason::kStop,
              4);
  expect_told(tell({"x", "y", "S", "T", "O", "P", "z"}, {"STOP"}), "xy", FinishReason::kStop, 6);
}

TEST(GenerateStop, IsNeverShownNotEvenInPart) {
  const Told told = tell({"a", "S", "T", "O", "P"}, {"STOP"});
  EXPECT_THAT(told.shown, Each(std::string("a")));
}

TEST(GenerateStop, TextThatOnlyBeganLikeOneIsShownOnceItIsKnown) {
  const Told told = tell({"a", "S", "T", "x", "b"}, {"STOP"});
  EXPECT_THAT(told.shown, ElementsAre("a", "a", "a", "aSTx", "aSTxb"));
  expect_told(told, "aSTxb", FinishReason::kEndOfText, 5);
}

TEST(GenerateStop, OfWhatIsHeldBackOnlyWhatMayStillBeOneStaysHidden) {
  const Told told = tell({"a", "a", "a", "b", "a", "b", "c"}, {"aabc"});
  EXPECT_THAT(told.shown, ElementsAre("", "", "a", "a", "aaab", "aaabab", "aaababc"));
}

TEST(GenerateStop, WhatIsHeldBackAtTheEndIsShown) {
  expect_told(tell({"a", "S", "T"}, {"STOP"}), "aST", FinishReason::kEndOfText, 3);
  expect_told(tell({"a", "S", "T", "O", "P"}, {"STOP"}, 3), "aST", FinishReason::kLength, 3);
  const Told full = tell(std::vector<std::string>(80, "S"), {"SX"});
  expect_told(full, std::string(64, 'S'), FinishReason::kContext, 64);
}

TEST(GenerateStop, TheEarliestOfSeveralWins) {
  expect_told(tell({"abcdef"}, {"ef", "cd", "de"}), "ab", FinishReason::kStop, 1);
  expect_told(tell({"abc", "def"}, {"f", "bcde"}), "a", FinishReason::kStop, 2);
}

TEST(GenerateStop, AnotherThatIsCompleteEarlierWins) {
  expect_told(tell({"a", "b", "c", "d"}, {"abcd", "bc"}), "a", FinishReason::kStop, 3);
}

TEST(GenerateStop, InThePromptEndsNothing) {
  const ByteTokenizer tokenizer(kAlphabet);
  FakeEngine engine(config_of(kBits));
  engine.script = {0, 1, 1, 2, kEnd};
  GenerateRequest request = request_of({0, 1}, 10);
  request.stop = {"ab", "abbc"};
  const GenerateResult result = generate_one(engine, &tokenizer, request);
  EXPECT_EQ(result.reason, FinishReason::kEndOfText);
  EXPECT_EQ(result.text, "bc");
}

TEST(GenerateStop, AgreesWithANaiveSearchOnRandomTexts) {
  const RandomSource source(1, RandomStream::kData);
  int stopped = 0;
  for (uint32_t n = 0; n < 300; ++n) {
    uint32_t index = 0;
    const auto random = [&](uint32_t limit) { return source.block(n, 0, index++)[0] % limit; };
    const auto random_text = [&](uint32_t size) {
      std::string text;
      while (text.size() < size) text += random(3) != 0 ? 'a' : 'b';
      return text;
    };
    std::vector<std::string> pieces(1 + random(10)), stops(1 + random(3));
    for (std::string& piece : pieces) piece = random_text(random(4));
    for (std::string& stop : stops) stop = random_text(1 + random(6));
    SCOPED_TRACE(testing::Message()
                 << testing::PrintToString(pieces) << " until " << testing::PrintToString(stops));

    // After each token: the text that no stop can begin in any more.
    std::vector<std::string> shown;
    std::string text;
    FinishReason reason = FinishReason::kEndOfText;
    size_t tokens = 0;
    while (tokens < pieces.size() && reason != FinishReason::kStop) {
      text += pieces[tokens++];
      size_t cut = std::string::npos, hidden = 0;
      for (const std::string& stop : stops) {
        cut = std::min(cut, text.find(stop));
        for (size_t size = 1; size < stop.size(); ++size) {
          if (text.ends_with(stop.substr(0, size))) hidden = std::max(hidden, size);
        }
      }
      if (cut != std::string::npos) {
        text.resize(cut);
        reason = FinishReason::kStop;
        ++stopped;
      } else {
        shown.push_back(text.substr(0, text.size() - hidden));
      }
    }
    const Told told = tell(pieces, stops);
    expect_told(told, text, reason, tokens);
    ASSERT_GE(told.shown.size(), shown.size());
    EXPECT_EQ(std::vector(told.shown.begin(), told.shown.begin() + std::ptrdiff_t(shown.size())),
              shown);
  }
  EXPECT_GT(stopped, 50);
  EXPECT_LT(stopped, 250);
}

// --- The callback --------------------------------------------------------------------------------

TEST(GenerateCallback, GetsEveryTokenOfItsRequestInOrder) {
  FakeEngine engine(config_of(kBits));
  const std::vector<GenerateRequest> requests = {endless_request({1}, 4), endless_request({2}, 9),
                                                 endless_request({3}, 1)};
  std::vector<Tokens> tokens(3);
  std::vector<Codes> codes(3);
  const auto results =
      generate(engine, nullptr, requests,
               [&](size_t i, const GeneratedToken& token, const std::string& text) {
                 EXPECT_EQ(text, "");  // there is no tokenizer
                 tokens.at(i).push_back(token.sampled.token);
                 codes.at(i).push_back(token.code);
                 return true;
               });
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(tokens[i], tokens_of(results[i]));
    EXPECT_EQ(codes[i], codes_of(results[i]));
    EXPECT_EQ(results[i].text, "");
  }
}

TEST(GenerateCallback, FalseCancelsThatRequestAlone) {
  for (const bool use_cache : {true, false}) {
    FakeEngine engine(config_of(kBits));
    const ByteTokenizer tokenizer(kAlphabet);
    std::vector<GenerateRequest> requests = {endless_request({1}, 12), endless_request({2, 3}, 9),
                                             endless_request({3}, 11)};
    for (GenerateRequest& request : requests) request.use_cache = use_cache;
    const auto whole = generate(engine, &tokenizer, requests);
    int calls = 0;
    const auto results = generate(
        engine, &tokenizer, requests,
        [&](size_t i, const GeneratedToken&, const std::string&) { return i != 1 || ++calls < 3; });
    EXPECT_EQ(calls, 3);
    expect_same(results[0], whole[0]);
    expect_same(results[2], whole[2]);
    EXPECT_EQ(results[1].reason, FinishReason::kCancelled);
    EXPECT_EQ(results[1].text, whole[1].text.substr(0, 3));
    EXPECT_THAT(results[1].tokens, SizeIs(3));
  }
}

// --- What it leaves behind -----------------------------------------------------------------------

TEST(GenerateSequences, AreReleasedAfterwards) {
  FakeEngine engine(config_of(kBits));
  const ByteTokenizer tokenizer(kAlphabet);
  generate(engine, &tokenizer, mixed_requests(kBits));
  EXPECT_EQ(engine.open_sequences(), 0);
}

TEST(GenerateSequences, AreReleasedAsSoonAsTheirRequestIsFinished) {
  FakeEngine engine(config_of(kBits));
  const std::vector<GenerateRequest> requests = {endless_request({1}, 2), endless_request({2}, 8)};
  std::vector<int64_t> open;
  generate(engine, nullptr, requests, [&](size_t i, const GeneratedToken&, const std::string&) {
    if (i == 1) open.push_back(engine.open_sequences());
    return true;
  });
  EXPECT_THAT(open, ElementsAre(2, 1, 1, 1, 1, 1, 1, 1));
}

TEST(GenerateSequences, AreReleasedWhenTheCallbackThrows) {
  const ByteTokenizer tokenizer(kAlphabet);
  for (const bool use_cache : {true, false}) {
    for (const int fatal : {1, 2, 9, 10, 15, 25}) {
      SCOPED_TRACE(fatal);
      FakeEngine engine(config_of(kBits));
      std::vector<GenerateRequest> requests = mixed_requests(kBits);
      for (size_t i = 0; i < requests.size(); ++i) {
        requests[i].use_cache = use_cache || i % 3 == 0;
      }
      int calls = 0;
      EXPECT_THROW(generate(engine, &tokenizer, requests,
                            [&](size_t, const GeneratedToken&, const std::string&) {
                              if (++calls == fatal) throw std::runtime_error("no more");
                              return true;
                            }),
                   std::runtime_error);
      EXPECT_EQ(engine.open_sequences(), 0);
    }
  }
}

TEST(GenerateSequences, AreReleasedWhenATokenCannotBeChosen) {
  FakeEngine engine(config_of(kBits));
  std::vector<GenerateRequest> requests(3, endless_request({1}, 5));
  for (int32_t token = 0; token < kVocab; ++token) {
    requests[1].sampling.logit_bias[token] = -std::numeric_limits<double>::infinity();
  }
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "ban all 11 tokens",
                          generate(engine, nullptr, requests));
  EXPECT_EQ(engine.open_sequences(), 0);
}

TEST(GenerateRequests, ThatDoNotFitAreRefusedBeforeAnyIsStarted) {
  const ByteTokenizer tokenizer(kAlphabet);
  FakeEngine engine(config_of(kBits)), plain(config_of(0));
  const auto expect_error = [&](FakeEngine& model, const Tokenizer* text, const std::string& words,
                                const GenerateRequest& request) {
    const std::vector<GenerateRequest> requests = {request_of({1}, 3), request};
    EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, words, generate(model, text, requests));
    EXPECT_THAT(model.prefills, IsEmpty());
    EXPECT_EQ(model.open_sequences(), 0);
  };
  expect_error(engine, &tokenizer, "the prompt is empty, expected at least one token",
               request_of({}, 3));
  expect_error(engine, &tokenizer, "token 11 of the prompt, expected 0 to 10",
               request_of({1, 11}, 3));
  expect_error(engine, &tokenizer, "token -1 of the prompt, expected 0 to 10", request_of({-1}, 3));
  expect_error(engine, &tokenizer,
               "the prompt has 33 tokens, expected at most 32 (the model's "
               "max_position_embeddings)",
               request_of(Tokens(33, 1), 3));
  expect_error(engine, &tokenizer, "0 tokens to generate, expected 1 or more", request_of({1}, 0));
  expect_error(engine, &tokenizer, "-5 tokens to generate, expected 1 or more",
               request_of({1}, -5));
  expect_error(plain, &tokenizer, "--z prior: this model has no latent",
               request_of({1}, 3, "prior"));
  expect_error(plain, &tokenizer, "--z code:3,4: this model has no latent",
               request_of({1}, 3, "code:3,4"));
  expect_error(engine, &tokenizer, "z: number 2 is 8, expected a code from 0 to 7 (3 bits)",
               request_of({1}, 3, "code:7,8"));

  GenerateRequest request = request_of({1}, 3);
  request.stop = {"a", ""};
  expect_error(engine, &tokenizer, "an empty stop text", request);
  request.stop = {"a"};
  expect_error(engine, nullptr, "stop texts need a tokenizer, and this model has none", request);
  request.stop = {};
  request.sampling.top_p = 2;
  expect_error(engine, &tokenizer, "--top-p is 2, expected 0 to 1", request);
  request.sampling = {};
  request.sampling.logit_bias[11] = 1;
  expect_error(engine, &tokenizer, "--logit-bias names token 11, expected 0 to 10", request);
}

// --- Policies that need the model or a file ------------------------------------------------------

TEST(ResolveLatentPolicy, FromIsWhatTheEncoderFindsMostLikely) {
  FakeEngine engine(config_of(kBits));
  const ByteTokenizer tokenizer(kAlphabet);
  const LatentPolicy policy =
      resolve_latent_policy(parse_latent_policy("from:badge"), engine, &tokenizer);
  ASSERT_THAT(engine.encode_calls, SizeIs(1));
  EXPECT_THAT(engine.encode_calls[0], ElementsAre(Tokens{1, 0, 3, 6, 4}));
  const std::vector<std::span<const int32_t>> texts = {engine.encode_calls[0][0]};
  const std::vector<float> bit_logits = engine.encode(texts)[0];
  Codes expected(5);
  for (size_t i = 0; i < bit_logits.size(); ++i) {
    expected[i / kBits] |= int32_t(bit_logits[i] > 0) << i % kBits;
  }
  EXPECT_EQ(policy.codes, expected);
  EXPECT_EQ(to_text(policy), "from:badge");
}

TEST(ResolveLatentPolicy, FromThePromptItselfIsMap) {
  FakeEngine engine(config_of(kBits));
  const ByteTokenizer tokenizer(kAlphabet);
  GenerateRequest request = endless_request(tokenizer.encode("cabbage"), 12, "map");
  const GenerateResult map = generate_one(engine, &tokenizer, request);
  request.z = resolve_latent_policy(parse_latent_policy("from:cabbage"), engine, &tokenizer);
  expect_same(generate_one(engine, &tokenizer, request), map);
}

TEST(ResolveLatentPolicy, FileIsTheCodesOfTheFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "codes.json";
  std::ofstream(path) << "{\"codes\": [3, 1, 4]}";
  FakeEngine engine(config_of(kBits));
  const LatentPolicy policy =
      resolve_latent_policy(parse_latent_policy("file:" + path), engine, nullptr);
  EXPECT_THAT(policy.codes, ElementsAre(3, 1, 4));
  const GenerateResult result = generate_one(engine, nullptr, [&] {
    GenerateRequest request = endless_request({1, 2}, 3);
    request.z = policy;
    return request;
  }());
  EXPECT_THAT(result.prompt_codes, ElementsAre(3, 1));
  EXPECT_EQ(result.tokens[0].code, 1);
  EXPECT_EQ(result.tokens[1].code, 4);
}

TEST(ResolveLatentPolicy, LeavesTheOthersAsTheyAre) {
  FakeEngine engine(config_of(kBits));
  for (const char* z : {"posterior", "map", "prior", "seed:4", "code:1,2"}) {
    const LatentPolicy policy = parse_latent_policy(z);
    EXPECT_EQ(resolve_latent_policy(policy, engine, nullptr), policy);
  }
  EXPECT_THAT(engine.encode_calls, IsEmpty());
}

TEST(ResolveLatentPolicy, SaysWhatIsMissing) {
  const ByteTokenizer tokenizer(kAlphabet);
  FakeEngine engine(config_of(kBits)), plain(config_of(0));
  const LatentPolicy from = parse_latent_policy("from:abc");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "--z from:abc: this model has no latent",
                          resolve_latent_policy(from, plain, &tokenizer));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument,
                          "--z from:TEXT needs a tokenizer, and this model has none",
                          resolve_latent_policy(from, engine, nullptr));
  LatentPolicy empty = from;
  empty.text = "";
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "--z from:TEXT: the text is empty",
                          resolve_latent_policy(empty, engine, &tokenizer));
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kInvalidArgument, "the text has 'z'",
      resolve_latent_policy(parse_latent_policy("from:az"), engine, &tokenizer));
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kIo, "no-such-file.json",
      resolve_latent_policy(parse_latent_policy("file:no-such-file.json"), engine, nullptr));
}

}  // namespace
}  // namespace freeformer
