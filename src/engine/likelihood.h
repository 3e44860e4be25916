// Honest likelihood. Cross-entropy under the posterior is not comparable with a plain decoder's:
// the encoder has read the answer. So every figure says which it is:
//
//   ce            of a plain decoder: the NLL itself
//   posterior_ce  CE with z ~ Q(z|S). Never compared across models.
//   elbo          posterior_ce + KL without the hinge: a bound from above on the NLL
//   iwae          -log of the mean over K draws z ~ Q of P(S|z) P(z) / Q(z|S): tighter with K
//   prior_ce      CE with one z from the prior: a looser bound (in expectation)
//
// All in nats per predicted token, over sequences that are each scored on their own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/json.h"
#include "engine/engine.h"

namespace freeformer {

// A mean over tokens, and its standard error from the spread between sequences.
struct Estimate {
  double mean = 0;
  double standard_error = 0;
};

// What the codes carry, over all positions that were read.
struct LatentHealth {
  double kl_bits = 0;                  // per position
  double hinged_bits = 0;              // the part above κ that is paid for
  std::vector<double> kl_bits_by_bit;  // [Z]
  int64_t bits_alive = 0;              // bits with a mean KL of at least 0.01 bits
  double code_entropy_bits = 0;        // of the codes drawn, over all positions together
};

struct LikelihoodSettings {
  uint64_t seed = 0;
  uint64_t first_sequence = 0;  // Philox sequence of the first text
  bool prior = true;            // prior_ce, too
  int64_t iwae_samples = 0;     // K; 0: leave it out
  double kappa_bits = 0;        // for LatentHealth::hinged_bits
};

struct Likelihood {
  int64_t sequences = 0, tokens = 0;  // predicted tokens
  int64_t iwae_samples = 0;
  bool has_latent = false;
  Estimate ce;  // of a plain decoder
  // Of a model with a latent:
  Estimate posterior_ce, kl, elbo;
  std::optional<Estimate> prior_ce, iwae;
  LatentHealth health;

  // NLL or ELBO: what models are ranked by.
  double bound() const { return has_latent ? elbo.mean : ce.mean; }

  // Sums per sequence behind the figures, for paired comparisons: nats.
  std::vector<double> bound_sums;
  std::vector<double> iwae_sums;
  std::vector<int64_t> token_counts;
};

OrderedJson to_json(const Likelihood& likelihood);

// Called between passes through the model with the share done; false stops, and the result is
// empty.
using LikelihoodProgress = std::function<bool(double share)>;

// Sequences of at least two tokens. Reads them in batches of about `batch_tokens`.
std::optional<Likelihood> measure_likelihood(Engine& engine,
                                             std::span<const std::vector<int32_t>> sequences,
                                             const LikelihoodSettings& settings,
                                             const LikelihoodProgress& progress = {},
                                             int64_t batch_tokens = 4096);

// Ratio estimate Σ sums / Σ counts with its standard error over sequences.
Estimate ratio_estimate(std::span<const double> sums, std::span<const int64_t> counts);

// log P(completion | prompt) for multiple choice: codes of the prompt from the encoder run on the
// prompt alone, codes of the completion from the prior, the likelihood averaged over `samples`
// draws. The encoder never sees the completion. Sum over the completion's tokens, nats.
double score_completion(Engine& engine, std::span<const int32_t> prompt,
                        std::span<const int32_t> completion, int64_t samples, uint64_t seed,
                        uint64_t sequence);

}  // namespace freeformer
