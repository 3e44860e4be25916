#include "model/block.h"

namespace freeformer {

LinearImpl::LinearImpl(int64_t in, int64_t out) {
  weight = register_parameter("weight", at::empty({out, in}));
}

EmbeddingImpl::EmbeddingImpl(int64_t rows, int64_t D) {
  weight = register_parameter("weight", at::empty({rows, D}));
}

RmsNormImpl::RmsNormImpl(int64_t D, double eps) : eps_(eps) {
  weight = register_parameter("weight", at::ones({D}));
}

AttentionImpl::AttentionImpl(const ModelConfig& config, int64_t layer)
    : layer_(layer),
      N_(config.num_attention_heads),
      K_(config.num_key_value_heads),
      H_(config.head_dim) {
  const int64_t D = config.hidden_size;
  q_proj = register_module("q_proj", Linear(D, N_ * H_));
  k_proj = register_module("k_proj", Linear(D, K_ * H_));
  v_proj = register_module("v_proj", Linear(D, K_ * H_));
  o_proj = register_module("o_proj", Linear(N_ * H_, D));
}

Tensor AttentionImpl::forward(const Tensor& q_BTD, const Tensor& kv_BTD,
                              const AttentionContext& context) {
  const int64_t B = q_BTD.size(0), T = q_BTD.size(1);
  const Tensor q_BTNH = ops::rope(q_proj(q_BTD).view({B, T, N_, H_}), context.rotary);
  const Tensor k_BTKH = ops::rope(k_proj(kv_BTD).view({B, T, K_, H_}), context.rotary);
  const Tensor v_BTKH = v_proj(kv_BTD).view({B, T, K_, H_});
  const Tensor out_BTNH =
      context.sequences != nullptr
          ? context.sequences->attend(layer_, q_BTNH, k_BTKH, v_BTKH)
          : ops::attention(q_BTNH, k_BTKH, v_BTKH, {layer_ != kEncoderLayer, context.documents_BT});
  return o_proj(out_BTNH.flatten(2));
}

MlpImpl::MlpImpl(const ModelConfig& config) {
  const int64_t D = config.hidden_size, F = config.intermediate_size;
  gate_proj = register_module("gate_proj", Linear(D, F));
  up_proj = register_module("up_proj", Linear(D, F));
  down_proj = register_module("down_proj", Linear(F, D));
}

Tensor MlpImpl::forward(const Tensor& x_BTD) {
  return down_proj(ops::swiglu(gate_proj(x_BTD), up_proj(x_BTD)));
}

BlockImpl::BlockImpl(const ModelConfig& config, int64_t layer) {
  const int64_t D = config.hidden_size;
  input_layernorm = register_module("input_layernorm", RmsNorm(D, config.rms_norm_eps));
  self_attn = register_module("self_attn", Attention(config, layer));
  post_attention_layernorm =
      register_module("post_attention_layernorm", RmsNorm(D, config.rms_norm_eps));
  mlp = register_module("mlp", Mlp(config));
}

Tensor BlockImpl::forward(const Tensor& x_BTD, const Tensor& kv_BTD,
                          const AttentionContext& context) {
  const Tensor q_norm = input_layernorm(x_BTD);
  const Tensor kv_norm = kv_BTD.is_same(x_BTD) ? q_norm : input_layernorm(kv_BTD);
  const Tensor h_BTD = x_BTD + self_attn(q_norm, kv_norm, context);
  return h_BTD + mlp(post_attention_layernorm(h_BTD));
}

}  // namespace freeformer
