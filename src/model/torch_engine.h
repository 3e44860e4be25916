// The LibTorch model behind the Engine port.
#pragma once

#include <map>
#include <string>

#include "engine/engine.h"
#include "model/free_transformer.h"

namespace freeformer {

class TorchEngine : public Engine {
 public:
  // Shares the model (a training one, for instance); weights may change between calls, not while
  // sequences are open.
  explicit TorchEngine(FreeTransformer model);

  const ModelConfig& config() const override { return model_->config(); }
  std::vector<Prefilled> prefill(std::span<const Prefill> requests) override;
  std::vector<std::vector<float>> decode(std::span<const Decode> requests) override;
  void release(Sequence sequence) override;
  std::vector<std::vector<float>> score(std::span<const Score> requests) override;
  std::vector<std::vector<float>> encode(std::span<const std::span<const int32_t>> texts) override;

  int64_t open_sequences() const { return int64_t(caches_.size()); }

  // Keys and values of one sequence's past.
  struct Cache {
    int64_t length = 0;
    std::vector<Tensor> keys_SKH, values_SKH;  // per layer, with room to grow
  };

 private:
  struct Row;
  class PackedAttention;
  struct Packed;
  Packed pack(std::span<const Row> rows) const;
  std::vector<std::vector<float>> last_logits(const Tensor& hidden_MD, std::span<const Row> rows);

  FreeTransformer model_;
  std::map<Sequence, Cache> caches_;
  Sequence next_sequence_ = 1;
};

// Opens a checkpoint. `device` is LibTorch's name; `precision` fp32 or bf16.
std::unique_ptr<Engine> open_torch_engine(const std::string& folder, const std::string& device,
                                          const std::string& precision);

}  // namespace freeformer
