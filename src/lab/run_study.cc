#include "lab/run_study.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/file.h"
#include "data/synthetic.h"
#include "engine/bits.h"
#include "lab/coin.h"

namespace freeformer {
namespace {

// How the whole work is shared between its parts, for the progress.
constexpr double kLikelihoodShare = 0.4;

// Mean KL of every bit at every position, bits, over the sequences that reach it.
std::vector<std::vector<double>> kl_map(Engine& engine,
                                        std::span<const std::vector<int32_t>> sequences) {
  constexpr size_t kBatch = 64;
  const auto Z = size_t(engine.config().latent.bits);
  size_t longest = 0;
  for (const auto& sequence : sequences) longest = std::max(longest, sequence.size() - 1);
  std::vector<std::vector<double>> map(longest, std::vector<double>(Z, 0));
  std::vector<int64_t> reached(longest, 0);
  for (size_t begin = 0; begin < sequences.size(); begin += kBatch) {
    std::vector<std::span<const int32_t>> texts;
    for (size_t i = begin; i < std::min(begin + kBatch, sequences.size()); ++i) {
      texts.push_back(std::span(sequences[i]).first(sequences[i].size() - 1));
    }
    for (const std::vector<float>& logits : engine.encode(texts)) {
      for (size_t t = 0; t < logits.size() / Z; ++t) {
        ++reached[t];
        for (size_t h = 0; h < Z; ++h) map[t][h] += bit_kl(logits[t * Z + h]) / std::log(2.0);
      }
    }
  }
  for (size_t t = 0; t < longest; ++t) {
    for (double& kl : map[t]) kl /= double(reached[t]);
  }
  return map;
}

}  // namespace

std::optional<RunStudy> study_run(Engine& engine, const Tokenizer* tokenizer,
                                  const DataSource& data, const DataSettings& data_settings,
                                  const StudySettings& settings, const StudyProgress& progress) {
  RunStudy study;
  study.rows = settings.rows;
  study.iwae_samples = settings.iwae_samples;
  study.groups = settings.letters.groups;
  study.has_latent = engine.config().latent.present();
  study.kappa_bits = engine.config().latent.kappa_bits;
  const std::vector<std::vector<int32_t>> sequences = held_out_sequences(data, settings.rows);
  LikelihoodSettings likelihood_settings;
  likelihood_settings.seed = settings.seed;
  likelihood_settings.iwae_samples = study.has_latent ? settings.iwae_samples : 0;
  likelihood_settings.kappa_bits = study.kappa_bits;
  const auto scaled = [&](double begin, double end) -> StudyProgress {
    return [&progress, begin, end](double share) {
      return !progress || progress(begin + share * (end - begin));
    };
  };
  const auto likelihood =
      measure_likelihood(engine, sequences, likelihood_settings, scaled(0, kLikelihoodShare));
  if (!likelihood) return std::nullopt;
  study.ce = likelihood->ce.mean;
  study.elbo = study.iwae = study.ce;
  if (study.has_latent) {
    study.posterior_ce = likelihood->posterior_ce.mean;
    study.prior_ce = likelihood->prior_ce->mean;
    study.elbo = likelihood->elbo.mean;
    study.iwae = likelihood->iwae ? likelihood->iwae->mean : study.elbo;
    study.kl_bits = likelihood->health.kl_bits;
    study.bits_alive = likelihood->health.bits_alive;
    study.kl_map = kl_map(engine, sequences);
  }
  if (data_settings.kind == "letters") {
    study.optimum = letters_entropy();
    study.letters =
        study_letters(engine, *tokenizer, settings.letters, scaled(kLikelihoodShare, 1));
    if (study.letters->figure.empty()) return std::nullopt;
  } else if (data_settings.kind == "coin") {
    double nll = 0;
    for (const auto& tokens : sequences) nll += coin_nll(tokens, data_settings.coin_flip);
    study.optimum = nll / double(likelihood->tokens);
  }
  if (progress && !progress(1)) return std::nullopt;
  return study;
}

OrderedJson to_json(const RunStudy& study) {
  OrderedJson json = {{"step", study.step},
                      {"rows", study.rows},
                      {"iwae_samples", study.iwae_samples},
                      {"groups", study.groups}};
  if (study.has_latent) {
    json["kappa_bits"] = study.kappa_bits;
    json["posterior_ce"] = study.posterior_ce;
    json["prior_ce"] = study.prior_ce;
    json["elbo"] = study.elbo;
    json["iwae"] = study.iwae;
    json["kl_bits"] = study.kl_bits;
    json["bits_alive"] = study.bits_alive;
    json["kl_map"] = study.kl_map;
  } else {
    json["ce"] = study.ce;
  }
  if (study.optimum) json["optimum"] = *study.optimum;
  if (study.letters) json["letters"] = to_json(*study.letters);
  return json;
}

RunStudy run_study_from_json(const Json& json) {
  RunStudy study;
  study.step = json.at("step");
  study.rows = json.at("rows");
  study.iwae_samples = json.at("iwae_samples");
  study.groups = json.at("groups");
  study.has_latent = json.contains("posterior_ce");
  if (study.has_latent) {
    study.kappa_bits = json.at("kappa_bits");
    study.posterior_ce = json.at("posterior_ce");
    study.prior_ce = json.at("prior_ce");
    study.elbo = json.at("elbo");
    study.iwae = json.at("iwae");
    study.kl_bits = json.at("kl_bits");
    study.bits_alive = json.at("bits_alive");
    study.kl_map = json.at("kl_map").get<std::vector<std::vector<double>>>();
  } else {
    study.ce = study.elbo = study.iwae = json.at("ce");
  }
  if (json.contains("optimum")) study.optimum = json.at("optimum").get<double>();
  if (json.contains("letters")) study.letters = letters_study_from_json(json.at("letters"));
  return study;
}

RunStudy read_run_study(const std::filesystem::path& file) {
  const Json json = parse_json(read_text_file(file), file.string(), ErrorCode::kBadCheckpoint);
  try {
    return run_study_from_json(json);
  } catch (const std::exception&) {  // a missing key, a wrong type, an empty text
    reject_file(file.string(), "not the study of a run; expected what a sweep has written");
  }
}

}  // namespace freeformer
