#include "model/foresight.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"

namespace freeformer {
namespace {

// Scores of the next token's neighbours are this many nats behind its own.
constexpr double kMargin = 6.0;
// Root of the mean square of the bits' logits: a rare event is firm, the usual nearly free.
constexpr double kLogit = 2.0;
constexpr double kRidge = 1e-3;  // beside entries of 1 in mean square

// Products of doubles sum in the order of their threads; with one, the same seed is the same run.
class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(threads_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_ = at::get_num_threads();
};

Tensor root_mean_square(const Tensor& x) { return x.square().mean().sqrt(); }

// w with |inputs w - targets|² + ridge |w|² least.
Tensor least_squares(const Tensor& inputs_MD, const Tensor& targets_ME) {
  const auto M = double(inputs_MD.size(0));
  const Tensor gram_DD = inputs_MD.t().matmul(inputs_MD) / M +
                         kRidge * at::eye(inputs_MD.size(1), inputs_MD.options());
  return at::linalg_solve(gram_DD, inputs_MD.t().matmul(targets_ME) / M);
}

void look_at_next_token(const ModelConfig& config, LatentImpl& latent, const Tensor& x_MD) {
  const int64_t H = config.head_dim;
  const Tensor turn_P =
      (at::arange(0, H, 2, x_MD.options()) * (-std::log(config.rope_theta) / double(H))).exp();
  const Tensor behind = (turn_P * (1 - turn_P.cos())).sum() / std::sqrt(double(H));
  const Tensor a_P = (turn_P * (kMargin / behind)).sqrt();
  const Tensor query_H = at::cat({a_P * turn_P.cos(), a_P * turn_P.sin()});
  const Tensor key_H = at::cat({a_P, at::zeros_like(a_P)});

  const Tensor zeta_D =
      latent.encoder->input_layernorm(latent.query.view({1, 1, -1})).flatten().to(at::kDouble);
  const Tensor from_zeta_D = zeta_D / zeta_D.dot(zeta_D).clamp_min(1e-12);
  const Tensor u_D = least_squares(x_MD, at::ones({x_MD.size(0), 1}, x_MD.options())).squeeze(1);
  AttentionImpl& attention = *latent.encoder->self_attn;
  attention.q_proj->weight.copy_(
      query_H.outer(from_zeta_D).repeat({config.num_attention_heads, 1}));
  attention.k_proj->weight.copy_(key_H.outer(u_D).repeat({config.num_key_value_heads, 1}));
}

void speak_of_news(LatentImpl& latent, const Tensor& x_MD, const Tensor& y_MD) {
  const int64_t Z = latent.readout->weight.size(0), D = latent.readout->weight.size(1);
  const int64_t count = std::min(Z, D);
  const Tensor known_ME = at::cat({x_MD, at::ones({x_MD.size(0), 1}, x_MD.options())}, 1);
  const Tensor news_MD = y_MD - known_ME.matmul(least_squares(known_ME, y_MD));
  const Tensor known_MD = y_MD - y_MD.mean(0) - news_MD;
  const auto covariance = [](const Tensor& v_MD) {
    return v_MD.t().matmul(v_MD) / double(v_MD.size(0));
  };
  // The directions with the most news beside what is known and some noise τ, which keeps out those
  // where y hardly varies: S_news v = λ (S_known + τ) v.
  const Tensor news_DD = covariance(news_MD), known_DD = covariance(known_MD);
  const Tensor noise_DD =
      (news_DD + known_DD).diagonal().mean().clamp_min(1e-12) * at::eye(D, y_MD.options());
  const Tensor whitening_DD = at::inverse(at::linalg_cholesky(known_DD + noise_DD));
  const Tensor vectors_DD =
      std::get<1>(at::linalg_eigh(whitening_DD.matmul(news_DD).matmul(whitening_DD.t())));
  // Their eigenvalues rise: the last are the first.
  Tensor readout_CD = vectors_DD.narrow(1, D - count, count).flip(1).t().matmul(whitening_DD);
  const Tensor mean_D = y_MD.mean(0);
  readout_CD =
      readout_CD - readout_CD.matmul(mean_D).outer(mean_D) / mean_D.dot(mean_D).clamp_min(1e-12);
  const Tensor loudness_C = y_MD.matmul(readout_CD.t()).square().mean(0).sqrt();
  // No news at all, as where rows have one token: what was drawn stays.
  if (loudness_C.min().item<double>() < 1e-9) return;
  latent.readout->weight.narrow(0, 0, count).copy_(readout_CD * (kLogit / loudness_C).unsqueeze(1));
}

}  // namespace

std::map<std::string, Tensor> look_ahead(FreeTransformer& model, const Batch& batch) {
  const torch::NoGradGuard no_grad;
  FF_CHECK(!model->model->latent.is_empty());
  LatentImpl& latent = *model->model->latent;
  const Halfway half = model->first_half(batch);
  const auto tokens_MD = [&](const Tensor& x_BTD) {
    const Tensor x_MD = x_BTD.flatten(0, 1).to(at::kDouble);
    return batch.documents_BT.defined() ? x_MD.index({batch.documents_BT.flatten().ge(0)}) : x_MD;
  };
  const Tensor x_MD = tokens_MD(latent.encoder->input_layernorm(half.x_BTD));
  {
    const OneThread one_thread;
    look_at_next_token(model->config(), latent, x_MD);
  }
  const Tensor y_MD = tokens_MD(latent.read(half.x_BTD, half.context, /*recompute=*/false));
  {
    const OneThread one_thread;
    speak_of_news(latent, x_MD, y_MD);
    Tensor& table_CD = latent.post_sampler->weight;
    const Tensor size = root_mean_square(tokens_MD(half.x_BTD));
    table_CD.mul_((size / root_mean_square(table_CD.to(at::kDouble)).clamp_min(1e-12))
                      .to(table_CD.scalar_type()));
  }
  std::map<std::string, Tensor> weights;
  const std::string encoder = "model.latent.encoder.self_attn.";
  const auto keep = [&](const std::string& name, const Tensor& weight) {
    weights[name] = weight.detach().to(at::kFloat).clone();
  };
  keep(encoder + "q_proj.weight", latent.encoder->self_attn->q_proj->weight);
  keep(encoder + "k_proj.weight", latent.encoder->self_attn->k_proj->weight);
  keep("model.latent.readout.weight", latent.readout->weight);
  keep("model.latent.post_sampler.weight", latent.post_sampler->weight);
  return weights;
}

}  // namespace freeformer
