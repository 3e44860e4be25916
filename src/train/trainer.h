// A training run, from its settings to its last checkpoint. Everything it computes is a function of
// the settings and the step: killed at any moment and started again, it goes on as if nothing had
// happened, bit for bit.
#pragma once

#include "run/train_request.h"

namespace freeformer {

TrainOutcome train(const TrainRequest& request);

}  // namespace freeformer
