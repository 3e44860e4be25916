#include <algorithm>

#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/load_plugin.h"
#include "cli/study_options.h"
#include "core/error.h"
#include "lab/run_sweep.h"

namespace freeformer::cli {

int run_sweep(const std::vector<std::string>& arguments) {
  CommandLine line(
      "Trains one settings file over every combination of the values of some keys, asks each "
      "model\n"
      "what it learned, and puts all of it into one folder: a table, results.jsonl, report.html.\n"
      "Stopped or killed, it goes on by the same command; runs that are done are skipped. Several\n"
      "processes may work on one folder: a run that one has begun, the others leave to it.\n\n"
      "examples:\n"
      "  freeformer sweep configs/synthetic.toml --over latent.kappa_bits=1/64,1/8,1,8 --seeds 3\n"
      "  freeformer sweep configs/coin.toml --baselines\n"
      "  freeformer sweep run.toml --over latent.bits=4,8 --over "
      "optimizer.learning_rate=1e-3,3e-3\n",
      "sweep");
  SweepRequest request;
  StudySettings study;
  std::string file, folder;
  std::vector<std::string> axes;
  bool json = false, quiet = false, dry = false;
  line.add_option("CONFIG", file, "settings, TOML").type_name("FILE").required();
  line.add_option("--over", axes, "a key and its values; repeatable: every combination is run")
      .type_name("KEY=V1,V2,…")
      .one_at_a_time();
  line.add_option("--set", request.assignments, "section.key=value of every run; repeatable")
      .type_name("KEY=VALUE")
      .one_at_a_time();
  line.add_option("--seeds", request.seeds, "runs of each point, seed after seed (default 1)")
      .type_name("N")
      .range(1, 1000);
  line.add_flag("--baselines", request.baselines,
                "also the plain decoder, and the one with a block more: the encoder's weight");
  line.add_option("--out", folder, "the sweep's folder (default: sweeps/ and the file's name)")
      .type_name("DIR");
  line.add_option("--rows", study.rows, "held-out rows each model is asked about (default 256)")
      .type_name("N")
      .range(1, 1 << 20);
  line.add_option("--iwae", study.iwae_samples, "samples K of the IWAE bound (default 16)")
      .type_name("K")
      .range(0, 1 << 20);
  line.add_option("--groups", study.letters.groups,
                  "letters: groups of 8 sequences with and without a shared Z (default 64)")
      .type_name("N")
      .range(1, 1 << 16);
  line.add_flag("--dry-run", dry, "print the runs, and end");
  line.add_flag("-q,--quiet", quiet, "no progress on stderr");
  line.add_flag("--json", json, "print one JSON object a run instead of the table");
  int status = kDone;
  if (!line.parse(arguments, status)) return status;
  study.letters.information_groups = std::max(2, study.letters.groups * 3 / 8);
  request.config = file;
  for (const std::string& axis : axes) request.axes.push_back(parse_sweep_axis(axis));
  request.folder =
      folder.empty() ? "sweeps" / request.config.stem() : std::filesystem::path(folder);
  const SweepPlan plan = plan_sweep(request);
  if (dry) {
    for (const SweepRun& run : plan.runs) {
      fmt::print("{}  {} steps\n", run.config.folder.string(), run.config.run.steps);
    }
    return kDone;
  }
  const ReportPage page{
      fmt::format("Sweep of {}", request.config.filename().string()),
      fmt::format("{} runs: {} points, {} {} each.", plan.runs.size(), plan.points.size(),
                  request.seeds, request.seeds == 1 ? "seed" : "seeds"),
      command_line("sweep", arguments), machine_facts()};
  const SweepOutcome outcome =
      freeformer::run_sweep(torch_plugin(), plan, study, request.folder, page, quiet);
  if (!outcome.stopped_by.empty()) {
    fmt::print(stderr,
               "[freeformer] stopped by {} with {} of {} runs done; the same command goes on\n",
               outcome.stopped_by, outcome.results.size(), plan.runs.size());
    return kFailed;
  }
  if (json) {
    for (const SweepResult& result : outcome.results) {
      fmt::print("{}\n", to_text(to_json(plan, result)));
    }
  } else {
    fmt::print("{}\n{}\n", sweep_table(plan, outcome.results),
               (request.folder / "report.html").string());
  }
  for (const std::string& failure : outcome.failures) {
    fmt::print(stderr, "freeformer: {}\n", failure);
  }
  return outcome.failures.empty() ? kDone : kFailed;
}

}  // namespace freeformer::cli
