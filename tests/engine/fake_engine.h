// An engine without a model, for tests of what uses one. Its logits are a pseudo-random function of
// all tokens and codes so far, its encoder's of all tokens it is given, so that nothing can be
// mixed up, left out or read ahead without changing the results. It minds its callers' manners
// (sizes, ranges, handles), and remembers what it was asked.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/philox.h"
#include "engine/bits.h"
#include "engine/engine.h"
#include "engine/sampler.h"

namespace freeformer {

using Tokens = std::vector<int32_t>;
using Codes = std::vector<int32_t>;

inline ModelConfig fake_config(int bits, int64_t vocab_size = 11, int64_t context = 32) {
  ModelConfig config;
  config.vocab_size = vocab_size;
  config.max_position_embeddings = context;
  if (bits > 0) config.latent = {LatentKind::kBinary, bits, 0.5};
  return config;
}

class FakeEngine : public Engine {
 public:
  struct Scored {
    Tokens tokens;
    Codes codes;
  };

  explicit FakeEngine(ModelConfig config) : config_(std::move(config)) {}
  ~FakeEngine() override { EXPECT_EQ(open_sequences(), 0) << "sequences that nobody released"; }

  // Logits lie in [-scale, scale).
  float logit_scale = 3, bit_logit_scale = 2;
  // By position in the sequence: a token that is made certain. Behind its end nothing is.
  Tokens script;
  // By bit: what the encoder says of every token; empty: pseudo-random.
  std::vector<float> fixed_bit_logits;

  // What it was asked, in order.
  std::vector<Prefill> prefills;
  int64_t decode_calls = 0;
  std::vector<std::vector<Tokens>> encode_calls;
  std::vector<Scored> scored;

  int64_t open_sequences() const { return int64_t(open_.size()); }

  const ModelConfig& config() const override { return config_; }

  std::vector<Prefilled> prefill(std::span<const Prefill> requests) override {
    std::vector<Prefilled> results;
    for (const Prefill& request : requests) {
      prefills.push_back(request);
      const size_t T = request.tokens.size();
      demand(T > 0 && int64_t(T) <= config_.max_position_embeddings, "prefill: tokens");
      Prefilled& result = results.emplace_back();
      result.codes = request.codes;
      if (Z() == 0) {
        demand(request.uniforms.empty(), "prefill: uniforms for a plain decoder");
      } else if (request.codes.empty()) {
        demand(request.uniforms.size() == T * Z(), "prefill: uniforms");
        const std::vector<float> bit_logits = encode_one(request.tokens);
        for (size_t t = 0; t < T; ++t) {
          result.codes.push_back(draw_code(std::span(bit_logits).subspan(t * Z(), Z()),
                                           std::span(request.uniforms).subspan(t * Z(), Z())));
        }
      } else {
        demand(request.uniforms.empty(), "prefill: codes and uniforms");
      }
      const Past past = read(request.tokens, result.codes);
      result.logits = logits(past);
      result.sequence = next_++;
      open_.emplace(result.sequence, past);
    }
    return results;
  }

  std::vector<std::vector<float>> decode(std::span<const Decode> requests) override {
    ++decode_calls;
    std::set<Sequence> seen;
    std::vector<std::vector<float>> results;
    for (const Decode& request : requests) {
      demand(open_.contains(request.sequence), "decode: a sequence that is not open");
      demand(seen.insert(request.sequence).second, "decode: a sequence twice");
      Past& past = open_.at(request.sequence);
      demand(past.length < config_.max_position_embeddings, "decode: over the context");
      append(past, request.token, Z() == 0 ? 0 : request.code);
      results.push_back(logits(past));
    }
    return results;
  }

  void release(Sequence sequence) override {
    EXPECT_EQ(open_.erase(sequence), 1U) << "release: a sequence that is not open";
  }

  std::vector<std::vector<float>> score(std::span<const Score> requests) override {
    std::vector<std::vector<float>> results;
    for (const Score& request : requests) {
      scored.push_back({Tokens(request.tokens.begin(), request.tokens.end()),
                        Codes(request.codes.begin(), request.codes.end())});
      demand(request.tokens.size() >= 2, "score: tokens");
      const size_t T = request.tokens.size() - 1;
      demand(request.codes.size() == (Z() == 0 ? 0 : T), "score: codes");
      Past past;
      std::vector<float>& scores = results.emplace_back();
      for (size_t t = 0; t < T; ++t) {
        append(past, request.tokens[t], Z() == 0 ? 0 : request.codes[t]);
        scores.push_back(float(log_probability(logits(past), request.tokens[t + 1])));
      }
    }
    return results;
  }

  std::vector<std::vector<float>> encode(std::span<const std::span<const int32_t>> texts) override {
    std::vector<Tokens>& call = encode_calls.emplace_back();
    std::vector<std::vector<float>> results;
    for (const auto& text : texts) {
      call.emplace_back(text.begin(), text.end());
      results.push_back(encode_one(text));
    }
    return results;
  }

 private:
  struct Past {
    uint64_t digest = 1;
    int64_t length = 0;
  };
  enum What : uint32_t { kAppend, kLogits, kEncoderRead, kBitLogits };

  static void demand(bool condition, const char* what) {
    if (condition) return;
    ADD_FAILURE() << "the engine was misused: " << what;
    throw std::logic_error(what);  // going on would read where nothing is
  }

  size_t Z() const { return size_t(config_.latent.bits); }

  void check_token(int32_t token) const {
    demand(token >= 0 && token < config_.vocab_size, "a token out of range");
  }

  static uint64_t mixed(uint64_t digest, int32_t token, int32_t code, What what) {
    const PhiloxBlock block = philox({uint32_t(token), uint32_t(code), what, 0}, digest);
    return uint64_t{block[0]} << 32 | block[1];
  }

  static std::vector<float> numbers(uint64_t digest, uint32_t index, What what, size_t count,
                                    float scale) {
    std::vector<float> values;
    for (uint32_t i = 0; values.size() < count; ++i) {
      for (const uint32_t number : philox({index, i, what, 0}, digest)) {
        values.push_back(scale * (2 * unit_float(number) - 1));
      }
    }
    values.resize(count);
    return values;
  }

  void append(Past& past, int32_t token, int32_t code) const {
    check_token(token);
    demand(code >= 0 && code < int64_t{1} << Z(), "a code out of range");
    past.digest = mixed(past.digest, token, code, kAppend);
    ++past.length;
  }

  Past read(const Tokens& tokens, const Codes& codes) const {
    demand(codes.size() == (Z() == 0 ? 0 : tokens.size()), "codes");
    Past past;
    for (size_t t = 0; t < tokens.size(); ++t) append(past, tokens[t], Z() == 0 ? 0 : codes[t]);
    return past;
  }

  std::vector<float> logits(const Past& past) const {
    std::vector<float> values =
        numbers(past.digest, 0, kLogits, size_t(config_.vocab_size), logit_scale);
    if (size_t(past.length) < script.size()) {
      values[size_t(script[size_t(past.length)])] += 100 * logit_scale;
    }
    return values;
  }

  std::vector<float> encode_one(std::span<const int32_t> tokens) const {
    demand(Z() > 0 && !tokens.empty(), "encode");
    uint64_t digest = 2;
    for (const int32_t token : tokens) {
      check_token(token);
      digest = mixed(digest, token, 0, kEncoderRead);
    }
    std::vector<float> bit_logits;
    for (size_t t = 0; t < tokens.size(); ++t) {
      const std::vector<float> of_token =
          fixed_bit_logits.empty() ? numbers(digest, uint32_t(t), kBitLogits, Z(), bit_logit_scale)
                                   : fixed_bit_logits;
      bit_logits.insert(bit_logits.end(), of_token.begin(), of_token.end());
    }
    return bit_logits;
  }

  ModelConfig config_;
  std::map<Sequence, Past> open_;
  Sequence next_ = 100;  // not an index by accident
};

}  // namespace freeformer
