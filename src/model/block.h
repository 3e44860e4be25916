// The transformer block and its parts. Module names are the checkpoint's names.
#pragma once

#include "core/model_config.h"
#include "ops/layers.h"

namespace freeformer {

// A linear layer without bias. Unlike torch::nn::Linear it does not draw weights that are about to
// be overwritten, which takes minutes at 8B parameters.
class LinearImpl : public torch::nn::Module {
 public:
  LinearImpl(int64_t in, int64_t out);
  Tensor forward(const Tensor& x) const { return ops::linear(x, weight); }

  Tensor weight;  // [out, in]
};
TORCH_MODULE(Linear);

// A table whose rows are looked up.
class EmbeddingImpl : public torch::nn::Module {
 public:
  EmbeddingImpl(int64_t rows, int64_t D);
  Tensor forward(const Tensor& index_BT) const { return ops::embedding(index_BT, weight); }

  Tensor weight;  // [rows, D]
};
TORCH_MODULE(Embedding);

class RmsNormImpl : public torch::nn::Module {
 public:
  RmsNormImpl(int64_t D, double eps);
  Tensor forward(const Tensor& x) const { return ops::rms_norm(x, weight, eps_); }

  Tensor weight;  // [D]

 private:
  double eps_;
};
TORCH_MODULE(RmsNorm);

// The encoder's place in numberings of layers 0..L-1.
inline constexpr int64_t kEncoderLayer = -1;

// Attention that reaches beyond the rows at hand: sequences with a past, kept by whoever runs them.
class SequenceAttention {
 public:
  virtual ~SequenceAttention() = default;
  // Takes the new positions' queries, keys and values of one layer; returns [B, T, N, H].
  virtual Tensor attend(int64_t layer, const Tensor& q_BTNH, const Tensor& k_BTKH,
                        const Tensor& v_BTKH) = 0;
};

// What every attention of a forward pass shares.
struct AttentionContext {
  ops::RotaryTable rotary;
  Tensor documents_BT;                     // undefined: one document
  SequenceAttention* sequences = nullptr;  // set: it attends, and knows who sees whom
};

class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(const ModelConfig& config, int64_t layer);
  // Queries from q_BTD, keys and values from kv_BTD. Causal but in the encoder.
  Tensor forward(const Tensor& q_BTD, const Tensor& kv_BTD, const AttentionContext& context);

  Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, o_proj{nullptr};

 private:
  int64_t layer_, N_, K_, H_;
};
TORCH_MODULE(Attention);

class MlpImpl : public torch::nn::Module {
 public:
  explicit MlpImpl(const ModelConfig& config);
  Tensor forward(const Tensor& x_BTD);

  Linear gate_proj{nullptr}, up_proj{nullptr}, down_proj{nullptr};
};
TORCH_MODULE(Mlp);

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const ModelConfig& config, int64_t layer);
  // The residual stream and the queries are x_BTD; keys and values come from kv_BTD, through the
  // block's one input norm.
  Tensor forward(const Tensor& x_BTD, const Tensor& kv_BTD, const AttentionContext& context);

  RmsNorm input_layernorm{nullptr}, post_attention_layernorm{nullptr};
  Attention self_attn{nullptr};
  Mlp mlp{nullptr};
};
TORCH_MODULE(Block);

}  // namespace freeformer
