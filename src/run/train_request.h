// What a training run is asked for, and what came of it.
#pragma once

#include <cmath>
#include <string>

#include "run/train_config.h"

namespace freeformer {

struct TrainRequest {
  TrainConfig config;
  // "auto": from the run's latest checkpoint if it has one; "no": only where there is none; else
  // the path of a checkpoint.
  std::string resume = "auto";
  bool quiet = false;  // no progress on stderr
};

struct TrainOutcome {
  int64_t step = 0;                  // reached
  std::string stopped_by;            // a signal's name; empty: all steps are done
  std::string checkpoint;            // the last one
  double best_bound = std::nan("");  // lowest held-out ELBO (CE of a plain decoder), if evaluated
  int64_t best_step = -1;
};

}  // namespace freeformer
