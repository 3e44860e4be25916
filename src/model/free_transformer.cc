#include "model/free_transformer.h"

#include <cmath>

#include "core/error.h"
#include "ops/binary_mapper.h"
#include "ops/recompute.h"

namespace freeformer {
namespace {

Tensor run_block(Block block, const Tensor& x_BTD, const Tensor& kv_BTD,
                 const AttentionContext& context, bool recompute) {
  if (!recompute || !at::GradMode::is_enabled()) return block(x_BTD, kv_BTD, context);
  if (kv_BTD.is_same(x_BTD)) {
    return ops::recompute(
        [block, context](const std::vector<Tensor>& in) mutable {
          return block(in[0], in[0], context);
        },
        {x_BTD});
  }
  return ops::recompute(
      [block, context](const std::vector<Tensor>& in) mutable {
        return block(in[0], in[1], context);
      },
      {x_BTD, kv_BTD});
}

// z ~ Q(z | tokens), or P(z), or the caller's.
Tensor draw_codes(const LatentSource& source, const Tensor& bit_logits_BTZ) {
  if (source.codes_BT().defined()) return source.codes_BT();
  const Tensor& uniforms_BTZ = source.uniforms_BTZ();
  FF_CHECK(uniforms_BTZ.defined());
  // The prior is the posterior of an encoder that has nothing to say: all logits are zero.
  return ops::sample_codes(
      source.reads_tokens() ? bit_logits_BTZ.detach() : at::zeros_like(uniforms_BTZ), uniforms_BTZ);
}

}  // namespace

LatentSource LatentSource::posterior(Tensor uniforms_BTZ) {
  LatentSource source;
  source.reads_tokens_ = true;
  source.uniforms_BTZ_ = std::move(uniforms_BTZ);
  return source;
}
LatentSource LatentSource::posterior_with_codes(Tensor codes_BT) {
  LatentSource source;
  source.reads_tokens_ = true;
  source.codes_BT_ = std::move(codes_BT);
  return source;
}
LatentSource LatentSource::prior(Tensor uniforms_BTZ) {
  LatentSource source;
  source.uniforms_BTZ_ = std::move(uniforms_BTZ);
  return source;
}
LatentSource LatentSource::given(Tensor codes_BT) {
  LatentSource source;
  source.codes_BT_ = std::move(codes_BT);
  return source;
}
LatentSource LatentSource::asleep() {
  LatentSource source;
  source.asleep_ = true;
  return source;
}

LatentSource LatentSource::with_gradient_of(ops::GradientSample sample) const {
  LatentSource source = *this;
  source.gradient_sample_ = std::move(sample);
  return source;
}

LatentImpl::LatentImpl(const ModelConfig& config) {
  const int64_t D = config.hidden_size;
  query = register_parameter("query", at::zeros({D}));
  encoder = register_module("encoder", Block(config, kEncoderLayer));
  encoder_norm = register_module("encoder_norm", RmsNorm(D, config.rms_norm_eps));
  readout = register_module("readout", Linear(D, config.latent.bits));
  post_sampler = register_module("post_sampler", Embedding(config.code_count(), D));
}

Tensor LatentImpl::read(const Tensor& x_BTD, const AttentionContext& context, bool recompute) {
  return encoder_norm(run_block(encoder, query.expand_as(x_BTD), x_BTD, context, recompute));
}

Tensor LatentImpl::bit_logits(const Tensor& x_BTD, const AttentionContext& context,
                              bool recompute) {
  const Tensor logits_BTZ = readout(read(x_BTD, context, recompute));
  return logits_BTZ.scalar_type() == at::kDouble ? logits_BTZ : logits_BTZ.to(at::kFloat);
}

DecoderImpl::DecoderImpl(const ModelConfig& config) {
  embed_tokens = register_module("embed_tokens", Embedding(config.vocab_size, config.hidden_size));
  register_module("layers", layers);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers->push_back(Block(config, i));
  }
  norm = register_module("norm", RmsNorm(config.hidden_size, config.rms_norm_eps));
  if (config.latent.present()) latent = register_module("latent", Latent(config));
}

FreeTransformerImpl::FreeTransformerImpl(const ModelConfig& config) : config_(config) {
  model = register_module("model", Decoder(config));
  if (!config.tie_word_embeddings) {
    lm_head = register_module("lm_head", Linear(config.hidden_size, config.vocab_size));
  }
}

Tensor FreeTransformerImpl::run_layer(int64_t index, const Tensor& x_BTD, const Tensor& kv_BTD,
                                      const AttentionContext& context) {
  return run_block(Block(model->layers->ptr<BlockImpl>(size_t(index))), x_BTD, kv_BTD, context,
                   recompute_);
}

const Tensor& FreeTransformerImpl::head_weight() const {
  return lm_head.is_empty() ? model->embed_tokens->weight : lm_head->weight;
}

AttentionContext FreeTransformerImpl::attention_context(const Batch& batch) const {
  ops::DocumentLayout layout;
  if (batch.documents_BT.defined()) {
    layout = ops::document_layout(batch.documents_BT);
  } else if (batch.positions_BT.defined()) {
    layout.positions_BT = batch.positions_BT;
  } else {
    layout.positions_BT =
        at::arange(batch.tokens_BT.size(1), batch.tokens_BT.options()).unsqueeze(0);
  }
  return {ops::rotary_table(layout.positions_BT, config_.head_dim, config_.rope_theta,
                            head_weight().scalar_type()),
          layout.runs_BT, batch.sequences};
}

Halfway FreeTransformerImpl::first_half(const Batch& batch) {
  const AttentionContext context = attention_context(batch);
  Tensor x_BTD = model->embed_tokens(batch.tokens_BT);
  for (int64_t i = 0; i < config_.middle_layer(); ++i) {
    x_BTD = run_layer(i, x_BTD, x_BTD, context);
  }
  return {x_BTD, context};
}

ForwardResult FreeTransformerImpl::forward(const Batch& batch, const LatentSource& source) {
  const int64_t L = config_.num_hidden_layers, middle = config_.middle_layer();
  ForwardResult result;
  auto [x_BTD, context] = first_half(batch);

  if (Latent& latent = model->latent; latent.is_empty() || source.is_asleep()) {
    x_BTD = run_layer(middle, x_BTD, x_BTD, context);
  } else {
    if (source.reads_tokens()) {
      result.bit_logits_BTZ = latent->bit_logits(x_BTD, context, recompute_);
    }
    result.codes_BT = draw_codes(source, result.bit_logits_BTZ);
    const Tensor r_BTD = ops::binary_mapper(result.bit_logits_BTZ, result.codes_BT,
                                            latent->post_sampler->weight, source.gradient_sample());
    // Queries from X, keys and values from X + R; the residual stream stays X.
    x_BTD = run_layer(middle, x_BTD, x_BTD + r_BTD, context);
  }

  for (int64_t i = middle + 1; i < L; ++i) x_BTD = run_layer(i, x_BTD, x_BTD, context);

  result.hidden_BTD = model->norm(x_BTD);
  return result;
}

Tensor FreeTransformerImpl::logits(const Tensor& hidden_BTD) {
  return ops::linear(hidden_BTD, head_weight());
}

Tensor FreeTransformerImpl::encode(const Batch& batch) {
  FF_CHECK(!model->latent.is_empty());
  const auto [x_BTD, context] = first_half(batch);
  return model->latent->bit_logits(x_BTD, context, recompute_);
}

Loss FreeTransformerImpl::loss(const Batch& batch, const Tensor& targets_BT,
                               const LatentSource& source, std::optional<KlPrice> price) {
  const KlPrice kl_price = price.value_or(KlPrice{config_.latent.kappa_bits, 1.0});
  Loss loss;
  loss.forward = forward(batch, source);
  loss.nll_BT = ops::linear_cross_entropy(loss.forward.hidden_BTD.flatten(0, 1), head_weight(),
                                          targets_BT.flatten())
                    .view_as(targets_BT);
  const Tensor counts_BT = targets_BT.ne(ops::kIgnoredTarget).to(loss.nll_BT.scalar_type());
  const Tensor count = counts_BT.sum().clamp_min(1);
  loss.cross_entropy = loss.nll_BT.sum() / count;
  loss.kl = at::zeros_like(loss.cross_entropy);
  loss.kl_penalty = at::zeros_like(loss.cross_entropy);
  if (loss.forward.bit_logits_BTZ.defined()) {
    const double kappa_nats = kl_price.kappa_bits * std::log(2.0);
    loss.kl_BT = ops::bits_kl(loss.forward.bit_logits_BTZ);
    // Every token pays for its code, also where its own target does not count: the code of a prompt
    // token reaches the answer, and a code that costs nothing could carry all of it.
    if (batch.documents_BT.defined()) {
      loss.kl_BT = loss.kl_BT * batch.documents_BT.ge(0).to(loss.kl_BT.scalar_type());
    }
    loss.kl = loss.kl_BT.sum() / count;
    loss.kl_penalty = at::relu(loss.kl_BT - kappa_nats).sum() / count;
  }
  loss.total = loss.cross_entropy + kl_price.beta * loss.kl_penalty;
  return loss;
}

}  // namespace freeformer
