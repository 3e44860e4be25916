#include <cmath>

#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/model_options.h"
#include "core/error.h"
#include "core/json.h"
#include "engine/likelihood.h"
#include "run/status_line.h"

namespace freeformer::cli {
namespace {

// Windows of at most T+1 tokens that overlap by one, so that each token but the first is predicted
// once.
std::vector<std::vector<int32_t>> windows(const std::vector<int32_t>& tokens, int64_t T) {
  std::vector<std::vector<int32_t>> result;
  for (size_t begin = 0; begin + 1 < tokens.size(); begin += size_t(T)) {
    const size_t end = std::min(tokens.size(), begin + size_t(T) + 1);
    result.emplace_back(tokens.begin() + long(begin), tokens.begin() + long(end));
  }
  return result;
}

std::string text_of(const Estimate& estimate) {
  return fmt::format("{:.4f} ± {}", estimate.mean,
                     std::isfinite(estimate.standard_error)
                         ? fmt::format("{:.4f}", estimate.standard_error)
                         : std::string("?"));
}

void print_likelihood(const std::string& name, const Likelihood& l) {
  fmt::print("{}: {} tokens in {} windows, nats per token (± standard error)\n", name,
             grouped_number(l.tokens), grouped_number(l.sequences));
  const auto row = [](const char* what, const Estimate& estimate, const char* note) {
    fmt::print("  {:<14}{:<20}{}\n", what, text_of(estimate), note);
  };
  if (!l.has_latent) {
    row("ce", l.ce, "the NLL of a plain decoder");
    return;
  }
  row("posterior_ce", l.posterior_ce, "not comparable: the encoder has read the answer");
  row("elbo", l.elbo, "posterior_ce + KL: a bound from above on the NLL");
  if (l.iwae) {
    row(fmt::format("iwae-{}", l.iwae_samples).c_str(), *l.iwae, "a tighter bound");
  }
  if (l.prior_ce) row("prior_ce", *l.prior_ce, "one z from the prior: a bound too, usually looser");
  fmt::print("  KL {:.4f} bits per token, {} bit(s) alive, code entropy {:.2f} bits\n",
             l.health.kl_bits, l.health.bits_alive, l.health.code_entropy_bits);
}

// The figure that --compare asks for, as sums per window; refuses what cannot be compared.
const std::vector<double>& comparable(const std::string& metric, const Likelihood& l,
                                      const std::string& model) {
  if (metric == "posterior_ce") {
    fail(ErrorCode::kInvalidArgument,
         "--compare posterior_ce: never compared across models, least of all with a plain "
         "decoder's CE: the encoder has read the answer; expected elbo or iwae");
  }
  if (!l.has_latent || metric == "elbo") return l.bound_sums;
  if (!l.iwae) {
    fail(ErrorCode::kInvalidArgument, "--compare iwae: {} was scored without --iwae K", model);
  }
  return l.iwae_sums;
}

// log P(completion | prompt), as multiple choice is scored: the encoder reads the prompt alone.
void print_completion(const OpenModel& model, const std::string& folder, const std::string& prompt,
                      const std::string& completion, int64_t samples, uint64_t seed, bool json) {
  const Tokenizer& tokenizer = model.require_tokenizer();
  const std::vector<int32_t> before = tokenizer.encode(prompt),
                             after = tokenizer.encode(completion);
  const int64_t most = model.engine->config().max_position_embeddings + 1;
  if (before.empty() || after.empty() || int64_t(before.size() + after.size()) > most) {
    fail(ErrorCode::kInvalidArgument,
         "a prompt of {} tokens and a completion of {}, expected at least one each and at most {} "
         "together",
         before.size(), after.size(), most);
  }
  const double score = score_completion(*model.engine, before, after, samples, seed, 0);
  if (json) {
    OrderedJson object;
    object["model"] = folder;
    object["prompt_tokens"] = before.size();
    object["completion_tokens"] = after.size();
    object["log_likelihood"] = score;
    if (model.engine->config().latent.present()) object["z_samples"] = samples;
    fmt::print("{}\n", to_text(object));
    return;
  }
  fmt::print("{}: log P(completion | prompt) = {:.4f} nats, {:.4f} a token over {} tokens\n",
             folder, score, score / double(after.size()), after.size());
}

OrderedJson print_comparison(const std::string& metric, const std::vector<std::string>& models,
                             const std::vector<Likelihood>& results, bool json) {
  OrderedJson list = OrderedJson::array();
  for (size_t i = 1; i < results.size(); ++i) {
    if (results[i].token_counts != results[0].token_counts) {
      fail(ErrorCode::kInvalidArgument,
           "--compare: {} and {} cut the text into different tokens or windows; give --context, "
           "and models with one tokenizer",
           models[0], models[i]);
    }
    const auto& a = comparable(metric, results[0], models[0]);
    const auto& b = comparable(metric, results[i], models[i]);
    std::vector<double> differences;
    for (size_t k = 0; k < a.size(); ++k) differences.push_back(b[k] - a[k]);
    const Estimate difference = ratio_estimate(differences, results[0].token_counts);
    if (json) {
      list.push_back({{"model", models[i]},
                      {"against", models[0]},
                      {"metric", metric},
                      {"difference", difference.mean},
                      {"standard_error", difference.standard_error}});
    } else {
      fmt::print("{} minus {} ({}, a plain decoder by its ce): {}\n", models[i], models[0], metric,
                 text_of(difference));
    }
  }
  return list;
}

}  // namespace

int run_likelihood(const std::vector<std::string>& arguments) {
  CommandLine command(
      "How likely is a text? A plain decoder has one answer, its cross-entropy. A Free "
      "Transformer\n"
      "has bounds, and each is named: posterior_ce (not comparable with anything: the encoder has\n"
      "read the answer), elbo, iwae (with --iwae K) and prior_ce.\n\n"
      "examples:\n"
      "  freeformer likelihood -m DIR held-out.txt --iwae 16\n"
      "  freeformer likelihood -m PLAIN -m FREE --compare elbo held-out.txt\n"
      "  freeformer likelihood -m DIR --limit 100000 --json big.txt\n"
      "  freeformer likelihood -m DIR -p 'The capital of France is' --z-samples 64 answer.txt\n",
      "likelihood");
  std::vector<std::string> models;
  ModelOptions options;
  std::string file = "-", metric;
  LikelihoodSettings settings;
  int64_t context = 0, limit = 0, z_samples = 16;
  std::string prompt;
  bool json = false, quiet = false;
  options.add_all_but_model_to(command);
  command.add_option("-m,--model", models, "a checkpoint; several to compare them")
      .type_name("DIR")
      .one_at_a_time()
      .required();
  command.add_option("FILE", file, "the text (default: stdin)").type_name("FILE");
  command.add_option("--context", context, "tokens of a window (default: the model's)")
      .type_name("T");
  command.add_option("--limit", limit, "read only the first N tokens").type_name("N");
  command.add_option("--iwae", settings.iwae_samples, "samples K of the IWAE bound (default: none)")
      .type_name("K");
  command.add_option("-s,--seed", settings.seed, "of the codes (default 0)").type_name("N");
  command.add_option("--compare", metric, "the first model against the others by elbo or iwae")
      .choices({"elbo", "iwae", "posterior_ce"})
      .type_name("METRIC");
  command
      .add_option("-p,--prompt", prompt,
                  "score the text as a completion of this: the encoder reads the prompt alone, the "
                  "completion's codes are the prior's")
      .type_name("TEXT");
  command.add_option("--z-samples", z_samples, "with --prompt: draws to average over (default 16)")
      .type_name("K");
  command.add_flag("-q,--quiet", quiet, "no progress on stderr");
  command.add_flag("--json", json, "one JSON object a model");
  int status = kDone;
  if (!command.parse(arguments, status)) return status;
  const auto require_positive = [&](const char* option, int64_t value) {
    if (command.given(option) && value < 1) {
      fail(ErrorCode::kInvalidArgument, "{} is {}, expected 1 or more", option, value);
    }
  };
  require_positive("--iwae", settings.iwae_samples);
  require_positive("--context", context);
  require_positive("--limit", limit);
  if (!metric.empty() && models.size() < 2) {
    fail(ErrorCode::kInvalidArgument, "--compare {}: expected two models or more", metric);
  }
  if (metric == "posterior_ce") comparable(metric, {}, "");
  if (metric == "iwae" && settings.iwae_samples == 0) {
    fail(ErrorCode::kInvalidArgument, "--compare iwae: expected --iwae K, the number of samples");
  }

  const bool completes = command.given("--prompt");
  if (command.given("--z-samples") && !completes) {
    fail(ErrorCode::kInvalidArgument, "--z-samples has no effect without --prompt");
  }
  if (completes && (z_samples < 1 || z_samples > 65536)) {
    fail(ErrorCode::kInvalidArgument, "--z-samples is {}, expected 1 to 65536", z_samples);
  }
  for (const char* other : {"--context", "--limit", "--iwae", "--compare"}) {
    if (completes && command.given(other)) {
      fail(ErrorCode::kInvalidArgument, "{} has no effect with --prompt", other);
    }
  }

  const std::string text = read_input(file);
  std::vector<Likelihood> results;
  for (const std::string& folder : models) {
    options.folder = folder;
    const OpenModel model = open_model(options);
    if (completes) {
      print_completion(model, folder, prompt, text, z_samples, settings.seed, json);
      continue;
    }
    const ModelConfig& config = model.engine->config();
    if (settings.iwae_samples > 0 && models.size() == 1 && !config.latent.present()) {
      fail(ErrorCode::kInvalidArgument, "--iwae: {} is a plain decoder; its CE is exact", folder);
    }
    const int64_t T = context == 0 ? config.max_position_embeddings : context;
    if (T > config.max_position_embeddings) {
      fail(ErrorCode::kInvalidArgument, "--context {}: {} has max_position_embeddings {}", T,
           folder, config.max_position_embeddings);
    }
    std::vector<int32_t> tokens = model.require_tokenizer().encode(text);
    if (limit > 0 && int64_t(tokens.size()) > limit) tokens.resize(size_t(limit));
    if (tokens.size() < 2) {
      fail(ErrorCode::kInvalidArgument, "{}: {} token(s), expected at least 2", file,
           tokens.size());
    }
    settings.kappa_bits = config.latent.kappa_bits;
    StatusLine progress(quiet);
    const auto sequences = windows(tokens, T);
    const auto result = measure_likelihood(*model.engine, sequences, settings, [&](double share) {
      progress.show_briefly(fmt::format("{} {}", folder, progress_bar(share, 30)));
      return true;
    });
    if (progress.is_terminal()) progress.say("");
    results.push_back(*result);
    if (json) {
      OrderedJson object;
      object["model"] = folder;
      object["file"] = file;
      object["context"] = T;
      object.update(to_json(*result));
      fmt::print("{}\n", to_text(object));
    } else {
      print_likelihood(folder, *result);
    }
  }
  if (!metric.empty()) {
    const OrderedJson comparison = print_comparison(metric, models, results, json);
    if (json) {
      OrderedJson object;
      object["comparison"] = comparison;
      fmt::print("{}\n", to_text(object));
    }
  }
  return kDone;
}

}  // namespace freeformer::cli
