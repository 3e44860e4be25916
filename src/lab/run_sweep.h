// Carries a plan out: trains what is not trained, asks each model, keeps tables and report up to
// date. Several processes may work on one sweep: a run that another one holds is left to it.
#pragma once

#include <functional>

#include "lab/report.h"
#include "lab/sweep.h"
#include "plugin/torch_plugin.h"

namespace freeformer {

struct SweepOutcome {
  std::vector<SweepResult> results;   // of the runs that are done, in the plan's order
  std::vector<std::string> failures;  // "NAME: why", of runs that failed beside others
  std::string stopped_by;             // a signal's name; empty: all runs are done or failed
};

// `plan` outlives the outcome. A run that fails does not keep the others from theirs; one that is
// alone throws. A folder whose run had other settings is refused before anything is
// trained: kInvalidConfig.
SweepOutcome run_sweep(TorchPlugin& plugin, const SweepPlan& plan, const StudySettings& settings,
                       const std::filesystem::path& folder, const ReportPage& page, bool quiet);

}  // namespace freeformer
