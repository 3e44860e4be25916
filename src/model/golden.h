// Runs a golden case through this build's model.
#pragma once

#include "core/golden.h"

namespace freeformer {

GoldenReport run_golden(const GoldenOptions& options);

}  // namespace freeformer
