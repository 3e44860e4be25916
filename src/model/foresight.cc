#include "model/foresight.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/log.h"

namespace freeformer {
namespace {

// Scores of the next token's neighbours are this many nats behind its own.
constexpr double kMargin = 6.0;
// Root of the mean square of a bit's logits: a rare event is firm, the usual nearly free.
constexpr double kLogit = 1.0;
constexpr double kRidge = 1e-3;      // beside entries of 1 in mean square
constexpr double kLeastNews = 1e-2;  // λ from which a direction has news

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

// Least squares want more tokens than dimensions; beyond this they only cost time.
int64_t enough_tokens(int64_t D) { return std::max<int64_t>(8 * D, 4096); }

// Gives weights to the model, and remembers them in fp32.
class Weights {
 public:
  void set(const std::string& name, Tensor& parameter, const Tensor& value) {
    parameter.copy_(value);
    by_name_["model.latent." + name] = value.to(at::kFloat);
  }
  std::map<std::string, Tensor> take() { return std::move(by_name_); }

 private:
  std::map<std::string, Tensor> by_name_;
};

void look_at_next_token(const ModelConfig& config, LatentImpl& latent, const Tensor& x_MD,
                        Weights& weights) {
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
  weights.set("encoder.self_attn.q_proj.weight", attention.q_proj->weight,
              query_H.outer(from_zeta_D).repeat({config.num_attention_heads, 1}));
  weights.set("encoder.self_attn.k_proj.weight", attention.k_proj->weight,
              key_H.outer(u_D).repeat({config.num_key_value_heads, 1}));
}

void speak_of_news(LatentImpl& latent, const Tensor& x_MD, const Tensor& y_MD, Weights& weights) {
  const int64_t Z = latent.readout->weight.size(0), D = latent.readout->weight.size(1);
  const Tensor known_ME = at::cat({x_MD, at::ones({x_MD.size(0), 1}, x_MD.options())}, 1);
  const Tensor news_MD = y_MD - known_ME.matmul(least_squares(known_ME, y_MD));
  const Tensor known_MD = y_MD - y_MD.mean(0) - news_MD;
  const auto covariance = [](const Tensor& v_MD) {
    return v_MD.t().matmul(v_MD) / double(v_MD.size(0));
  };
  // The directions with the most news beside what is known and some noise τ, which keeps out those
  // where y hardly varies: S_news v = λ (S_known + τ) v.
  const Tensor news_DD = covariance(news_MD), known_DD = covariance(known_MD);
  const Tensor noise = (news_DD + known_DD).diagonal().mean().clamp_min(1e-3);
  const Tensor whitening_DD =
      at::inverse(at::linalg_cholesky(known_DD + noise * at::eye(D, y_MD.options())));
  // λ rises: the last are the first.
  const auto [lambda_D, vectors_DD] =
      at::linalg_eigh(whitening_DD.matmul(news_DD).matmul(whitening_DD.t()));
  // Bits for which there is no news stay as they were drawn: scaled up, they would be rounding.
  const int64_t count = std::min(Z, lambda_D.gt(kLeastNews).sum().item<int64_t>());
  if (count == 0) return;
  Tensor rows_CD = vectors_DD.narrow(1, D - count, count).flip(1).t().matmul(whitening_DD);
  const Tensor mean_D = y_MD.mean(0);
  rows_CD = rows_CD - rows_CD.matmul(mean_D).outer(mean_D) / mean_D.dot(mean_D).clamp_min(1e-12);
  const Tensor size_C = y_MD.matmul(rows_CD.t()).square().mean(0).sqrt();
  Tensor readout_ZD = latent.readout->weight.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  readout_ZD.narrow(0, 0, count).copy_(rows_CD * (kLogit / size_C.clamp_min(1e-3)).unsqueeze(1));
  weights.set("readout.weight", latent.readout->weight, readout_ZD);
}

}  // namespace

std::map<std::string, Tensor> look_ahead(FreeTransformer& model, std::span<const Batch> batches) {
  const torch::NoGradGuard no_grad;
  const OneThread one_thread;
  FF_CHECK(!model->model->latent.is_empty());
  LatentImpl& latent = *model->model->latent;
  const int64_t D = model->config().hidden_size;
  std::vector<Halfway> halves;
  // What a function makes of every batch's X, a row a token; padding is not asked.
  const auto tokens_MD = [&](const auto& function) {
    std::vector<Tensor> rows;
    for (size_t i = 0; i < halves.size(); ++i) {
      rows.push_back(function(halves[i]).flatten(0, 1).to(at::kDouble));
      if (const Tensor& documents_BT = batches[i].documents_BT; documents_BT.defined()) {
        rows.back() = rows.back().index({documents_BT.flatten().ge(0)});
      }
    }
    return at::cat(rows);
  };
  int64_t count = 0;
  for (const Batch& batch : batches) {
    if (count >= enough_tokens(D)) break;
    halves.push_back(model->first_half(batch));
    count += batch.documents_BT.defined() ? batch.documents_BT.ge(0).sum().item<int64_t>()
                                          : batch.tokens_BT.numel();
  }
  FF_CHECK(count > 0);
  if (count < 4 * D) {
    log(LogLevel::kWarn, "model",
        "an encoder that looks ahead is made from {} tokens for {} dimensions, and takes chance "
        "for news; a larger batch.tokens_per_step helps",
        count, D);
  }
  Weights weights;
  const Tensor x_MD =
      tokens_MD([&](const Halfway& half) { return latent.encoder->input_layernorm(half.x_BTD); });
  look_at_next_token(model->config(), latent, x_MD, weights);
  const Tensor y_MD = tokens_MD([&](const Halfway& half) {
    return latent.read(half.x_BTD, half.context, /*recompute=*/false);
  });
  speak_of_news(latent, x_MD, y_MD, weights);
  const Tensor size = root_mean_square(tokens_MD([](const Halfway& half) { return half.x_BTD; }));
  const Tensor table_CD = latent.post_sampler->weight.to(at::kDouble);
  weights.set("post_sampler.weight", latent.post_sampler->weight,
              table_CD * (size / root_mean_square(table_CD).clamp_min(1e-12)));
  return weights.take();
}

}  // namespace freeformer
