#include "engine/likelihood.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/philox.h"
#include "engine/bits.h"

namespace freeformer {
namespace {

constexpr double kAliveBits = 0.01;
const double kLn2 = std::log(2.0);

double sum(std::span<const float> values) {
  double total = 0;
  for (const float value : values) total += value;
  return total;
}

// Draw k of a sequence uses its own Philox seeds' positions: samples of one text must not repeat
// another's, so the sample's number is in the upper half of the sequence's.
uint64_t sample_sequence(uint64_t sequence, int64_t sample) {
  return sequence ^ uint64_t(sample) << 40;
}

// Everything about one batch of sequences.
class Measurement {
 public:
  Measurement(Engine& engine, const LikelihoodSettings& settings)
      : engine_(engine), settings_(settings), Z_(engine.config().latent.bits) {
    kl_by_bit_.resize(size_t(Z_));
  }

  // `goes_on(share)` is asked between passes; false where it stopped half way.
  bool add(std::span<const std::vector<int32_t>> sequences, uint64_t first_sequence,
           const LikelihoodProgress& goes_on);
  Likelihood result() const;

 private:
  using Codes = std::vector<std::vector<int32_t>>;

  bool add_latent(std::span<const std::vector<int32_t>> sequences, uint64_t first_sequence,
                  const LikelihoodProgress& goes_on);
  Codes draw_posterior(const std::vector<std::vector<float>>& bit_logits, uint64_t first_sequence,
                       int64_t sample) const;
  Codes draw_prior(std::span<const std::vector<int32_t>> sequences, uint64_t first_sequence) const;
  // Σ log P(tokens | codes) of every sequence.
  std::vector<double> log_likelihoods(std::span<const std::vector<int32_t>> sequences,
                                      const Codes& codes);
  double log_posterior(const std::vector<float>& bit_logits,
                       const std::vector<int32_t>& codes) const;
  void count_health(const std::vector<float>& bit_logits, const std::vector<int32_t>& codes);

  Engine& engine_;
  const LikelihoodSettings& settings_;
  int Z_;
  std::vector<int64_t> counts_;
  std::vector<double> ce_, kl_, elbo_, prior_ce_, iwae_;  // sums per sequence
  std::vector<double> kl_by_bit_;                         // sums over positions
  double hinged_ = 0;
  int64_t positions_ = 0;
  std::map<int32_t, int64_t> code_counts_;
};

Measurement::Codes Measurement::draw_posterior(const std::vector<std::vector<float>>& bit_logits,
                                               uint64_t first_sequence, int64_t sample) const {
  const RandomSource source(settings_.seed, RandomStream::kLatent);
  std::vector<float> uniforms(static_cast<size_t>(Z_));
  Codes codes;
  for (size_t i = 0; i < bit_logits.size(); ++i) {
    const size_t T = bit_logits[i].size() / size_t(Z_);
    std::vector<int32_t>& row = codes.emplace_back(T);
    for (size_t t = 0; t < T; ++t) {
      source.uniforms(sample_sequence(first_sequence + i, sample), uint32_t(t), Z_,
                      uniforms.data());
      row[t] = draw_code(std::span(bit_logits[i]).subspan(t * size_t(Z_), size_t(Z_)), uniforms);
    }
  }
  return codes;
}

Measurement::Codes Measurement::draw_prior(std::span<const std::vector<int32_t>> sequences,
                                           uint64_t first_sequence) const {
  // A posterior that knows nothing; no posterior draw has this sample's number.
  std::vector<std::vector<float>> flat;
  for (const auto& tokens : sequences) flat.emplace_back((tokens.size() - 1) * size_t(Z_), 0.0f);
  return draw_posterior(flat, first_sequence, 0xFFFFFF);
}

std::vector<double> Measurement::log_likelihoods(std::span<const std::vector<int32_t>> sequences,
                                                 const Codes& codes) {
  std::vector<Engine::Score> requests;
  for (size_t i = 0; i < sequences.size(); ++i) {
    requests.push_back({sequences[i], codes.empty() ? std::span<const int32_t>() : codes[i]});
  }
  std::vector<double> sums;
  for (const auto& scores : engine_.score(requests)) sums.push_back(sum(scores));
  return sums;
}

double Measurement::log_posterior(const std::vector<float>& bit_logits,
                                  const std::vector<int32_t>& codes) const {
  double total = 0;
  for (size_t t = 0; t < codes.size(); ++t) {
    total +=
        code_log_probability(std::span(bit_logits).subspan(t * size_t(Z_), size_t(Z_)), codes[t]);
  }
  return total;
}

void Measurement::count_health(const std::vector<float>& bit_logits,
                               const std::vector<int32_t>& codes) {
  double total = 0;
  for (size_t t = 0; t < codes.size(); ++t) {
    double kl = 0;
    for (size_t h = 0; h < size_t(Z_); ++h) {
      const double bit = bit_kl(bit_logits[t * size_t(Z_) + h]);
      kl_by_bit_[h] += bit;
      kl += bit;
    }
    hinged_ += std::max(0.0, kl - settings_.kappa_bits * kLn2);
    total += kl;
    ++code_counts_[codes[t]];
  }
  positions_ += int64_t(codes.size());
  kl_.push_back(total);
}

bool Measurement::add_latent(std::span<const std::vector<int32_t>> sequences,
                             uint64_t first_sequence, const LikelihoodProgress& goes_on) {
  // The encoder reads what the decoder reads: all tokens but the last, as in training.
  std::vector<std::span<const int32_t>> inputs;
  for (const auto& tokens : sequences) inputs.push_back(std::span(tokens).first(tokens.size() - 1));
  const std::vector<std::vector<float>> bit_logits = engine_.encode(inputs);

  const size_t first = ce_.size();
  std::vector<std::vector<double>> log_weights(sequences.size());  // of the K draws
  const int64_t samples = std::max<int64_t>(1, settings_.iwae_samples);
  for (int64_t k = 0; k < samples; ++k) {
    if (!goes_on(double(k) / double(samples))) return false;
    const Codes codes = draw_posterior(bit_logits, first_sequence, k);
    const std::vector<double> log_p = log_likelihoods(sequences, codes);
    for (size_t i = 0; i < sequences.size(); ++i) {
      if (k == 0) {
        count_health(bit_logits[i], codes[i]);
        ce_.push_back(-log_p[i]);
        elbo_.push_back(-log_p[i] + kl_[first + i]);
      }
      const double log_prior = -kLn2 * double(Z_) * double(codes[i].size());
      log_weights[i].push_back(log_p[i] + log_prior - log_posterior(bit_logits[i], codes[i]));
    }
  }
  if (settings_.iwae_samples > 0) {
    for (const std::vector<double>& weights : log_weights) {
      const double most = *std::max_element(weights.begin(), weights.end());
      double mean = 0;
      for (const double weight : weights) mean += std::exp(weight - most) / double(weights.size());
      iwae_.push_back(-(most + std::log(mean)));
    }
  }
  if (settings_.prior) {
    for (const double log_p : log_likelihoods(sequences, draw_prior(sequences, first_sequence))) {
      prior_ce_.push_back(-log_p);
    }
  }
  return true;
}

bool Measurement::add(std::span<const std::vector<int32_t>> sequences, uint64_t first_sequence,
                      const LikelihoodProgress& goes_on) {
  for (const auto& tokens : sequences) counts_.push_back(int64_t(tokens.size()) - 1);
  if (Z_ > 0) {
    return add_latent(sequences, first_sequence, goes_on);
  }
  for (const double log_p : log_likelihoods(sequences, {})) ce_.push_back(-log_p);
  return true;
}

Likelihood Measurement::result() const {
  Likelihood result;
  result.sequences = int64_t(counts_.size());
  for (const int64_t count : counts_) result.tokens += count;
  result.has_latent = Z_ > 0;
  result.token_counts = counts_;
  if (Z_ == 0) {
    result.ce = ratio_estimate(ce_, counts_);
    result.bound_sums = ce_;
    return result;
  }
  result.posterior_ce = ratio_estimate(ce_, counts_);
  result.kl = ratio_estimate(kl_, counts_);
  result.elbo = ratio_estimate(elbo_, counts_);
  result.bound_sums = elbo_;
  if (settings_.prior) result.prior_ce = ratio_estimate(prior_ce_, counts_);
  if (settings_.iwae_samples > 0) {
    result.iwae = ratio_estimate(iwae_, counts_);
    result.iwae_sums = iwae_;
    result.iwae_samples = settings_.iwae_samples;
  }
  const double per_position_bits = 1 / (kLn2 * double(positions_));
  for (const double kl : kl_by_bit_) {
    result.health.kl_bits_by_bit.push_back(kl * per_position_bits);
    result.health.kl_bits += kl * per_position_bits;
    result.health.bits_alive += kl * per_position_bits >= kAliveBits;
  }
  result.health.hinged_bits = hinged_ * per_position_bits;
  for (const auto& [code, count] : code_counts_) {
    const double share = double(count) / double(positions_);
    result.health.code_entropy_bits -= share * std::log2(share);
  }
  return result;
}

}  // namespace

Estimate ratio_estimate(std::span<const double> sums, std::span<const int64_t> counts) {
  double total = 0, tokens = 0;
  for (const double value : sums) total += value;
  for (const int64_t count : counts) tokens += double(count);
  const double mean = total / tokens;
  double squares = 0;
  for (size_t i = 0; i < sums.size(); ++i) {
    squares += std::pow(sums[i] - mean * double(counts[i]), 2);
  }
  const auto n = double(sums.size());
  // One sequence has no spread to tell the error from.
  return {mean, n < 2 ? std::nan("") : std::sqrt(n / (n - 1) * squares) / tokens};
}

std::optional<Likelihood> measure_likelihood(Engine& engine,
                                             std::span<const std::vector<int32_t>> sequences,
                                             const LikelihoodSettings& settings,
                                             const LikelihoodProgress& progress,
                                             int64_t batch_tokens) {
  if (sequences.empty()) {
    fail(ErrorCode::kInvalidArgument, "nothing to score: expected at least one sequence");
  }
  Measurement measurement(engine, settings);
  for (size_t begin = 0; begin < sequences.size();) {
    size_t end = begin;
    for (int64_t tokens = 0; end < sequences.size(); ++end) {
      if (sequences[end].size() < 2) {
        fail(ErrorCode::kInvalidArgument, "sequence {} has {} token(s), expected at least 2", end,
             sequences[end].size());
      }
      tokens += int64_t(sequences[end].size());
      if (end > begin && tokens > batch_tokens) break;
    }
    const auto goes_on = [&](double share) {
      const double done = double(begin) + share * double(end - begin);
      return !progress || progress(done / double(sequences.size()));
    };
    const auto batch = sequences.subspan(begin, end - begin);
    if (!measurement.add(batch, settings.first_sequence + begin, goes_on)) return std::nullopt;
    if (!goes_on(1.0) && end < sequences.size()) return std::nullopt;  // what is whole is kept
    begin = end;
  }
  return measurement.result();
}

OrderedJson to_json(const Likelihood& likelihood) {
  const auto estimate = [](const Estimate& e) {
    OrderedJson json;
    json["nats_per_token"] = e.mean;
    json["standard_error"] =
        std::isfinite(e.standard_error) ? OrderedJson(e.standard_error) : OrderedJson();
    return json;
  };
  OrderedJson json;
  json["sequences"] = likelihood.sequences;
  json["tokens"] = likelihood.tokens;
  if (!likelihood.has_latent) {
    json["ce"] = estimate(likelihood.ce);
    return json;
  }
  json["posterior_ce"] = estimate(likelihood.posterior_ce);
  json["kl"] = estimate(likelihood.kl);
  json["elbo"] = estimate(likelihood.elbo);
  if (likelihood.iwae) {
    json["iwae"] = estimate(*likelihood.iwae);
    json["iwae"]["samples"] = likelihood.iwae_samples;
  }
  if (likelihood.prior_ce) json["prior_ce"] = estimate(*likelihood.prior_ce);
  json["latent"] = {{"kl_bits", likelihood.health.kl_bits},
                    {"hinged_bits", likelihood.health.hinged_bits},
                    {"kl_bits_by_bit", likelihood.health.kl_bits_by_bit},
                    {"bits_alive", likelihood.health.bits_alive},
                    {"code_entropy_bits", likelihood.health.code_entropy_bits}};
  return json;
}

double score_completion(Engine& engine, std::span<const int32_t> prompt,
                        std::span<const int32_t> completion, int64_t samples, uint64_t seed,
                        uint64_t sequence) {
  FF_CHECK(!prompt.empty() && !completion.empty() && samples >= 1);
  std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  tokens.insert(tokens.end(), completion.begin(), completion.end());
  const auto completion_sum = [&](const std::vector<float>& scores) {
    return sum(std::span(scores).last(completion.size()));
  };
  const int Z = engine.config().latent.bits;
  if (Z == 0) return completion_sum(engine.score(std::vector<Engine::Score>{{tokens, {}}})[0]);

  const std::vector<std::span<const int32_t>> texts = {prompt};
  const std::vector<float> prompt_logits = engine.encode(texts)[0];
  const RandomSource source(seed, RandomStream::kLatent);
  std::vector<float> uniforms(static_cast<size_t>(Z));
  const std::vector<float> flat(static_cast<size_t>(Z), 0.0f);  // the prior
  std::vector<std::vector<int32_t>> codes;
  std::vector<Engine::Score> requests;
  for (int64_t k = 0; k < samples; ++k) {
    std::vector<int32_t>& row = codes.emplace_back(tokens.size() - 1);
    for (size_t t = 0; t < row.size(); ++t) {
      source.uniforms(sample_sequence(sequence, k), uint32_t(t), Z, uniforms.data());
      row[t] =
          draw_code(t < prompt.size() ? std::span(prompt_logits).subspan(t * size_t(Z), size_t(Z))
                                      : std::span(flat),
                    uniforms);
    }
  }
  for (const auto& row : codes) requests.push_back({tokens, row});
  std::vector<double> sums;
  for (const auto& scores : engine.score(requests)) sums.push_back(completion_sum(scores));
  const double most = *std::max_element(sums.begin(), sums.end());
  double mean = 0;
  for (const double value : sums) mean += std::exp(value - most) / double(samples);
  return most + std::log(mean);
}

}  // namespace freeformer
