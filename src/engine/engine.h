// The port through which every model is used: by the commands, the benchmarks, the server. Two
// adapters: the LibTorch model (model/torch_engine.h) and the native runtime. Both give the same
// answers.
//
// An engine knows nothing of seeds, policies or sampling: codes and uniforms come in, logits come
// out. What a sequence is asked alone is what it is asked in a batch, whatever its neighbours.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/model_config.h"

namespace freeformer {

class Engine {
 public:
  virtual ~Engine() = default;

  virtual const ModelConfig& config() const = 0;

  // A sequence with its past (keys and values of all layers), until it is released.
  using Sequence = int64_t;

  struct Prefill {
    std::vector<int32_t> tokens;  // at least one
    // Of a model with a latent, one of these two:
    std::vector<int32_t> codes;   // [T], given
    std::vector<float> uniforms;  // [T * Z]: the encoder reads the tokens; bit h of position t is 1
                                  // where its uniform is below its probability
  };
  struct Prefilled {
    Sequence sequence = 0;
    std::vector<int32_t> codes;  // [T]; empty for a plain decoder
    std::vector<float> logits;   // [V], for the token that follows
  };
  virtual std::vector<Prefilled> prefill(std::span<const Prefill> requests) = 0;

  struct Decode {
    Sequence sequence = 0;
    int32_t token = 0;
    int32_t code = 0;  // ignored by a plain decoder
  };
  // Appends one token to each sequence (no sequence twice): [V] logits each for what follows.
  virtual std::vector<std::vector<float>> decode(std::span<const Decode> requests) = 0;

  virtual void release(Sequence sequence) = 0;

  struct Score {
    std::span<const int32_t> tokens;  // T+1
    std::span<const int32_t> codes;   // of the first T; empty for a plain decoder
  };
  // log P(token t+1 | tokens and codes up to t), T values each.
  virtual std::vector<std::vector<float>> score(std::span<const Score> requests) = 0;

  // The encoder's bit logits of every token, [T * Z] each. Needs a latent.
  virtual std::vector<std::vector<float>> encode(
      std::span<const std::span<const int32_t>> texts) = 0;
};

}  // namespace freeformer
