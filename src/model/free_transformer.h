// The Free Transformer (arXiv 2510.17558): a Llama decoder that takes a latent code per token at
// its middle block. Without a latent in its configuration it is the plain decoder.
// The forward pass, FreeTransformerImpl::forward, is the paper's algorithm line by line.
#pragma once

#include <optional>

#include "core/model_config.h"
#include "model/block.h"
#include "ops/binary_mapper.h"

namespace freeformer {

struct Batch {
  Tensor tokens_BT;       // int64
  Tensor documents_BT{};  // int64, optional: each run of equal ids is a document packed in the row.
                          // Attention never leaves it and positions restart in it. A negative id is
                          // padding: its codes cost nothing.

  // For rows that continue sequences with a past: where each token stands, and who attends.
  Tensor positions_BT{};
  SequenceAttention* sequences = nullptr;
};

// Where the codes come from.
class LatentSource {
 public:
  // The encoder reads the tokens; bit h of token t is 1 where its uniform is below its probability.
  // With uniforms of 0.5 these are the most likely codes.
  static LatentSource posterior(Tensor uniforms_BTZ);
  // The same, but with these codes in place of the drawn ones: codes kept from an earlier draw.
  static LatentSource posterior_with_codes(Tensor codes_BT);
  // Uniform over the codes: every bit with probability 1/2.
  static LatentSource prior(Tensor uniforms_BTZ);
  static LatentSource given(Tensor codes_BT);
  // There are no codes, as if the model had no latent: for a decoder that is to learn first what
  // can be known without Z.
  static LatentSource asleep();

  // Only these tokens teach the encoder through the decoder: cheaper, unbiased, noisier.
  LatentSource with_gradient_of(ops::GradientSample sample) const;

  bool is_asleep() const { return asleep_; }
  bool reads_tokens() const { return reads_tokens_; }
  const ops::GradientSample& gradient_sample() const { return gradient_sample_; }
  const Tensor& uniforms_BTZ() const { return uniforms_BTZ_; }
  const Tensor& codes_BT() const { return codes_BT_; }

 private:
  bool reads_tokens_ = false, asleep_ = false;
  Tensor uniforms_BTZ_, codes_BT_;
  ops::GradientSample gradient_sample_;
};

struct ForwardResult {
  Tensor hidden_BTD;      // after the final norm; logits() reads it out
  Tensor codes_BT;        // z; undefined without a latent, and where it is asleep
  Tensor bit_logits_BTZ;  // fp32; undefined unless the posterior was asked
};

// The price of the codes: β Σ max(0, KL_t - κ). The paper has β = 1.
struct KlPrice {
  double kappa_bits = 0;
  double beta = 1;
};

// The objective (equation 5 and the cross-entropy), with every part apart. Sums over the tokens,
// divided by the number of targets that count: where all do, the paper's means.
struct Loss {
  Tensor total;          // cross_entropy + β · kl_penalty: what is minimised
  Tensor cross_entropy;  // nats per target, under codes from the posterior
  Tensor kl_penalty;     // Σ max(0, KL_t - κ), nats per target; 0 for the plain decoder
  Tensor kl;             // Σ KL_t without the hinge, nats per target; 0 for the plain decoder
  Tensor nll_BT;         // per token: -log P(target), 0 where it does not count
  Tensor kl_BT;          // per token, nats; undefined unless the posterior was asked
  ForwardResult forward;
};

// model.latent.*: everything the Free Transformer adds to the decoder.
class LatentImpl : public torch::nn::Module {
 public:
  explicit LatentImpl(const ModelConfig& config);
  // The encoder: what it reads from the first half's output x_BTD.
  Tensor read(const Tensor& x_BTD, const AttentionContext& context, bool recompute);
  // Bit logits of every token. fp32.
  Tensor bit_logits(const Tensor& x_BTD, const AttentionContext& context, bool recompute);

  Tensor query;  // [D], ζ
  Block encoder{nullptr};
  RmsNorm encoder_norm{nullptr};
  Linear readout{nullptr};
  Embedding post_sampler{nullptr};  // W [C, D]: a linear layer on a one-hot is its rows
};
TORCH_MODULE(Latent);

// model.*
class DecoderImpl : public torch::nn::Module {
 public:
  explicit DecoderImpl(const ModelConfig& config);

  Embedding embed_tokens{nullptr};
  torch::nn::ModuleList layers;
  RmsNorm norm{nullptr};
  Latent latent{nullptr};  // empty in a plain decoder
};
TORCH_MODULE(Decoder);

// The output X of the first half of the blocks, which the encoder reads.
struct Halfway {
  Tensor x_BTD;
  AttentionContext context;
};

class FreeTransformerImpl : public torch::nn::Module {
 public:
  // Weights are not initialised: call initialize() or load_weights() (weights.h).
  explicit FreeTransformerImpl(const ModelConfig& config);

  // A plain decoder ignores `source`.
  ForwardResult forward(const Batch& batch, const LatentSource& source);
  Tensor logits(const Tensor& hidden_BTD);

  Halfway first_half(const Batch& batch);

  // The encoder alone: bit logits of every token, fp32 [B, T, Z]. Needs a latent.
  Tensor encode(const Batch& batch);

  // Targets [B, T]: the tokens that follow; ops::kIgnoredTarget where none does. The price defaults
  // to the configuration's κ with β = 1.
  Loss loss(const Batch& batch, const Tensor& targets_BT, const LatentSource& source,
            std::optional<KlPrice> price = {});

  // Keep only the blocks' inputs for the backward pass, and compute the rest again: a third more
  // arithmetic for a fraction of the memory.
  void set_recompute(bool on) { recompute_ = on; }

  const ModelConfig& config() const { return config_; }

  Decoder model{nullptr};
  Linear lm_head{nullptr};  // empty when tied to the embedding

 private:
  AttentionContext attention_context(const Batch& batch) const;
  Tensor run_layer(int64_t index, const Tensor& x_BTD, const Tensor& kv_BTD,
                   const AttentionContext& context);
  const Tensor& head_weight() const;

  ModelConfig config_;
  bool recompute_ = false;
};
TORCH_MODULE(FreeTransformer);

}  // namespace freeformer
