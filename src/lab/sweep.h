// Many runs of one settings file: every combination of the values of some keys, with several seeds.
// A sweep is a folder of runs; what is done is there, so that a sweep that was stopped goes on by
// the same command.
//
//   DIR/NAME/            a run (run/run_folder.h) with its study.json; sweep.lock is held by the
//                        process that trains and asks
//   DIR/results.jsonl    one object a run
//   DIR/table.md         the table of points: means over seeds
//   DIR/report.html
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/run_study.h"
#include "run/train_config.h"

namespace freeformer {

// --over latent.kappa_bits=1/64,1/8
struct SweepAxis {
  std::string key;
  std::vector<std::string> values;
};
// Commas inside quotes and brackets do not part values; quotes around a value are not part of it.
// Throws kInvalidArgument.
SweepAxis parse_sweep_axis(const std::string& text);

// What the runs of one point of the grid share.
struct SweepPoint {
  enum class Kind { kGrid, kPlain, kDeeper };
  Kind kind = Kind::kGrid;
  std::vector<std::pair<std::string, std::string>> values;  // key, value of every axis
  std::string label;  // "latent.kappa_bits=1/8", "plain", "plain, one more layer"
};

struct SweepRun {
  size_t point = 0;  // index into SweepPlan::points
  int64_t seed = 1;
  std::string name;  // of its folder
  TrainConfig config;
};

struct SweepPlan {
  std::vector<SweepPoint> points;
  std::vector<SweepRun> runs;  // all points with the first seed, then all with the second, …
};

struct SweepRequest {
  std::filesystem::path config;
  std::vector<std::string> assignments;  // of every run
  std::vector<SweepAxis> axes;
  int64_t seeds = 1;       // run.seed, run.seed + 1, …
  bool baselines = false;  // the plain decoder, and one with a block more (the encoder's weight)
  std::filesystem::path folder;
};

// Reads and checks the settings of every run before the first one starts. No two points have the
// same settings or the same folder. Throws what read_train_config does.
SweepPlan plan_sweep(const SweepRequest& request);

// A run that is done: its losses by step and its study.
struct SweepResult {
  const SweepRun* run = nullptr;
  std::vector<Json> metrics;  // the lines of metrics.jsonl
  RunStudy study;
};
// Reads a run's folder. Throws kIo, kBadCheckpoint.
SweepResult read_sweep_result(const SweepRun& run);

// A run's line of results.jsonl.
OrderedJson to_json(const SweepPlan& plan, const SweepResult& result);

// What the seeds of a point make together; one seed alone has no deviation.
struct OverSeeds {
  double mean = 0;
  std::optional<double> deviation;  // of a sample: over n − 1
};
OverSeeds over_seeds(const std::vector<double>& values);  // at least one

// Mean and standard deviation over seeds, a row a point, in Markdown. The same runs give the same
// text: nothing in it depends on the clock.
std::string sweep_table(const SweepPlan& plan, const std::vector<SweepResult>& results);

}  // namespace freeformer
