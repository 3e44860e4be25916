#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/philox.h"
#include "expect_error.h"
#include "random_values.h"

namespace freeformer {
namespace {

using ::testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

using Logits = std::vector<float>;
using History = std::vector<int32_t>;

// Every token can be drawn, with the probability that the model gives it.
SamplingSettings no_filters() {
  SamplingSettings settings;
  settings.temperature = 1;
  settings.top_k = 0;
  settings.top_p = 1;
  settings.min_p = 0;
  return settings;
}

SamplingSettings greedy() {
  SamplingSettings settings;
  settings.temperature = 0;
  return settings;
}

int32_t pick(const Logits& logits, const SamplingSettings& settings, const History& history = {}) {
  return sample_token(logits, history, settings, 0, 0).token;
}

// The tokens that pass all filters: a high temperature, which comes after them, makes them equally
// likely, and 400 draws find every one of a dozen.
std::set<int32_t> survivors(const Logits& logits, SamplingSettings settings,
                            const History& history = {}) {
  settings.temperature = 1e9;
  std::set<int32_t> tokens;
  for (uint32_t position = 0; position < 400; ++position) {
    tokens.insert(sample_token(logits, history, settings, 7, position).token);
  }
  return tokens;
}

using Tokens = std::set<int32_t>;

// --- The same rules in their plainest form: probabilities, full sorts, one filter after the other
// -

struct Entry {
  int32_t token;
  double logit;
  double probability;
};

void normalize(std::vector<Entry>& entries, double temperature = 1) {
  double sum = 0;
  for (Entry& entry : entries) {
    entry.probability = std::exp((entry.logit - entries[0].logit) / temperature);
    sum += entry.probability;
  }
  for (Entry& entry : entries) entry.probability /= sum;
}

std::vector<Entry> naive_candidates(const Logits& logits, const History& history,
                                    const SamplingSettings& settings) {
  std::vector<Entry> entries;
  for (int32_t token = 0; token < int32_t(logits.size()); ++token) {
    double logit = logits[size_t(token)];
    if (settings.logit_bias.contains(token)) logit += settings.logit_bias.at(token);
    const int64_t window =
        settings.repeat_last_n < 0 ? int64_t(history.size()) : settings.repeat_last_n;
    int64_t count = 0;
    for (int64_t i = 0; i < int64_t(history.size()); ++i) {
      count += history[size_t(i)] == token && i >= int64_t(history.size()) - window;
    }
    if (count > 0) {
      logit = logit <= 0 ? logit * settings.repeat_penalty : logit / settings.repeat_penalty;
      logit = logit - double(count) * settings.frequency_penalty - settings.presence_penalty;
    }
    if (!std::isnan(logit) && logit != -kInf) entries.push_back({token, logit, 0});
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.logit > b.logit; });
  return entries;
}

void naive_filters(const SamplingSettings& settings, std::vector<Entry>& entries) {
  if (settings.top_k > 0) entries.resize(std::min(entries.size(), size_t(settings.top_k)));
  normalize(entries);
  double sum = 0;
  size_t kept = 0;
  while (kept < entries.size() && (kept == 0 || sum < settings.top_p)) {
    sum += entries[kept++].probability;
  }
  if (settings.top_p < 1) entries.resize(kept);
  const double least = settings.min_p * entries[0].probability;
  std::erase_if(entries, [&](const Entry& entry) { return entry.probability < least; });
}

double uniform_of(uint64_t seed, uint64_t sequence, uint32_t position) {
  const PhiloxBlock words = RandomSource(seed, RandomStream::kToken).block(sequence, position, 0);
  return std::ldexp(double(words[0]), -32) + std::ldexp(double(words[1] >> 11), -53);
}

int32_t naive_sample(const Logits& logits, const History& history, const SamplingSettings& settings,
                     uint64_t sequence, uint32_t position) {
  std::vector<Entry> entries = naive_candidates(logits, history, settings);
  if (settings.temperature <= 0) return entries[0].token;
  naive_filters(settings, entries);
  normalize(entries, settings.temperature);
  double sum = 0;
  for (const Entry& entry : entries) {
    sum += entry.probability;
    if (uniform_of(settings.seed, sequence, position) < sum) return entry.token;
  }
  return entries.back().token;
}

// --- All rules at once ---------------------------------------------------------------------------

// Numbers of one case of a random test.
class Dice {
 public:
  explicit Dice(uint64_t number) : number_(number) {}
  double between(double low, double high) {
    const uint32_t word = RandomSource(3, RandomStream::kData).block(number_, draw_++, 0)[0];
    return low + (high - low) * double(unit_float(word));
  }
  bool chance(double probability) { return between(0, 1) < probability; }
  int64_t below(int64_t limit) { return int64_t(between(0, double(limit))); }

 private:
  uint64_t number_;
  uint32_t draw_ = 0;
};

SamplingSettings random_settings(Dice& dice, int64_t vocabulary) {
  SamplingSettings settings = no_filters();
  settings.seed = uint64_t(dice.below(1000));
  settings.temperature = dice.chance(0.1) ? 0 : dice.between(0.2, 3);
  if (dice.chance(0.5)) settings.top_k = dice.below(vocabulary + 10);
  if (dice.chance(0.5)) settings.top_p = dice.between(0, 1);
  if (dice.chance(0.5)) settings.min_p = dice.between(0, 0.5);
  if (dice.chance(0.3)) settings.repeat_penalty = dice.between(0.5, 2);
  if (dice.chance(0.3)) settings.presence_penalty = dice.between(-1, 1);
  if (dice.chance(0.3)) settings.frequency_penalty = dice.between(-1, 1);
  settings.repeat_last_n = dice.below(12) - 1;
  while (dice.chance(0.3)) {
    const auto token = int32_t(dice.below(vocabulary - 1));  // one is always left
    settings.logit_bias[token] = dice.chance(0.3) ? -double(kInf) : dice.between(-3, 3);
  }
  return settings;
}

Logits random_logits(Dice& dice, int64_t vocabulary) {
  Logits logits = random_floats(vocabulary, 4, uint64_t(dice.below(1 << 20)));
  for (float& logit : logits) {
    if (dice.chance(0.3)) logit = std::round(logit);  // ties
  }
  if (dice.chance(0.2)) logits[0] = kNan;
  if (dice.chance(0.2)) logits[size_t(vocabulary / 2)] = -kInf;
  return logits;
}

TEST(SampleToken, FollowsTheNaiveRulesForAnySettings) {
  for (uint64_t number = 0; number < 2000; ++number) {
    SCOPED_TRACE(number);
    Dice dice(number);
    const int64_t vocabulary = 3 + dice.below(40);
    const SamplingSettings settings = random_settings(dice, vocabulary);
    const Logits logits = random_logits(dice, vocabulary);
    History history;
    while (dice.chance(0.9)) history.push_back(int32_t(dice.below(vocabulary)));
    check(settings, vocabulary);
    for (uint32_t position = 0; position < 5; ++position) {
      ASSERT_EQ(sample_token(logits, history, settings, number, position).token,
                naive_sample(logits, history, settings, number, position));
    }
  }
}

// Draws that end thousands of ranks deep, and filters that keep thousands.
TEST(SampleToken, FollowsTheNaiveRulesInALargeVocabulary) {
  const Logits logits = random_floats(20'000, 1.5, 5);
  for (const int64_t top_k : {0, 40, 3000, 6000, 30'000}) {
    for (const double top_p : {0.9, 1.0}) {
      for (const double min_p : {0.0, 0.2}) {
        SamplingSettings settings = no_filters();
        settings.top_k = top_k;
        settings.top_p = top_p;
        settings.min_p = min_p;
        for (uint32_t position = 0; position < 2; ++position) {
          EXPECT_EQ(sample_token(logits, {}, settings, 1, position).token,
                    naive_sample(logits, {}, settings, 1, position))
              << "top_k " << top_k << ", top_p " << top_p << ", min_p " << min_p;
        }
      }
    }
  }
}

// --- The draw ------------------------------------------------------------------------------------

// Pearson's statistic of `draws` draws at temperature 0.7 against softmax(logits / 0.7).
template <typename Draw>
double chi_square(const Logits& logits, int draws, Draw draw) {
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) ++counts[size_t(draw(i))];
  double sum = 0, statistic = 0;
  for (const float logit : logits) sum += std::exp(double(logit) / 0.7);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double expected = draws * std::exp(double(logits[i]) / 0.7) / sum;
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return statistic;
}

TEST(SampleToken, DrawsWithTheProbabilitiesOfTheSoftmaxAtItsTemperature) {
  const Logits logits = {0.5, -1, 1.5, 0, -2, 1, 0.25, -0.5};
  SamplingSettings settings = no_filters();
  settings.temperature = 0.7;
  // 24.3 is exceeded once in a thousand for seven degrees of freedom.
  EXPECT_LT(
      chi_square(logits, 20'000,
                 [&](int i) { return sample_token(logits, {}, settings, 0, uint32_t(i)).token; }),
      24.3)
      << "over positions";
  EXPECT_LT(
      chi_square(logits, 20'000,
                 [&](int i) { return sample_token(logits, {}, settings, uint64_t(i), 5).token; }),
      24.3)
      << "over sequences";
  EXPECT_LT(chi_square(logits, 20'000,
                       [&](int i) {
                         settings.seed = uint64_t(i);
                         return sample_token(logits, {}, settings, 0, 5).token;
                       }),
            24.3)
      << "over seeds";
}

// The first token ends between the draw and the draw without its lowest bits, which come from the
// second word: only the whole draw is beyond it.
TEST(SampleToken, DrawsWith53Bits) {
  int tested = 0;
  for (uint32_t position = 0; position < 20; ++position) {
    const double uniform = uniform_of(0, 0, position);
    if (uniform < 0.51) continue;  // the more likely token is the first one
    const double coarse = std::floor(std::ldexp(uniform, 32)) * 0x1p-32;
    const double p = (uniform + coarse) / 2;
    SamplingSettings settings = no_filters();
    settings.logit_bias[0] = std::log(p / (1 - p));
    EXPECT_EQ(sample_token(Logits{0, 0}, {}, settings, 0, position).token, 1);
    ++tested;
  }
  EXPECT_GT(tested, 5);
}

TEST(SampleToken, TakesCandidatesInOrderOfProbabilityAndThenOfId) {
  SamplingSettings settings = no_filters();
  for (uint32_t position = 0; position < 50; ++position) {
    const double uniform = uniform_of(0, 3, position);
    const int32_t expected[] = {2, 1, 3, 0};  // the largest first, equals by id
    // Weights 1, 2, 4, 2 of 9.
    const float two = std::log(2.0F);
    const int rank = uniform < 4 / 9.0 ? 0 : uniform < 6 / 9.0 ? 1 : uniform < 8 / 9.0 ? 2 : 3;
    EXPECT_EQ(sample_token(Logits{0, two, 2 * two, two}, {}, settings, 3, position).token,
              expected[rank]);
  }
}

TEST(SampleToken, IsTheSameWhateverWasDrawnBefore) {
  const Logits logits = random_floats(300, 2, 1), others = random_floats(300, 2, 2);
  SamplingSettings settings = no_filters();
  settings.seed = 11;
  History forwards, backwards;
  for (uint32_t position = 0; position < 30; ++position) {
    forwards.push_back(sample_token(logits, {}, settings, 4, position).token);
  }
  for (uint32_t position = 30; position-- > 0;) {
    sample_token(others, {}, settings, 5, position);
    backwards.push_back(sample_token(logits, {}, settings, 4, position, 3).token);
  }
  std::reverse(backwards.begin(), backwards.end());
  EXPECT_EQ(forwards, backwards);
}

TEST(SampleToken, DependsOnSeedSequenceAndPosition) {
  const Logits logits(1000, 0.0F);
  SamplingSettings settings = no_filters(), other = no_filters();
  other.seed = 1;
  const int32_t token = sample_token(logits, {}, settings, 0, 0).token;
  EXPECT_NE(sample_token(logits, {}, other, 0, 0).token, token);
  EXPECT_NE(sample_token(logits, {}, settings, 1, 0).token, token);
  EXPECT_NE(sample_token(logits, {}, settings, uint64_t{1} << 32, 0).token, token);
  EXPECT_NE(sample_token(logits, {}, settings, 0, 1).token, token);
}

TEST(SampleToken, TakesTheMostLikelyTokenAtTemperatureZeroOrLess) {
  SamplingSettings settings = greedy();
  EXPECT_EQ(pick({1, 3, 2, 3}, settings), 1) << "the lowest id among equals";
  settings.temperature = -1;
  EXPECT_EQ(pick({1, 3, 2, 3}, settings), 1);
  settings.temperature = 1e-300;
  EXPECT_EQ(pick({1, 3, 2, 2.5}, settings), 1) << "next to zero";
}

// --- The filters ---------------------------------------------------------------------------------

TEST(SampleToken, TopKKeepsTheMostLikely) {
  SamplingSettings settings = no_filters();
  const Logits logits = {1, 4, 2, 2, 5, 2};
  settings.top_k = 1;
  EXPECT_EQ(survivors(logits, settings), Tokens({4}));
  settings.top_k = 3;
  EXPECT_EQ(survivors(logits, settings), Tokens({1, 2, 4})) << "the lowest id among equals";
  for (const int64_t all : {0, 6, 7}) {
    settings.top_k = all;
    EXPECT_EQ(survivors(logits, settings), Tokens({0, 1, 2, 3, 4, 5}));
  }
}

TEST(SampleToken, TopPKeepsTheFewestThatReachIt) {
  SamplingSettings settings = no_filters();
  const Logits equal = {0, 0, 0, 0};
  settings.top_p = 0.5;
  EXPECT_EQ(survivors(equal, settings), Tokens({0, 1})) << "reached exactly";
  settings.top_p = 0.51;
  EXPECT_EQ(survivors(equal, settings), Tokens({0, 1, 2})) << "the one that crosses it stays";
  settings.top_p = 0;
  EXPECT_EQ(survivors(equal, settings), Tokens({0})) << "one always remains";
  settings.top_p = 1;
  EXPECT_EQ(survivors(equal, settings), Tokens({0, 1, 2, 3}));
}

TEST(SampleToken, MinPKeepsWhatIsNearTheMostLikely) {
  SamplingSettings settings = no_filters();
  const Logits logits = {0, std::log(0.5F), std::log(0.2F), std::log(0.19F), 0};
  settings.min_p = 0.195;
  EXPECT_EQ(survivors(logits, settings), Tokens({0, 1, 2, 4}));
  settings.min_p = 0.6;
  EXPECT_EQ(survivors(logits, settings), Tokens({0, 4}));
  settings.min_p = 1;
  EXPECT_EQ(survivors(logits, settings), Tokens({0, 4})) << "the most likely always remain";
}

TEST(SampleToken, TopPComesBeforeTheTemperature) {
  SamplingSettings settings = no_filters();
  settings.top_p = 0.6;  // the first has 0.665; a temperature of 1e9 would give it a third
  EXPECT_EQ(survivors({2, 1, 0}, settings), Tokens({0}));
}

TEST(SampleToken, MinPComesBeforeTheTemperature) {
  SamplingSettings settings = no_filters();
  settings.min_p = 0.5;
  EXPECT_EQ(survivors({2, 1, 0}, settings), Tokens({0}));
}

TEST(SampleToken, TopKComesBeforeTopP) {
  SamplingSettings settings = no_filters();
  settings.top_k = 2;
  settings.top_p = 0.5;  // of two, one has it; of four, two
  EXPECT_EQ(survivors({0, 0, 0, 0}, settings), Tokens({0}));
}

TEST(SampleToken, TopPComesBeforeMinP) {
  // Weights 1, 0.9, 0.8 and ten of 0.1.
  Logits logits(13, std::log(0.1F));
  logits[0] = 0;
  logits[1] = std::log(0.9F);
  logits[2] = std::log(0.8F);
  SamplingSettings settings = no_filters();
  settings.top_p = 0.7;  // 2.59 of 3.7 takes three; 1.89 of the 2.7 that min-p leaves takes two
  settings.min_p = 0.5;
  EXPECT_EQ(survivors(logits, settings), Tokens({0, 1, 2}));
}

// --- Penalties and bias --------------------------------------------------------------------------

TEST(SampleToken, RepeatPenaltyMakesWhatWasSaidLessLikely) {
  SamplingSettings settings = greedy();
  settings.repeat_penalty = 2;
  EXPECT_EQ(pick({2, 1.5}, settings, {0}), 1) << "a positive logit is divided";
  EXPECT_EQ(pick({-1, -1.5}, settings, {0}), 1) << "a negative one multiplied";
  EXPECT_EQ(pick({2, 0.9F}, settings, {0, 0, 0}), 0) << "once, however often it was said";
  EXPECT_EQ(pick({2, 1.5}, settings, {}), 0);
}

TEST(SampleToken, FrequencyPenaltyCountsAndPresencePenaltyDoesNot) {
  SamplingSettings frequency = greedy(), presence = greedy();
  frequency.frequency_penalty = 0.3;
  presence.presence_penalty = 0.3;
  EXPECT_EQ(pick({1, 0.5}, frequency, {0}), 0);
  EXPECT_EQ(pick({1, 0.5}, frequency, {0, 0}), 1);
  EXPECT_EQ(pick({1, 0.5}, presence, {0, 0}), 0);
  EXPECT_EQ(pick({1, 0.8F}, presence, {0, 0}), 1);
}

TEST(SampleToken, PenaltiesLookBackAsFarAsTheyAreTold) {
  const Logits logits = {1, 0.5, 0};
  SamplingSettings settings = greedy();
  settings.presence_penalty = 10;
  settings.repeat_last_n = 3;
  EXPECT_EQ(pick(logits, settings, {0, 2, 2, 2}), 0) << "the fourth from the end is out of sight";
  EXPECT_EQ(pick(logits, settings, {2, 0, 2, 2}), 1) << "the third is not";
  EXPECT_EQ(pick(logits, settings, {0}), 1) << "a history shorter than the window";
  settings.repeat_last_n = -1;
  EXPECT_EQ(pick(logits, settings, {0, 2, 2, 2}), 1);
  settings.repeat_last_n = 0;
  EXPECT_EQ(pick(logits, settings, {2, 2, 2, 0}), 0);
}

TEST(SampleToken, LogitBiasIsAddedAndCanBan) {
  SamplingSettings settings = greedy();
  settings.logit_bias = {{1, 1.5}};
  EXPECT_EQ(pick({1, 0, 0.5}, settings), 1);
  settings.logit_bias = {{0, -double(kInf)}};
  EXPECT_EQ(pick({1, 0, 0.5}, settings), 2);
  EXPECT_EQ(pick({kInf, 0, 0.5}, settings), 2) << "even what the model is sure of";
  settings.logit_bias = {{1, kInf}};
  EXPECT_EQ(pick({1, 0, 0.5}, settings), 1);
  settings = no_filters();
  settings.logit_bias = {{0, -double(kInf)}, {3, -double(kInf)}};
  EXPECT_EQ(survivors({5, 0, 0.5, 2}, settings), Tokens({1, 2}));
}

TEST(SampleToken, LogitBiasComesBeforePenalties) {
  SamplingSettings settings = greedy();
  settings.logit_bias = {{0, -2}};
  settings.repeat_penalty = 2;  // (1 - 2) * 2 = -2, while 1 / 2 - 2 = -1.5
  EXPECT_EQ(pick({1, -1.8F}, settings, {0}), 1);
}

TEST(SampleToken, PenaltiesComeBeforeTopK) {
  SamplingSettings settings = no_filters();
  settings.top_k = 1;
  settings.presence_penalty = 2;
  EXPECT_EQ(survivors({1, 0, -0.5}, settings, {0}), Tokens({1}));
}

TEST(SampleToken, RefusesABiasThatBansEveryToken) {
  SamplingSettings settings;
  settings.logit_bias = {{0, -double(kInf)}, {1, -double(kInf)}};
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kInvalidArgument,
      "--logit-bias and the penalties ban all 2 tokens, expected at least one left",
      pick({0, 1}, settings));
}

// --- Logits that are no numbers ------------------------------------------------------------------

TEST(SampleToken, NeverChoosesWhatIsNoNumber) {
  const Logits logits = {kNan, 0, -kInf, 1, kNan};
  EXPECT_EQ(survivors(logits, no_filters()), Tokens({1, 3}));
  EXPECT_EQ(survivors(logits, SamplingSettings()), Tokens({1, 3}));
  EXPECT_EQ(pick(logits, greedy()), 3);
  SamplingSettings forced = greedy();
  forced.logit_bias = {{0, 100}, {2, 100}, {4, kInf}};
  forced.repeat_penalty = 2;
  EXPECT_EQ(pick(logits, forced, {0, 2, 4}), 3);
}

TEST(SampleToken, InfinityWins) {
  const Logits logits = {0, kInf, 100, kInf, kNan};
  EXPECT_EQ(survivors(logits, no_filters()), Tokens({1, 3}));
  EXPECT_EQ(survivors(logits, SamplingSettings()), Tokens({1, 3}));
  EXPECT_EQ(pick(logits, greedy()), 1);
}

TEST(SampleToken, RefusesLogitsWithoutAFiniteOne) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "none of the model's 2 logits is a finite number",
                          pick({kNan, kNan}, SamplingSettings()));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "none of the model's 2 logits",
                          pick({-kInf, kInf}, SamplingSettings()));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "none of the model's 0 logits",
                          pick({}, SamplingSettings()));
}

// --- Probabilities -------------------------------------------------------------------------------

MATCHER_P2(IsToken, token, log_probability, "") {
  return arg.token == token && std::abs(arg.log_probability - (log_probability)) < 1e-12;
}

TEST(SampleToken, ReportsTheModelsOwnProbabilities) {
  const Logits logits = {1, 3, 2, 3};
  const double log_sum = std::log(std::exp(1) + std::exp(2) + 2 * std::exp(3));
  SamplingSettings settings;
  settings.temperature = 0.3;
  settings.top_k = 1;
  settings.repeat_penalty = 3;
  settings.logit_bias = {{1, -double(kInf)}, {2, 50}};
  const SampledToken sampled = sample_token(logits, History{3, 3}, settings, 0, 0, 3);
  EXPECT_EQ(sampled.token, 2);
  EXPECT_NEAR(sampled.log_probability, 2 - log_sum, 1e-12);
  EXPECT_THAT(sampled.top, ElementsAre(IsToken(1, 3 - log_sum), IsToken(3, 3 - log_sum),
                                       IsToken(2, 2 - log_sum)));
}

TEST(SampleToken, ReportsAsManyAlternativesAsAreAskedForAndExist) {
  const Logits logits = {0, kNan, 1, -kInf};
  EXPECT_TRUE(sample_token(logits, {}, {}, 0, 0).top.empty());
  EXPECT_EQ(sample_token(logits, {}, {}, 0, 0, 1).top.size(), 1U);
  EXPECT_EQ(sample_token(logits, {}, {}, 0, 0, 9).top.size(), 2U) << "two have a probability";
  EXPECT_THAT(sample_token(Logits{0, kInf, 1, kInf}, {}, {}, 0, 0, 9).top,
              ElementsAre(IsToken(1, -std::log(2)), IsToken(3, -std::log(2))));
}

TEST(LogProbability, IsTheLogarithmOfTheSoftmax) {
  const Logits logits = random_floats(5000, 20, 8);
  long double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
  for (const int32_t token : {0, 1, 77, 4999}) {
    EXPECT_NEAR(log_probability(logits, token),
                double(static_cast<long double>(logits[size_t(token)]) - std::log(sum)), 1e-12);
  }
}

// A sum in fp32 would lose the sixth digit.
TEST(LogProbability, SumsInDoublePrecision) {
  Logits logits(131'072, std::log(0.7F));
  logits[5] = 0;
  EXPECT_NEAR(log_probability(logits, 5), -std::log1p(131'071 * std::exp(double(logits[0]))),
              1e-10);
}

TEST(LogProbability, SurvivesLargeLogits) {
  EXPECT_DOUBLE_EQ(log_probability(Logits{3e38F, 3e38F}, 0), -std::log(2));
  EXPECT_DOUBLE_EQ(log_probability(Logits{-3e38F, -3e38F}, 1), -std::log(2));
  EXPECT_DOUBLE_EQ(log_probability(Logits{1000, 0}, 1), -1000);
}

TEST(LogProbability, OfWhatIsNoNumberIsThatOfTheImpossible) {
  EXPECT_EQ(log_probability(Logits{0, kNan}, 1), -kInf);
  EXPECT_EQ(log_probability(Logits{0, kNan}, 0), 0);
  EXPECT_EQ(log_probability(Logits{0, -kInf}, 1), -kInf);
  EXPECT_EQ(log_probability(Logits{0, kInf}, 0), -kInf);
  EXPECT_EQ(log_probability(Logits{0, kInf}, 1), 0);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "none of the model's 1 logits",
                          log_probability(Logits{kNan}, 0));
}

TEST(LogProbability, ChecksItsToken) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "token", log_probability(Logits{0, 1}, 2));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "token", log_probability(Logits{0, 1}, -1));
}

TEST(SampleToken, ChecksTokensOfTheHistoryAndTheBias) {
  SamplingSettings settings;
  settings.repeat_penalty = 2;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "token", pick({0, 1}, settings, {2}));
  settings.logit_bias = {{-1, 0}};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "token", pick({0, 1}, settings));
}

// --- Settings ------------------------------------------------------------------------------------

TEST(SamplingSettings, DefaultsAndLimitsAreAccepted) {
  EXPECT_NO_THROW(check(SamplingSettings(), 10));
  EXPECT_NO_THROW(check(no_filters(), 10));
  SamplingSettings settings;
  settings.temperature = -1;
  settings.top_p = 0;
  settings.min_p = 1;
  settings.repeat_last_n = -1;
  settings.presence_penalty = settings.frequency_penalty = -2;
  settings.logit_bias = {{0, -double(kInf)}, {9, 3}};
  EXPECT_NO_THROW(check(settings, 10));
}

TEST(SamplingSettings, WhatIsOutOfRangeIsNamed) {
  const auto expect_error = [](const std::string& words, auto change) {
    SamplingSettings settings;
    change(settings);
    EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, words, check(settings, 10));
  };
  using S = SamplingSettings;
  expect_error("--temp is nan, expected a finite number", [](S& s) { s.temperature = kNan; });
  expect_error("--temp is inf, expected a finite number", [](S& s) { s.temperature = kInf; });
  expect_error("--top-k is -1, expected 1 or more, or 0 for all", [](S& s) { s.top_k = -1; });
  expect_error("--top-p is 2, expected 0 to 1", [](S& s) { s.top_p = 2; });
  expect_error("--top-p is -0.5, expected 0 to 1", [](S& s) { s.top_p = -0.5; });
  expect_error("--top-p is nan, expected 0 to 1", [](S& s) { s.top_p = kNan; });
  expect_error("--min-p is 1.5, expected 0 to 1", [](S& s) { s.min_p = 1.5; });
  expect_error("--min-p is nan, expected 0 to 1", [](S& s) { s.min_p = kNan; });
  expect_error("--repeat-penalty is 0, expected a finite number above 0",
               [](S& s) { s.repeat_penalty = 0; });
  expect_error("--repeat-penalty is inf, expected a finite number above 0",
               [](S& s) { s.repeat_penalty = kInf; });
  expect_error("--repeat-last-n is -2, expected 0 or more, or -1 for all",
               [](S& s) { s.repeat_last_n = -2; });
  expect_error("--presence-penalty is nan, expected a finite number",
               [](S& s) { s.presence_penalty = kNan; });
  expect_error("--frequency-penalty is -inf, expected a finite number",
               [](S& s) { s.frequency_penalty = -kInf; });
  expect_error("--logit-bias names token 10, expected 0 to 9", [](S& s) {
    s.logit_bias = {{10, 1}};
  });
  expect_error("--logit-bias names token -1, expected 0 to 9", [](S& s) {
    s.logit_bias = {{-1, 1}};
  });
  expect_error("--logit-bias of token 3 is nan, expected a number", [](S& s) {
    s.logit_bias = {{3, kNan}};
  });
}

}  // namespace
}  // namespace freeformer
