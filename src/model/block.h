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

// What every attention of a forward pass shares.
struct AttentionContext {
  ops::RotaryTable rotary;
  Tensor documents_BT;  // undefined: one document
};

class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const ModelConfig& config);
  // Queries from q_BTD, keys and values from kv_BTD.
  Tensor forward(const Tensor& q_BTD, const Tensor& kv_BTD, const AttentionContext& context,
                 bool causal);

  Linear q_proj{nullptr}, k_proj{nullptr}, v_proj{nullptr}, o_proj{nullptr};

 private:
  int64_t N_, K_, H_;
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
  BlockImpl(const ModelConfig& config, bool causal);
  // The residual stream and the queries are x_BTD; keys and values come from kv_BTD, through the
  // block's one input norm.
  Tensor forward(const Tensor& x_BTD, const Tensor& kv_BTD, const AttentionContext& context);

  RmsNorm input_layernorm{nullptr}, post_attention_layernorm{nullptr};
  Attention self_attn{nullptr};
  Mlp mlp{nullptr};

 private:
  bool causal_;
};
TORCH_MODULE(Block);

}  // namespace freeformer
