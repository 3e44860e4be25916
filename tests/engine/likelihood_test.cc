#include "engine/likelihood.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/philox.h"
#include "engine/bits.h"
#include "expect_error.h"
#include "fake_engine.h"

namespace freeformer {
namespace {

using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::Lt;

const double kLn2 = std::log(2.0);

double sum_of(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum;
}

// Sequences of 2 to 12 tokens.
std::vector<Tokens> mixed_sequences(int64_t vocab_size) {
  std::vector<Tokens> sequences;
  const RandomSource source(5, RandomStream::kData);
  for (uint64_t i = 0; i < 13; ++i) {
    Tokens& tokens = sequences.emplace_back(2 + i * 7 % 11);
    for (size_t t = 0; t < tokens.size(); ++t) {
      tokens[t] = int32_t(source.block(i, uint32_t(t), 0)[0] % uint32_t(vocab_size));
    }
  }
  return sequences;
}

Likelihood measure(Engine& engine, const std::vector<Tokens>& sequences,
                   const LikelihoodSettings& settings, int64_t batch_tokens = 4096) {
  const auto likelihood = measure_likelihood(engine, sequences, settings, {}, batch_tokens);
  EXPECT_TRUE(likelihood.has_value());
  return likelihood.value_or(Likelihood());
}

struct MeanWithError {
  explicit MeanWithError(std::span<const double> values) {
    for (const double value : values) mean += value / double(values.size());
    for (const double value : values) error += std::pow(value - mean, 2);
    error = std::sqrt(error / double(values.size() - 1) / double(values.size()));
  }
  double mean = 0, error = 0;
};

// --- Against every code there is -----------------------------------------------------------------

// One sequence under a model of two bits, with all codes of its four inputs: 256 in all.
class AllCodes : public ::testing::Test {
 protected:
  static constexpr int kBits = 2;
  static constexpr size_t kInputs = 4;

  AllCodes() : engine_(fake_config(kBits, 5)) {
    engine_.logit_scale = 2;
    for (int32_t all = 0; all < 1 << (kBits * kInputs); ++all) {
      Codes& codes = codes_.emplace_back();
      for (size_t t = 0; t < kInputs; ++t) codes.push_back(all >> (kBits * t) & 3);
    }
    std::vector<Engine::Score> requests;
    for (const Codes& codes : codes_) requests.push_back({tokens_, codes});
    scores_ = engine_.score(requests);
  }

  // log Q of the codes of the first positions.
  static double log_posterior(std::span<const float> bit_logits, const Codes& codes) {
    double sum = 0;
    for (size_t t = 0; t * kBits < bit_logits.size(); ++t) {
      sum += code_log_probability(bit_logits.subspan(t * kBits, kBits), codes[t]);
    }
    return sum;
  }

  // The encoder's bit logits of all inputs.
  std::vector<float> posterior() {
    const std::vector<std::span<const int32_t>> inputs = {std::span(tokens_).first(kInputs)};
    return engine_.encode(inputs)[0];
  }

  double exact_nll() const {
    double p = 0;
    for (const auto& scores : scores_) p += std::exp(sum_of(scores)) / double(scores_.size());
    return -std::log(p);
  }

  // The same sequence many times: each time with its own draws.
  std::vector<Tokens> copies(size_t count) const { return std::vector<Tokens>(count, tokens_); }

  FakeEngine engine_;
  const Tokens tokens_ = {0, 3, 1, 4, 2};
  std::vector<Codes> codes_;
  std::vector<std::vector<float>> scores_;  // of codes_
};

TEST_F(AllCodes, BoundsTightenTowardsTheLikelihood) {
  LikelihoodSettings settings;
  settings.iwae_samples = 2;
  const Likelihood two = measure(engine_, copies(1000), settings);
  settings.iwae_samples = 8;
  const Likelihood eight = measure(engine_, copies(1000), settings);
  EXPECT_EQ(two.bound_sums, eight.bound_sums);

  const auto expect_above = [](const std::vector<double>& above, const std::vector<double>& below) {
    std::vector<double> differences;
    for (size_t i = 0; i < above.size(); ++i) differences.push_back(above[i] - below[i]);
    const MeanWithError difference(differences);
    EXPECT_GT(difference.mean, 4 * difference.error);
  };
  expect_above(two.bound_sums, two.iwae_sums);
  expect_above(two.iwae_sums, eight.iwae_sums);
  expect_above(eight.iwae_sums, std::vector<double>(1000, exact_nll()));
}

TEST_F(AllCodes, ElboAndPriorCeHaveTheirExpectedValues) {
  const std::vector<float> bit_logits = posterior();
  double posterior_ce = 0, prior_ce = 0, kl = 0;
  for (size_t i = 0; i < codes_.size(); ++i) {
    const double log_q = log_posterior(bit_logits, codes_[i]), nll = -sum_of(scores_[i]);
    posterior_ce += std::exp(log_q) * nll;
    kl += std::exp(log_q) * (log_q + kLn2 * kBits * kInputs);
    prior_ce += nll / double(codes_.size());
  }
  const Likelihood found = measure(engine_, copies(1000), {});
  EXPECT_NEAR(found.kl.mean * kInputs, kl, 1e-9);
  EXPECT_NEAR(found.posterior_ce.mean, posterior_ce / kInputs,
              3 * found.posterior_ce.standard_error);
  EXPECT_NEAR(found.elbo.mean, (posterior_ce + kl) / kInputs, 3 * found.elbo.standard_error);
  ASSERT_TRUE(found.prior_ce.has_value());
  EXPECT_NEAR(found.prior_ce->mean, prior_ce / kInputs, 3 * found.prior_ce->standard_error);
  EXPECT_GT(found.prior_ce->mean * kInputs,
            exact_nll() + 3 * found.prior_ce->standard_error * kInputs);
}

TEST_F(AllCodes, ManySamplesReachTheLikelihood) {
  constexpr int64_t kSamples = 4096;
  engine_.bit_logit_scale = 0.75;  // for weights that so many samples can average
  const std::vector<float> bit_logits = posterior();
  const double p = std::exp(-exact_nll());
  double mean_square = 0;  // of the weights P(S|z) P(z) / Q(z|S), whose mean is P(S)
  for (size_t i = 0; i < codes_.size(); ++i) {
    const double log_q = log_posterior(bit_logits, codes_[i]);
    mean_square += std::exp(2 * (sum_of(scores_[i]) - kLn2 * double(kBits * kInputs)) - log_q);
  }
  const double error = std::sqrt((mean_square - p * p) / kSamples);
  EXPECT_LT(error, 0.05 * p);
  LikelihoodSettings settings;
  settings.prior = false;
  settings.iwae_samples = kSamples;
  for (settings.seed = 0; settings.seed < 3; ++settings.seed) {
    const Likelihood found = measure(engine_, copies(1), settings);
    EXPECT_NEAR(std::exp(-found.iwae_sums[0]), p, 3 * error);
    EXPECT_EQ(found.iwae_samples, kSamples);
  }
}

TEST_F(AllCodes, ACompletionIsScoredUnderPromptCodesFromTheEncoderAndItsOwnFromThePrior) {
  const std::span<const int32_t> prompt = std::span(tokens_).first(2),
                                 completion = std::span(tokens_).subspan(2);
  const std::vector<float> bit_logits = engine_.encode(std::vector{prompt})[0];
  double mean = 0, mean_square = 0;
  for (size_t i = 0; i < codes_.size(); ++i) {
    const double weight = std::exp(log_posterior(bit_logits, codes_[i]) -
                                   kLn2 * kBits * double(kInputs - prompt.size()));
    const double p = std::exp(sum_of(std::span(scores_[i]).last(completion.size())));
    mean += weight * p;
    mean_square += weight * p * p;
  }
  constexpr int64_t kSamples = 4096;
  const double error = std::sqrt((mean_square - mean * mean) / kSamples);
  for (const uint64_t seed : {0, 1, 2}) {
    EXPECT_NEAR(std::exp(score_completion(engine_, prompt, completion, kSamples, seed, 0)), mean,
                3 * error);
  }
}

// --- Figures -------------------------------------------------------------------------------------

TEST(MeasureLikelihood, ElboIsPosteriorCePlusKl) {
  FakeEngine engine(fake_config(3));
  const Likelihood found = measure(engine, mixed_sequences(11), {});
  EXPECT_TRUE(found.has_latent);
  EXPECT_NEAR(found.elbo.mean, found.posterior_ce.mean + found.kl.mean, 1e-13);
  EXPECT_GT(found.kl.mean, 0);
  EXPECT_EQ(found.bound(), found.elbo.mean);
}

TEST(MeasureLikelihood, CountsPredictedTokens) {
  FakeEngine engine(fake_config(3));
  const std::vector<Tokens> sequences = mixed_sequences(11);
  const Likelihood found = measure(engine, sequences, {});
  EXPECT_EQ(found.sequences, 13);
  ASSERT_EQ(found.token_counts.size(), 13U);
  int64_t tokens = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    EXPECT_EQ(found.token_counts[i], int64_t(sequences[i].size()) - 1);
    tokens += int64_t(sequences[i].size()) - 1;
  }
  EXPECT_EQ(found.tokens, tokens);
}

TEST(MeasureLikelihood, SumsOfTheSequencesMakeTheFigures) {
  FakeEngine engine(fake_config(3));
  LikelihoodSettings settings;
  settings.iwae_samples = 3;
  const Likelihood found = measure(engine, mixed_sequences(11), settings);
  const Estimate elbo = ratio_estimate(found.bound_sums, found.token_counts);
  const Estimate iwae = ratio_estimate(found.iwae_sums, found.token_counts);
  ASSERT_TRUE(found.iwae.has_value());
  EXPECT_EQ(found.elbo.mean, elbo.mean);
  EXPECT_EQ(found.elbo.standard_error, elbo.standard_error);
  EXPECT_EQ(found.iwae->mean, iwae.mean);
  EXPECT_EQ(found.iwae->standard_error, iwae.standard_error);
}

TEST(MeasureLikelihood, TheEncoderReadsWhatTheDecoderReads) {
  FakeEngine engine(fake_config(3));
  const std::vector<Tokens> sequences = {{1, 2, 3, 4}, {5, 6}};
  measure(engine, sequences, {});
  ASSERT_EQ(engine.encode_calls.size(), 1U);
  EXPECT_THAT(engine.encode_calls[0], ElementsAre(Tokens{1, 2, 3}, Tokens{5}));
}

TEST(MeasureLikelihood, OneSampleOfIwaeIsOneWeight) {
  FakeEngine engine(fake_config(2));
  LikelihoodSettings settings;
  settings.iwae_samples = 1;
  settings.prior = false;
  const std::vector<Tokens> sequences = {{1, 2, 3, 4}};
  const Likelihood found = measure(engine, sequences, settings);
  ASSERT_EQ(engine.scored.size(), 1U);
  const Codes codes = engine.scored[0].codes;
  const std::vector<std::span<const int32_t>> inputs = {std::span(sequences[0]).first(3)};
  const std::vector<float> bit_logits = engine.encode(inputs)[0];
  double log_weight = sum_of(engine.score(std::vector<Engine::Score>{{sequences[0], codes}})[0]);
  for (size_t t = 0; t < 3; ++t) {
    log_weight -= code_log_probability(std::span(bit_logits).subspan(2 * t, 2), codes[t]);
    log_weight -= 2 * kLn2;
  }
  EXPECT_NEAR(found.iwae_sums[0], -log_weight, 1e-12);
}

TEST(MeasureLikelihood, LeavesOutWhatWasNotAskedFor) {
  FakeEngine engine(fake_config(3));
  LikelihoodSettings settings;
  settings.prior = false;
  const Likelihood found = measure(engine, mixed_sequences(11), settings);
  EXPECT_FALSE(found.prior_ce.has_value());
  EXPECT_FALSE(found.iwae.has_value());
  EXPECT_TRUE(found.iwae_sums.empty());
  EXPECT_EQ(engine.scored.size(), 13U);  // each text once
}

TEST(MeasureLikelihood, DrawsOfTheSamplesAndOfThePriorDiffer) {
  FakeEngine engine(fake_config(8));
  engine.fixed_bit_logits.assign(8, 0);  // the encoder knows as little as the prior
  LikelihoodSettings settings;
  settings.iwae_samples = 4;
  measure(engine, std::vector<Tokens>(3, Tokens{1, 2, 3, 4, 5, 6}), settings);
  ASSERT_EQ(engine.scored.size(), 15U);
  std::set<Codes> all;
  for (const auto& scored : engine.scored) all.insert(scored.codes);
  EXPECT_EQ(all.size(), 15U);
}

TEST(MeasureLikelihood, IsAFunctionOfTheSeed) {
  FakeEngine engine(fake_config(3));
  LikelihoodSettings settings;
  const std::vector<Tokens> sequences = mixed_sequences(11);
  const Likelihood first = measure(engine, sequences, settings);
  EXPECT_EQ(measure(engine, sequences, settings).bound_sums, first.bound_sums);
  settings.seed = 1;
  EXPECT_NE(measure(engine, sequences, settings).bound_sums, first.bound_sums);
}

TEST(MeasureLikelihood, ASequenceKeepsItsDrawsWhateverStandsBeforeIt) {
  FakeEngine engine(fake_config(3));
  LikelihoodSettings settings;
  settings.iwae_samples = 3;
  const std::vector<Tokens> sequences = mixed_sequences(11);
  const Likelihood all = measure(engine, sequences, settings);
  settings.first_sequence = 4;
  const std::vector<Tokens> later(sequences.begin() + 4, sequences.end());
  const Likelihood rest = measure(engine, later, settings);
  EXPECT_EQ(rest.bound_sums, std::vector(all.bound_sums.begin() + 4, all.bound_sums.end()));
  EXPECT_EQ(rest.iwae_sums, std::vector(all.iwae_sums.begin() + 4, all.iwae_sums.end()));
}

TEST(MeasureLikelihood, OfAPlainModelIsItsCrossEntropy) {
  FakeEngine engine(fake_config(0));
  const std::vector<Tokens> sequences = mixed_sequences(11);
  LikelihoodSettings settings;
  settings.iwae_samples = 4;
  const Likelihood found = measure(engine, sequences, settings, 20);
  ASSERT_EQ(found.bound_sums.size(), 13U);
  double total = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const double nll = -sum_of(engine.score(std::vector<Engine::Score>{{sequences[i], {}}})[0]);
    EXPECT_EQ(found.bound_sums[i], nll);
    total += nll;
  }
  EXPECT_NEAR(found.ce.mean, total / double(found.tokens), 1e-12);
  EXPECT_EQ(found.ce.standard_error,
            ratio_estimate(found.bound_sums, found.token_counts).standard_error);
  EXPECT_EQ(found.bound(), found.ce.mean);
  EXPECT_FALSE(found.has_latent);
  EXPECT_FALSE(found.prior_ce.has_value());
  EXPECT_FALSE(found.iwae.has_value());
  EXPECT_TRUE(engine.encode_calls.empty());
}

TEST(MeasureLikelihood, RefusesWhatCannotBeScored) {
  FakeEngine engine(fake_config(2));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument,
                          "nothing to score: expected at least one sequence",
                          measure_likelihood(engine, {}, {}));
  const std::vector<Tokens> short_one = {{1, 2}, {1, 2, 3}, {4}};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument,
                          "sequence 2 has 1 token(s), expected at least 2",
                          measure_likelihood(engine, short_one, {}));
  const std::vector<Tokens> empty_one = {{}};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument,
                          "sequence 0 has 0 token(s), expected at least 2",
                          measure_likelihood(engine, empty_one, {}));
}

// --- Batches -------------------------------------------------------------------------------------

TEST(MeasureLikelihood, GivesTheSameInBatchesOfAnySize) {
  FakeEngine engine(fake_config(3));
  LikelihoodSettings settings;
  settings.iwae_samples = 3;
  settings.kappa_bits = 0.5;
  const std::vector<Tokens> sequences = mixed_sequences(11);
  const Likelihood whole = measure(engine, sequences, settings);
  for (const int64_t batch_tokens : {0, 1, 7, 13, 20, 50}) {
    SCOPED_TRACE(batch_tokens);
    const Likelihood found = measure(engine, sequences, settings, batch_tokens);
    EXPECT_EQ(found.bound_sums, whole.bound_sums);
    EXPECT_EQ(found.iwae_sums, whole.iwae_sums);
    EXPECT_EQ(found.token_counts, whole.token_counts);
    EXPECT_EQ(to_json(found).dump(), to_json(whole).dump());
  }
}

TEST(MeasureLikelihood, FillsBatchesUpToTheirSize) {
  FakeEngine engine(fake_config(3));
  const std::vector<Tokens> sequences = {{1, 2, 3}, {1, 2}, {1, 2, 3, 4, 5, 6, 7}, {1, 2}, {1, 2}};
  measure(engine, sequences, {}, 5);
  std::vector<size_t> counts;
  for (const auto& call : engine.encode_calls) counts.push_back(call.size());
  EXPECT_THAT(counts, ElementsAre(2, 1, 2));  // the third is too large for any, and goes alone
}

TEST(MeasureLikelihood, TellsItsProgressBetweenPasses) {
  FakeEngine engine(fake_config(3));
  const std::vector<Tokens> sequences(4, Tokens{1, 2, 3});
  std::vector<double> shares;
  const auto progress = [&](double share) {
    shares.push_back(share);
    return true;
  };
  LikelihoodSettings settings;
  settings.iwae_samples = 2;
  EXPECT_TRUE(measure_likelihood(engine, sequences, settings, progress, 6).has_value());
  // Two batches of two draws each: before each draw, and after each batch.
  EXPECT_THAT(shares, ElementsAre(0, 0.25, 0.5, 0.5, 0.75, 1));
}

TEST(MeasureLikelihood, StopsBetweenTheDrawsOfABatch) {
  FakeEngine engine(fake_config(3));
  const std::vector<Tokens> sequences(4, Tokens{1, 2, 3});
  LikelihoodSettings settings;
  settings.iwae_samples = 1000;
  int calls = 0;
  const auto progress = [&](double) { return ++calls < 5; };
  EXPECT_FALSE(measure_likelihood(engine, sequences, settings, progress, 100).has_value());
  EXPECT_EQ(calls, 5);
}

TEST(MeasureLikelihood, StopsWhenProgressSaysSo) {
  FakeEngine engine(fake_config(3));
  const std::vector<Tokens> sequences(4, Tokens{1, 2, 3});
  const auto progress = [](double share) { return share < 0.5; };
  EXPECT_FALSE(measure_likelihood(engine, sequences, {}, progress, 3).has_value());
  EXPECT_EQ(engine.encode_calls.size(), 2U);
}

// --- Health of the latent ------------------------------------------------------------------------

TEST(LatentHealth, AgreesWithANaiveComputation) {
  constexpr int kBits = 3;
  constexpr double kKappa = 0.4;
  FakeEngine engine(fake_config(kBits));
  const std::vector<Tokens> sequences = mixed_sequences(11);
  LikelihoodSettings settings;
  settings.kappa_bits = kKappa;
  settings.iwae_samples = 2;
  const LatentHealth found = measure(engine, sequences, settings, 20).health;

  std::vector<long double> by_bit(kBits);
  std::map<int32_t, int64_t> counts;
  long double hinged = 0;
  int64_t positions = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const size_t T = sequences[i].size() - 1;
    const std::vector<std::span<const int32_t>> inputs = {std::span(sequences[i]).first(T)};
    const std::vector<float> bit_logits = engine.encode(inputs)[0];
    for (size_t t = 0; t < T; ++t, ++positions) {
      long double kl = 0;
      for (size_t h = 0; h < kBits; ++h) {
        const long double p =
            1 / (1 + std::exp(-static_cast<long double>(bit_logits[t * kBits + h])));
        const long double bit = p * std::log2(2 * p) + (1 - p) * std::log2(2 * (1 - p));
        by_bit[h] += bit;
        kl += bit;
      }
      hinged += std::max(0.0L, kl - kKappa);
      std::vector<float> draws(kBits);
      RandomSource(0, RandomStream::kLatent).uniforms(i, uint32_t(t), kBits, draws.data());
      ++counts[draw_code(std::span(bit_logits).subspan(t * kBits, kBits), draws)];
    }
  }
  long double entropy = 0, total = 0;
  for (const auto& [code, count] : counts) {
    const long double share = static_cast<long double>(count) / positions;
    entropy -= share * std::log2(share);
  }
  ASSERT_EQ(found.kl_bits_by_bit.size(), size_t{kBits});
  for (size_t h = 0; h < kBits; ++h) {
    EXPECT_NEAR(found.kl_bits_by_bit[h], double(by_bit[h] / positions), 1e-12);
    total += by_bit[h] / positions;
  }
  EXPECT_NEAR(found.kl_bits, double(total), 1e-12);
  EXPECT_NEAR(found.hinged_bits, double(hinged / positions), 1e-12);
  EXPECT_GT(found.hinged_bits, found.kl_bits - kKappa);  // some positions stay below κ
  EXPECT_LT(found.hinged_bits, found.kl_bits);
  EXPECT_NEAR(found.code_entropy_bits, double(entropy), 1e-12);
  EXPECT_EQ(found.bits_alive, kBits);
}

TEST(LatentHealth, ABitIsAliveFromAHundredthOfABitOn) {
  FakeEngine engine(fake_config(5));
  engine.fixed_bit_logits = {0, 0.234F, -0.237F, 6, -20};
  const LatentHealth found = measure(engine, mixed_sequences(11), {}).health;
  ASSERT_EQ(found.kl_bits_by_bit.size(), 5U);
  EXPECT_EQ(found.kl_bits_by_bit[0], 0);
  EXPECT_THAT(found.kl_bits_by_bit[1], Lt(0.01));
  EXPECT_THAT(found.kl_bits_by_bit[2], Gt(0.01));
  EXPECT_NEAR(found.kl_bits_by_bit[4], 1, 1e-6);
  EXPECT_EQ(found.bits_alive, 3);
}

TEST(LatentHealth, CodesThatAreAlwaysTheSameHaveNoEntropy) {
  FakeEngine engine(fake_config(2));
  engine.fixed_bit_logits = {-50, 50};
  const LatentHealth found = measure(engine, mixed_sequences(11), {}).health;
  EXPECT_EQ(found.code_entropy_bits, 0);
  EXPECT_NEAR(found.kl_bits, 2, 1e-9);
}

// --- Standard errors -----------------------------------------------------------------------------

TEST(RatioEstimate, AgreesWithACaseByHand) {
  // 8/3 a token; both sequences are 2/3 off: sqrt(2/1 * 8/9) / 3.
  const Estimate found = ratio_estimate(std::vector<double>{2, 6}, std::vector<int64_t>{1, 2});
  EXPECT_DOUBLE_EQ(found.mean, 8.0 / 3);
  EXPECT_DOUBLE_EQ(found.standard_error, 4.0 / 9);
}

TEST(RatioEstimate, OfSequencesThatAgreeHasNoError) {
  const Estimate found =
      ratio_estimate(std::vector<double>{2, 6, 10}, std::vector<int64_t>{1, 3, 5});
  EXPECT_EQ(found.mean, 2);
  EXPECT_EQ(found.standard_error, 0);
}

TEST(RatioEstimate, OneSequenceHasNoSpread) {
  const Estimate found = ratio_estimate(std::vector<double>{6}, std::vector<int64_t>{3});
  EXPECT_EQ(found.mean, 2);
  EXPECT_TRUE(std::isnan(found.standard_error));
}

TEST(RatioEstimate, ItsErrorIsTheSpreadOfItsMean) {
  constexpr size_t kSets = 2000, kSequences = 40;
  const RandomSource source(1, RandomStream::kData);
  std::vector<double> means;
  double mean_square_error = 0;
  for (size_t set = 0; set < kSets; ++set) {
    std::vector<double> sums;
    std::vector<int64_t> counts;
    for (size_t i = 0; i < kSequences; ++i) {
      const PhiloxBlock numbers = source.block(set, uint32_t(i), 0);
      counts.push_back(1 + int64_t(numbers[0] % 9));
      // Texts differ in how hard they are: the noise is shared by a sequence's tokens.
      sums.push_back(double(counts.back()) * (2 + unit_float(numbers[1])));
    }
    const Estimate estimate = ratio_estimate(sums, counts);
    means.push_back(estimate.mean);
    mean_square_error += std::pow(estimate.standard_error, 2) / kSets;
  }
  const MeanWithError spread(means);
  EXPECT_NEAR(spread.mean, 2.5, 4 * spread.error);
  EXPECT_NEAR(std::sqrt(mean_square_error) / (spread.error * std::sqrt(double(kSets))), 1, 0.06);
}

// --- JSON ----------------------------------------------------------------------------------------

std::vector<std::string> keys_of(const OrderedJson& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

TEST(LikelihoodJson, NamesWhatEveryFigureIs) {
  FakeEngine engine(fake_config(2));
  LikelihoodSettings settings;
  settings.iwae_samples = 3;
  const Likelihood likelihood = measure(engine, mixed_sequences(11), settings);
  const OrderedJson json = to_json(likelihood);
  EXPECT_THAT(keys_of(json), ElementsAre("sequences", "tokens", "posterior_ce", "kl", "elbo",
                                         "iwae", "prior_ce", "latent"));
  EXPECT_EQ(json["sequences"], 13);
  EXPECT_EQ(json["tokens"], likelihood.tokens);
  EXPECT_EQ(json["posterior_ce"]["nats_per_token"], likelihood.posterior_ce.mean);
  EXPECT_EQ(json["kl"]["nats_per_token"], likelihood.kl.mean);
  EXPECT_EQ(json["elbo"]["nats_per_token"], likelihood.elbo.mean);
  EXPECT_EQ(json["elbo"]["standard_error"], likelihood.elbo.standard_error);
  EXPECT_EQ(json["iwae"]["nats_per_token"], likelihood.iwae->mean);
  EXPECT_EQ(json["iwae"]["samples"], 3);
  EXPECT_EQ(json["prior_ce"]["nats_per_token"], likelihood.prior_ce->mean);
  EXPECT_THAT(keys_of(json["latent"]), ElementsAre("kl_bits", "hinged_bits", "kl_bits_by_bit",
                                                   "bits_alive", "code_entropy_bits"));
  EXPECT_EQ(json["latent"]["kl_bits_by_bit"].size(), 2U);
}

TEST(LikelihoodJson, OfAPlainModelHasOnlyItsCrossEntropy) {
  FakeEngine engine(fake_config(0));
  const std::vector<Tokens> one = {{1, 2, 3}};
  const OrderedJson json = to_json(measure(engine, one, {}));
  EXPECT_THAT(keys_of(json), ElementsAre("sequences", "tokens", "ce"));
  EXPECT_TRUE(json["ce"]["standard_error"].is_null());  // JSON has no NaN
}

// --- Completions ---------------------------------------------------------------------------------

const Tokens kPrompt = {3, 1, 4}, kCompletion = {1, 5, 9, 2};

TEST(ScoreCompletion, TheEncoderNeverSeesTheCompletion) {
  FakeEngine engine(fake_config(3));
  score_completion(engine, kPrompt, kCompletion, 5, 0, 0);
  ASSERT_EQ(engine.encode_calls.size(), 1U);
  EXPECT_THAT(engine.encode_calls[0], ElementsAre(kPrompt));
}

TEST(ScoreCompletion, CodesAreTheSameWhateverTheCompletionSays) {
  FakeEngine engine(fake_config(3));
  const Tokens other = {0, 0, 7, 10};
  score_completion(engine, kPrompt, kCompletion, 5, 0, 0);
  score_completion(engine, kPrompt, other, 5, 0, 0);
  ASSERT_EQ(engine.scored.size(), 10U);
  for (size_t k = 0; k < 5; ++k) {
    EXPECT_EQ(engine.scored[k].codes, engine.scored[5 + k].codes);
    EXPECT_NE(engine.scored[k].tokens, engine.scored[5 + k].tokens);
  }
}

TEST(ScoreCompletion, SamplesDiffer) {
  FakeEngine engine(fake_config(8));
  score_completion(engine, kPrompt, kCompletion, 20, 0, 0);
  std::set<Codes> all;
  for (const auto& scored : engine.scored) all.insert(scored.codes);
  EXPECT_EQ(all.size(), 20U);
}

TEST(ScoreCompletion, OneSampleAgreesWithACaseByHand) {
  constexpr int kBits = 3;
  FakeEngine engine(fake_config(kBits));
  const std::vector<std::span<const int32_t>> texts = {kPrompt};
  const std::vector<float> bit_logits = engine.encode(texts)[0];
  Codes codes;
  for (size_t t = 0; t < 6; ++t) {
    std::vector<float> uniforms(kBits);
    RandomSource(7, RandomStream::kLatent).uniforms(9, uint32_t(t), kBits, uniforms.data());
    int32_t code = 0;
    for (size_t h = 0; h < kBits; ++h) {
      const double p = t < kPrompt.size() ? sigmoid(bit_logits[t * kBits + h]) : 0.5;
      code |= int32_t(uniforms[h] < p) << h;
    }
    codes.push_back(code);
  }
  const Tokens tokens = {3, 1, 4, 1, 5, 9, 2};
  const std::vector<float> scores = engine.score(std::vector<Engine::Score>{{tokens, codes}})[0];
  EXPECT_EQ(score_completion(engine, kPrompt, kCompletion, 1, 7, 9),
            sum_of(std::span(scores).last(4)));
}

TEST(ScoreCompletion, ALongImprobableCompletionDoesNotUnderflow) {
  FakeEngine engine(fake_config(2));
  engine.logit_scale = 3000;
  const double score = score_completion(engine, kPrompt, kCompletion, 8, 0, 0);
  EXPECT_TRUE(std::isfinite(score));
  EXPECT_LT(score, -1000);
}

TEST(ScoreCompletion, OfAPlainModelIsTheSumOfItsScores) {
  FakeEngine engine(fake_config(0));
  const Tokens tokens = {3, 1, 4, 1, 5, 9, 2};
  const std::vector<float> scores = engine.score(std::vector<Engine::Score>{{tokens, {}}})[0];
  for (const int64_t samples : {1, 16}) {
    EXPECT_EQ(score_completion(engine, kPrompt, kCompletion, samples, 0, 0),
              sum_of(std::span(scores).last(4)));
  }
  EXPECT_TRUE(engine.encode_calls.empty());
}

TEST(ScoreCompletion, NeedsAPromptACompletionAndASample) {
  FakeEngine engine(fake_config(2));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "prompt.empty()",
                          score_completion(engine, {}, kCompletion, 1, 0, 0));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "completion.empty()",
                          score_completion(engine, kPrompt, {}, 1, 0, 0));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "samples >= 1",
                          score_completion(engine, kPrompt, kCompletion, 0, 0, 0));
}

}  // namespace
}  // namespace freeformer
