// Engines that write the letters task by rule, so that what a study must find is known: the codes
// decide the place, the noise, both or nothing.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/philox.h"
#include "data/synthetic.h"
#include "engine/engine.h"

namespace freeformer {

class LettersEngine : public Engine {
 public:
  struct Decides {
    bool place = false, noise = false;
  };
  LettersEngine(int bits, Decides decides) : decides_(decides) {
    config_.vocab_size = int64_t(std::string(kLettersAlphabet).size());
    config_.max_position_embeddings = kLettersLength + 1;
    if (bits > 0) config_.latent = {LatentKind::kBinary, bits, 0.125};
  }

  bool broken = false;  // writes the letter everywhere

  const ModelConfig& config() const override { return config_; }

  std::vector<Prefilled> prefill(std::span<const Prefill> requests) override {
    std::vector<Prefilled> results;
    for (const Prefill& request : requests) {
      Past past{request.tokens, request.codes, next_};
      results.push_back({next_, request.codes, logits(past)});
      open_[next_++] = past;
    }
    return results;
  }
  std::vector<std::vector<float>> decode(std::span<const Decode> requests) override {
    std::vector<std::vector<float>> results;
    for (const Decode& request : requests) {
      Past& past = open_.at(request.sequence);
      past.tokens.push_back(request.token);
      past.codes.push_back(request.code);
      results.push_back(logits(past));
    }
    return results;
  }
  void release(Sequence sequence) override { open_.erase(sequence); }
  std::vector<std::vector<float>> score(std::span<const Score> requests) override {
    std::vector<std::vector<float>> results;
    for (const Score& request : requests) {
      results.emplace_back(request.tokens.size() - 1, -0.25F);
    }
    return results;
  }
  // Bit 0 is sure at the first position, all else is a fair coin.
  std::vector<std::vector<float>> encode(std::span<const std::span<const int32_t>> texts) override {
    std::vector<std::vector<float>> results;
    for (const auto& text : texts) {
      results.emplace_back(text.size() * size_t(config_.latent.bits), 0.0F);
      results.back()[0] = 50;
    }
    return results;
  }

 private:
  struct Past {
    std::vector<int32_t> tokens, codes;
    Sequence sequence = 0;
  };

  // A place for a run: what the first two codes say, or the sequence's own.
  int place(const Past& past) const {
    const RandomSource random(7, RandomStream::kData);
    const uint64_t key = decides_.place ? uint64_t(past.codes[0]) << 20 | uint64_t(past.codes[1])
                                        : uint64_t(past.sequence);
    return int(random.block(key, 0, 0)[0] % 57);
  }

  std::vector<float> logits(const Past& past) const {
    const int at = int(past.tokens.size()) - 2;  // of the 64
    const bool in_run = at >= place(past) && at < place(past) + kLettersRun;
    const int expected = broken || in_run ? past.tokens[0] : 27;
    double noise = kLettersNoise;
    if (decides_.noise) noise = past.codes.back() % 16 == 0 ? 1 : 0;
    std::vector<float> logits(size_t(config_.vocab_size), -1e9F);
    logits[size_t(expected)] = noise < 1 ? float(std::log(1 - noise)) : -1e9F;
    logits[28] = noise > 0 ? float(std::log(noise)) : -1e9F;
    return logits;
  }

  ModelConfig config_;
  Decides decides_;
  std::map<Sequence, Past> open_;
  Sequence next_ = 1;
};

}  // namespace freeformer
