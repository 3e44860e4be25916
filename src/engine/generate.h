// From prompts to texts, on any engine: draws codes by policy, samples tokens, stops. Every
// sequence is a pure function of its request and the model, alone or in a batch.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/latent_policy.h"
#include "engine/sampler.h"
#include "text/tokenizer.h"

namespace freeformer {

struct GenerateRequest {
  std::vector<int32_t> prompt;  // at least one token
  int64_t max_tokens = 128;
  LatentPolicy z;         // of a model with a latent; resolved (see resolve_latent_policy)
  uint64_t sequence = 0;  // its Philox sequence: requests that share seed and this share the draws
  SamplingSettings sampling;
  std::vector<std::string> stop;  // texts that end it, and are left out. Need a tokenizer.
  int logprobs = 0;
  bool use_cache = true;  // false: every step computes everything again (slow, to check the cache)
};

enum class FinishReason { kLength, kEndOfText, kStop, kContext, kCancelled };
const char* name(FinishReason reason);

struct GeneratedToken {
  SampledToken sampled;
  int32_t code = 0;  // the code of the position that predicted it; 0 for a plain decoder
};

struct GenerateResult {
  std::vector<int32_t> prompt_codes;
  std::vector<GeneratedToken> tokens;  // without the end-of-text token
  std::string text;                    // of the tokens, up to the stop; needs a tokenizer
  FinishReason reason = FinishReason::kLength;
};

// Called once for every token of the result, with the text that can be shown by now: none in which
// a stop text may have begun, none at all without a tokenizer. Text that an end of text sets free
// comes with that end's token. False cancels the request, and the result's text is what was shown.
using GenerateCallback =
    std::function<bool(size_t request, const GeneratedToken& token, const std::string& text)>;

// Throws kInvalidArgument where a request does not fit the model: unknown tokens, a policy on a
// plain decoder's request other than the default, a prompt over the context.
std::vector<GenerateResult> generate(Engine& engine, const Tokenizer* tokenizer,
                                     std::span<const GenerateRequest> requests,
                                     const GenerateCallback& callback = {});

// Fills in the codes of from:TEXT (the encoder's most likely) and file:PATH.
LatentPolicy resolve_latent_policy(LatentPolicy policy, Engine& engine, const Tokenizer* tokenizer);

}  // namespace freeformer
