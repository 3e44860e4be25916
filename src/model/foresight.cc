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
// What a bit's logit is on average where it has something to say, as long as the root of its mean
// square over all tokens stays below the other: where much is news, all of it would be shouted.
constexpr double kLogit = 2.0, kLoudest = 1.0;
// Training moves x: of all u that fit, the smallest are the last to go wrong.
constexpr double kRidge = 0.1;  // beside entries of x of 1 in mean square
// Every kind of news has two pairs of bits: at such a logit, one draw in eight is wrong.
constexpr int64_t kPairs = 2;
// An axis' share of the surprises, below which it is none.
constexpr double kLeastNews = 1e-2;
// The mean square of y about its mean, beside one of y of 1, below which it is rounding.
constexpr double kLeastChange = 1e-6;
// The same: what a batch hardly has, others may have, and rows made for it would shout there.
constexpr double kLeastTau = 1e-2;

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
  const Tensor gram_DD = x_MD.t().matmul(x_MD) / double(x_MD.size(0));
  const Tensor u_D =
      at::linalg_solve(gram_DD + kRidge * at::eye(x_MD.size(1), x_MD.options()), x_MD.mean(0));
  AttentionImpl& attention = *latent.encoder->self_attn;
  weights.set("encoder.self_attn.q_proj.weight", attention.q_proj->weight,
              query_H.outer(from_zeta_D).repeat({config.num_attention_heads, 1}));
  weights.set("encoder.self_attn.k_proj.weight", attention.k_proj->weight,
              key_H.outer(u_D).repeat({config.num_key_value_heads, 1}));
}

// The smallest rows with these products with two points.
Tensor rows_through(const Tensor& points_2D, const Tensor& products_22) {
  Tensor gram_22 = points_2D.matmul(points_2D.t());
  // Points opposite each other have no row that is high at both; it may then be low instead.
  gram_22 += 1e-3 * gram_22.diagonal().mean() * at::eye(2, gram_22.options());
  return products_22.matmul(at::linalg_solve(gram_22, points_2D));
}

void speak_of_surprises(LatentImpl& latent, const Tensor& y_MD, const Tensor& surprise_M,
                        Weights& weights) {
  const int64_t Z = latent.readout->weight.size(0), D = latent.readout->weight.size(1);
  // Rows at right angles to the mean of y have logits of mean 0.
  const Tensor mean_D = y_MD.mean(0);
  const Tensor along_D = mean_D / mean_D.norm().clamp_min(1e-12);
  Tensor v_MD = y_MD - mean_D;
  v_MD = v_MD - v_MD.matmul(along_D).outer(along_D);
  const Tensor covariance_DD = v_MD.t().matmul(v_MD) / double(v_MD.size(0));
  const double change = covariance_DD.diagonal().mean().item<double>();
  const double total = surprise_M.square().sum().item<double>();
  if (!std::isfinite(change) || !std::isfinite(total) || change <= kLeastChange || total <= 0) {
    log(LogLevel::kWarn, "model",
        "an encoder that looks ahead finds nothing there that surprises the decoder; its read-out "
        "stays as it was drawn");
    return;
  }

  // In units of S + τ: what varies anyway counts for less, and small rows are quiet elsewhere.
  const Tensor whitening_DD = at::inverse(at::linalg_cholesky(
      covariance_DD + std::max(change, kLeastTau) * at::eye(D, covariance_DD.options())));
  v_MD = v_MD.matmul(whitening_DD.t());
  const Tensor weight_M = surprise_M.square() / total;
  const Tensor common_1D = weight_M.unsqueeze(0).matmul(v_MD);
  const Tensor about_MD = v_MD - common_1D;
  // λ rises: the last are the first.
  const auto [lambda_D, axes_DD] =
      at::linalg_eigh(about_MD.t().matmul(about_MD * weight_M.unsqueeze(1)));
  Tensor readout_ZD = latent.readout->weight.to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  const Tensor logits_22 = kLogit * at::tensor({1.0, 1.0, 1.0, -1.0}, v_MD.options()).view({2, 2});
  const auto set_rows = [&](int64_t bit, const Tensor& rows_RD) {
    const Tensor loudness_R = v_MD.matmul(rows_RD.t()).square().mean(0).sqrt() / kLoudest;
    readout_ZD.narrow(0, bit, rows_RD.size(0))
        .copy_((rows_RD / loudness_R.clamp_min(1).unsqueeze(1)).matmul(whitening_DD));
  };
  const double least = kLeastNews * (weight_M * v_MD.square().sum(1)).sum().item<double>();
  int64_t bit = 0;
  for (; bit < Z; bit += 2) {
    const int64_t kind = D - 1 - bit / (2 * kPairs);
    if (kind < 0 || lambda_D[kind].item<double>() <= least) break;
    const Tensor one_M = about_MD.matmul(axes_DD.select(1, kind)).gt(0).to(at::kDouble) * weight_M;
    const Tensor other_M = weight_M - one_M;
    const Tensor m_2D = at::stack({one_M / one_M.sum(), other_M / other_M.sum()}).matmul(v_MD);
    set_rows(bit, rows_through(m_2D, logits_22).narrow(0, 0, std::min<int64_t>(2, Z - bit)));
  }
  // One kind of surprise has no sides: that there is news is all there is to say.
  if (bit == 0) set_rows(0, common_1D * (kLogit / common_1D.square().sum()));
  weights.set("readout.weight", latent.readout->weight, readout_ZD);
}

// Where the next token is another row's or another document's, nobody here reads it.
Tensor next_tokens_BT(const Batch& batch) {
  const int64_t T = batch.tokens_BT.size(1);
  Tensor next_BT = at::full_like(batch.tokens_BT, ops::kIgnoredTarget);
  next_BT.narrow(1, 0, T - 1).copy_(batch.tokens_BT.narrow(1, 1, T - 1));
  if (const Tensor& documents_BT = batch.documents_BT; documents_BT.defined()) {
    const Tensor ends_BT = documents_BT.narrow(1, 0, T - 1).ne(documents_BT.narrow(1, 1, T - 1));
    next_BT.narrow(1, 0, T - 1).masked_fill_(ends_BT, ops::kIgnoredTarget);
  }
  return next_BT;
}

}  // namespace

std::map<std::string, Tensor> look_ahead(FreeTransformer& model, std::span<const Batch> batches) {
  const torch::NoGradGuard no_grad;
  const OneThread one_thread;
  FF_CHECK(!model->model->latent.is_empty());
  LatentImpl& latent = *model->model->latent;
  const int64_t D = model->config().hidden_size;
  int64_t count = 0;
  std::span<const Batch> asked;
  for (const Batch& batch : batches) {
    if (count >= enough_tokens(D)) break;
    asked = batches.first(asked.size() + 1);
    count += batch.documents_BT.defined() ? batch.documents_BT.ge(0).sum().item<int64_t>()
                                          : batch.tokens_BT.numel();
  }
  if (count == 0) {
    log(LogLevel::kWarn, "model",
        "an encoder that looks ahead finds only padding; its weights stay as they were drawn");
    return {};
  }
  if (count < 4 * D) {
    log(LogLevel::kWarn, "model",
        "an encoder that looks ahead is made from {} tokens for {} dimensions, and takes chance "
        "for news; a larger batch.tokens_per_step helps",
        count, D);
  }
  // What a function makes of every batch, a row a token; padding is not asked.
  const auto tokens_M = [&](const auto& function) {
    std::vector<Tensor> rows;
    for (const Batch& batch : asked) {
      rows.push_back(function(batch).flatten(0, 1).to(at::kDouble));
      if (batch.documents_BT.defined()) {
        rows.back() = rows.back().index({batch.documents_BT.flatten().ge(0)});
      }
    }
    return at::cat(rows);
  };
  Weights weights;
  const Tensor x_MD = tokens_M([&](const Batch& batch) {
    return latent.encoder->input_layernorm(model->first_half(batch).x_BTD);
  });
  look_at_next_token(model->config(), latent, x_MD, weights);
  const Tensor y_MD = tokens_M([&](const Batch& batch) {
    const Halfway half = model->first_half(batch);
    return latent.read(half.x_BTD, half.context, /*recompute=*/false);
  });
  const Tensor surprise_M = tokens_M([&](const Batch& batch) {
    return model->loss(batch, next_tokens_BT(batch), LatentSource::asleep()).nll_BT;
  });
  speak_of_surprises(latent, y_MD, surprise_M, weights);
  const Tensor size = root_mean_square(
      tokens_M([&](const Batch& batch) { return model->first_half(batch).x_BTD; }));
  const Tensor table_CD = latent.post_sampler->weight.to(at::kDouble);
  weights.set("post_sampler.weight", latent.post_sampler->weight,
              table_CD * (size / root_mean_square(table_CD).clamp_min(1e-12)));
  return weights.take();
}

}  // namespace freeformer
