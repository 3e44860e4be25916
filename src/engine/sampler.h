// Choosing the next token from logits: the names, the defaults and the order of llama.cpp.
//
//   logit bias → penalties → top-k → top-p → min-p → temperature → draw
//
// A temperature of 0 or less takes the most likely token (the lowest id among equals). The draw is
// one Philox number for (seed, sequence, position): the same whatever else runs beside it.
//
// A logit that is NaN or -infinity has probability 0 and is never chosen; those that are +infinity
// share the whole probability.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace freeformer {

struct SamplingSettings {
  double temperature = 0.8;
  int64_t top_k = 40;                    // 0: all
  double top_p = 0.95;                   // 1: off
  double min_p = 0.05;                   // times the largest probability; 0: off
  double repeat_penalty = 1.0;           // 1: off
  int64_t repeat_last_n = 64;            // tokens that penalties look back on; 0: off, -1: all
  double presence_penalty = 0.0;         // 0: off
  double frequency_penalty = 0.0;        // 0: off
  std::map<int32_t, double> logit_bias;  // token -> added to its logit; -infinity bans
  uint64_t seed = 0;
};

// Throws kInvalidArgument, naming the setting as the command line does: "--top-p is 2, expected …".
void check(const SamplingSettings& settings, int64_t vocab_size);

struct TokenProbability {
  int32_t token = 0;
  double log_probability = 0;
};

struct SampledToken {
  int32_t token = 0;
  // Under the model's own distribution (softmax of the raw logits, before everything above).
  double log_probability = 0;
  // The most likely ones first, under the same distribution; none of probability 0.
  std::vector<TokenProbability> top;
};

// `history` holds the prompt and what was generated. `position` is the new token's place in the
// sequence. `logprobs` is how many alternatives to report. Throws kInternal if no logit is finite
// (a broken model), or kInvalidArgument if the bias bans every token. `settings` have passed
// check().
SampledToken sample_token(std::span<const float> logits, std::span<const int32_t> history,
                          const SamplingSettings& settings, uint64_t sequence, uint32_t position,
                          int logprobs = 0);

// log softmax(logits)[token], summed in fp64.
double log_probability(std::span<const float> logits, int32_t token);

}  // namespace freeformer
