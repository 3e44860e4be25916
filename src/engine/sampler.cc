#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/philox.h"

namespace freeformer {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Candidate {
  double logit;
  int32_t token;
};

// A total order, so that no sorting algorithm has a say in the result.
bool more_likely(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// logit - max, where an infinite maximum is at distance 0 of itself and leaves nothing to others.
double below_max(double logit, double max) { return logit == max ? 0 : logit - max; }

// Candidates of which only as many are sorted as are looked at: most draws end among the first few
// of 131,072, and a full sort takes a hundred times as long as reading the logits.
class Candidates {
 public:
  // In order of their tokens, none NaN, at least one.
  explicit Candidates(std::vector<Candidate> items) : items_(std::move(items)) {
    FF_CHECK(!items_.empty());
    best_ = *std::min_element(items_.begin(), items_.end(), more_likely);
  }

  size_t size() const { return items_.size(); }
  const Candidate& best() const { return best_; }

  const Candidate& ranked(size_t rank) {
    if (rank >= sorted_) sort_first(std::max({rank + 1, sorted_ * 8, size_t{256}}));
    return items_[rank];
  }

  void keep_first(size_t count) {
    if (count >= items_.size()) return;
    sort_first(count);
    items_.resize(count);
    sorted_ = count;
  }

  void keep_down_to(double logit) {
    std::erase_if(items_, [&](const Candidate& candidate) { return candidate.logit < logit; });
    sorted_ = std::min(sorted_, items_.size());  // those that go are behind those that stay
  }

  // exp of the scaled distance to the maximum: a probability but for its normalisation.
  double weight(const Candidate& candidate, double temperature) const {
    return std::exp(below_max(candidate.logit, best_.logit) / temperature);
  }

  // In order of tokens or, if all are sorted, of ranks: never in an order left over by sorting
  // some, which differs between standard libraries and would round differently.
  double total_weight(double temperature) const {
    FF_DCHECK(sorted_ == 0 || sorted_ == items_.size());
    double total = 0;
    for (const Candidate& candidate : items_) total += weight(candidate, temperature);
    return total;
  }

 private:
  void sort_first(size_t count) {
    constexpr size_t kFew = 4096;  // a heap of so many is faster than partitioning them all
    count = std::min(count, items_.size());
    if (count <= sorted_) return;
    const auto from = items_.begin() + std::ptrdiff_t(sorted_);
    const auto to = items_.begin() + std::ptrdiff_t(count);
    if (count <= kFew) {
      std::partial_sort(from, to, items_.end(), more_likely);
    } else {
      std::nth_element(from, to, items_.end(), more_likely);
      std::sort(from, to, more_likely);
    }
    sorted_ = count;
  }

  std::vector<Candidate> items_;
  size_t sorted_ = 0;  // so many at the front are in their final place
  Candidate best_;
};

// The model's own distribution.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits) : logits_(logits) {
    bool any_finite = false;
    for (const float logit : logits) {
      if (logit > max_) max_ = logit;  // false for NaN
      any_finite |= std::isfinite(logit);
    }
    if (!any_finite) {
      fail(ErrorCode::kInternal, "none of the model's {} logits is a finite number", logits.size());
    }
    double sum = 0;
    for (const float logit : logits) {
      if (!std::isnan(logit)) sum += std::exp(below_max(logit, max_));
    }
    log_sum_ = std::log(sum);
  }

  double operator[](int32_t token) const {
    FF_CHECK(token >= 0 && size_t(token) < logits_.size());
    const double logit = logits_[size_t(token)];
    return std::isnan(logit) ? -kInfinity : below_max(logit, max_) - log_sum_;
  }

 private:
  std::span<const float> logits_;
  double max_ = -kInfinity;
  double log_sum_;
};

std::vector<Candidate> all_tokens(std::span<const float> logits) {
  std::vector<Candidate> tokens(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) tokens[i] = {logits[i], int32_t(i)};
  return tokens;
}

Candidate& find(std::vector<Candidate>& tokens, int32_t token) {
  FF_CHECK(token >= 0 && size_t(token) < tokens.size());
  return tokens[size_t(token)];
}

// What cannot be chosen: banned, or not a number.
void drop_impossible(std::vector<Candidate>& tokens) {
  std::erase_if(tokens, [](const Candidate& candidate) { return !(candidate.logit > -kInfinity); });
}

void apply_penalties(std::span<const int32_t> history, const SamplingSettings& settings,
                     std::vector<Candidate>& tokens) {
  if (settings.repeat_penalty == 1 && settings.presence_penalty == 0 &&
      settings.frequency_penalty == 0) {
    return;
  }
  if (settings.repeat_last_n >= 0) {
    history = history.last(std::min(size_t(settings.repeat_last_n), history.size()));
  }
  std::unordered_map<int32_t, int64_t> counts;
  for (const int32_t token : history) ++counts[token];
  for (const auto& [token, count] : counts) {
    double& logit = find(tokens, token).logit;
    // Dividing a negative logit would make its token more likely.
    logit = logit > 0 ? logit / settings.repeat_penalty : logit * settings.repeat_penalty;
    logit -= double(count) * settings.frequency_penalty + settings.presence_penalty;
  }
}

Candidates candidates_of(std::span<const float> logits, std::span<const int32_t> history,
                         const SamplingSettings& settings) {
  std::vector<Candidate> tokens = all_tokens(logits);
  for (const auto& [token, bias] : settings.logit_bias) find(tokens, token).logit += bias;
  apply_penalties(history, settings, tokens);
  drop_impossible(tokens);
  if (tokens.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "--logit-bias and the penalties ban all {} tokens, expected at least one left",
         logits.size());
  }
  return Candidates(std::move(tokens));
}

// Keeps the fewest whose probabilities reach `top_p` together.
void apply_top_p(double top_p, Candidates& candidates) {
  if (top_p >= 1) return;
  const double enough = top_p * candidates.total_weight(1);
  double sum = 0;
  size_t count = 0;
  do {
    sum += candidates.weight(candidates.ranked(count++), 1);
  } while (sum < enough && count < candidates.size());
  candidates.keep_first(count);
}

// The first candidate at which the cumulative probability exceeds `uniform` in [0, 1).
int32_t draw(double uniform, double temperature, Candidates& candidates) {
  const double target = uniform * candidates.total_weight(temperature);
  double sum = 0;
  int32_t token = 0;
  for (size_t rank = 0; rank < candidates.size() && sum <= target; ++rank) {
    const Candidate& candidate = candidates.ranked(rank);
    const double weight = candidates.weight(candidate, temperature);
    if (weight == 0) break;  // the sum fell short of the total by a rounding error
    sum += weight;
    token = candidate.token;
  }
  return token;
}

// Two words make the 53 bits of a double: 24 would never reach the tail of a large vocabulary.
double token_uniform(uint64_t seed, uint64_t sequence, uint32_t position) {
  const PhiloxBlock numbers = RandomSource(seed, RandomStream::kToken).block(sequence, position, 0);
  return double((uint64_t{numbers[0]} << 32 | numbers[1]) >> 11) * 0x1p-53;
}

int32_t choose(Candidates candidates, const SamplingSettings& settings, uint64_t sequence,
               uint32_t position) {
  // No filter removes the most likely token.
  if (settings.temperature <= 0) return candidates.best().token;
  if (settings.top_k > 0) candidates.keep_first(size_t(settings.top_k));
  apply_top_p(settings.top_p, candidates);
  if (settings.min_p > 0)
    candidates.keep_down_to(candidates.best().logit + std::log(settings.min_p));
  return draw(token_uniform(settings.seed, sequence, position), settings.temperature, candidates);
}

std::vector<TokenProbability> most_likely(std::span<const float> logits,
                                          const LogSoftmax& log_probabilities, int count) {
  std::vector<TokenProbability> top;
  if (count <= 0) return top;
  std::vector<Candidate> tokens = all_tokens(logits);
  drop_impossible(tokens);
  Candidates candidates(std::move(tokens));
  candidates.keep_first(size_t(count));
  for (size_t rank = 0; rank < candidates.size(); ++rank) {
    const int32_t token = candidates.ranked(rank).token;
    const double log_probability = log_probabilities[token];
    if (log_probability == -kInfinity) break;  // beside an infinite logit
    top.push_back({token, log_probability});
  }
  return top;
}

void require(bool condition, const char* flag, double found, const char* expected) {
  if (condition) return;
  fail(ErrorCode::kInvalidArgument, "{} is {}, expected {}", flag, found, expected);
}

}  // namespace

void check(const SamplingSettings& settings, int64_t vocab_size) {
  const auto finite = [](const char* flag, double value) {
    require(std::isfinite(value), flag, value, "a finite number");
  };
  const auto fraction = [](const char* flag, double value) {
    require(value >= 0 && value <= 1, flag, value, "0 to 1");
  };
  finite("--temp", settings.temperature);
  require(settings.top_k >= 0, "--top-k", double(settings.top_k), "1 or more, or 0 for all");
  fraction("--top-p", settings.top_p);
  fraction("--min-p", settings.min_p);
  require(std::isfinite(settings.repeat_penalty) && settings.repeat_penalty > 0, "--repeat-penalty",
          settings.repeat_penalty, "a finite number above 0");
  require(settings.repeat_last_n >= -1, "--repeat-last-n", double(settings.repeat_last_n),
          "0 or more, or -1 for all");
  finite("--presence-penalty", settings.presence_penalty);
  finite("--frequency-penalty", settings.frequency_penalty);
  for (const auto& [token, bias] : settings.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      fail(ErrorCode::kInvalidArgument, "--logit-bias names token {}, expected 0 to {}", token,
           vocab_size - 1);
    }
    if (std::isnan(bias)) {
      fail(ErrorCode::kInvalidArgument, "--logit-bias of token {} is nan, expected a number",
           token);
    }
  }
}

SampledToken sample_token(std::span<const float> logits, std::span<const int32_t> history,
                          const SamplingSettings& settings, uint64_t sequence, uint32_t position,
                          int logprobs) {
  const LogSoftmax log_probabilities(logits);
  const int32_t token =
      choose(candidates_of(logits, history, settings), settings, sequence, position);
  return {token, log_probabilities[token], most_likely(logits, log_probabilities, logprobs)};
}

double log_probability(std::span<const float> logits, int32_t token) {
  return LogSoftmax(logits)[token];
}

}  // namespace freeformer
