// What a finished run's model is asked: how likely held-out rows are, where its bits are used, and
// what Z decides in a task whose answers are known. Kept as study.json in the run's folder.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "core/json.h"
#include "data/data_source.h"
#include "engine/engine.h"
#include "engine/likelihood.h"
#include "lab/letters.h"

namespace freeformer {

struct StudySettings {
  int64_t rows = 256;         // held-out rows, evenly spread
  int64_t iwae_samples = 16;  // K
  LettersSettings letters;
  uint64_t seed = 1;
};

struct RunStudy {
  int64_t step = 0;                                // of the checkpoint that was asked
  int64_t rows = 0, iwae_samples = 0, groups = 0;  // as StudySettings had them
  bool has_latent = false;
  double kappa_bits = 0;
  // Nats per predicted token on held-out rows. ce: of a plain decoder, whose elbo and iwae it is.
  double ce = 0, posterior_ce = 0, prior_ce = 0, elbo = 0, iwae = 0;
  double kl_bits = 0;  // per token
  int64_t bits_alive = 0;
  std::vector<std::vector<double>> kl_map;  // [T][Z] bits, mean over rows
  // Of a task with a known answer: the entropy without Z (letters), the NLL of the best predictor
  // on these rows (coin); nats per predicted token.
  std::optional<double> optimum;
  std::optional<LettersStudy> letters;
};

// Empty if the progress said stop.
std::optional<RunStudy> study_run(Engine& engine, const Tokenizer* tokenizer,
                                  const DataSource& data, const DataSettings& data_settings,
                                  const StudySettings& settings,
                                  const StudyProgress& progress = {});

OrderedJson to_json(const RunStudy& study);
RunStudy run_study_from_json(const Json& json);
// Throws kIo, or kBadCheckpoint for a file that is none.
RunStudy read_run_study(const std::filesystem::path& file);

}  // namespace freeformer
