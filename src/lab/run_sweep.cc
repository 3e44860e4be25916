#include "lab/run_sweep.h"

#include <unistd.h>

#include <optional>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "run/run_folder.h"
#include "run/status_line.h"
#include "run/stop_signal.h"

namespace freeformer {
namespace {

constexpr const char* kStudyFile = "study.json";

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// The settings that a folder's run had must be the ones it is asked for now.
void check_settings(const SweepRun& run) {
  const auto file = run.config.folder / "config.toml";
  if (!is_there(file)) return;
  for (const std::string& change : changed_settings(read_text_file(file), run.config.resolved)) {
    if (change.starts_with("run.folder:")) continue;  // the whole sweep may have moved
    fail(ErrorCode::kInvalidConfig,
         "{}: this run had other settings ({}); remove it, or choose another folder with --out DIR",
         run.config.folder.string(), change);
  }
}

// Was the finished model asked what is asked now? A study that cannot be read is none.
bool is_done(const SweepRun& run, const StudySettings& settings) {
  const auto file = run.config.folder / kStudyFile;
  if (!is_there(file)) return false;
  try {
    const RunStudy study = read_run_study(file);
    return study.step == run.config.run.steps && study.rows == settings.rows &&
           study.iwae_samples == settings.iwae_samples && study.groups == settings.letters.groups;
  } catch (const Error&) {
    return false;
  }
}

// Trains and asks one run. The signal's name if one came, else empty.
std::string carry_out(TorchPlugin& plugin, const SweepRun& run, StudySettings settings,
                      bool quiet) {
  std::error_code error;
  std::filesystem::create_directories(run.config.folder, error);
  if (error) {
    fail(ErrorCode::kIo, "{}: cannot create: {}", run.config.folder.string(), error.message());
  }
  // The trainer's own lock ends with the training, and then the model is asked.
  const FileLock lock(run.config.folder / "sweep.lock",
                      run.config.folder.string() + ": another process is at it");
  TrainRequest request;
  request.config = run.config;
  request.quiet = quiet;
  const TrainOutcome outcome = plugin.train(request);
  if (!outcome.stopped_by.empty()) return outcome.stopped_by;

  StatusLine status(quiet);
  const auto engine = plugin.open_engine(outcome.checkpoint, run.config.run.device, "fp32");
  const auto data = open_data(run.config.data, uint64_t(run.config.run.seed));
  settings.seed = settings.letters.seed = uint64_t(run.seed);
  const auto study =
      study_run(*engine, data->tokenizer(), *data, run.config.data, settings, [&](double share) {
        status.show_briefly(fmt::format("asking the model {}", progress_bar(share, 30)));
        return StopSignal::received() == nullptr;
      });
  if (!study) return StopSignal::received();
  OrderedJson json = to_json(*study);
  json["step"] = outcome.step;
  write_file_atomically(run.config.folder / kStudyFile, to_text(json) + "\n");
  return "";
}

void write_results(const SweepPlan& plan, const std::vector<SweepResult>& results,
                   const std::filesystem::path& folder, const ReportPage& page) {
  std::string lines;
  for (const SweepResult& result : results) {
    lines += to_text(to_json(plan, result)) + "\n";
  }
  write_file_atomically(folder / "results.jsonl", lines);
  write_file_atomically(folder / "table.md", sweep_table(plan, results));
  write_file_atomically(folder / "report.html", report_html(page, plan, results));
}

}  // namespace

SweepOutcome run_sweep(TorchPlugin& plugin, const SweepPlan& plan, const StudySettings& settings,
                       const std::filesystem::path& folder, const ReportPage& page, bool quiet) {
  for (const SweepRun& run : plan.runs) check_settings(run);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(ErrorCode::kIo, "{}: cannot create: {}", folder.string(), error.message());

  SweepOutcome outcome;
  const auto collect = [&] {
    outcome.results.clear();
    for (const SweepRun& run : plan.runs) {
      if (is_done(run, settings)) outcome.results.push_back(read_sweep_result(run));
    }
    write_results(plan, outcome.results, folder, page);
  };
  const StopSignal signals;
  std::set<size_t> failed, busy;
  bool waiting = true;
  while (waiting && outcome.stopped_by.empty()) {
    waiting = false;
    bool worked = false;
    for (size_t i = 0; i < plan.runs.size() && outcome.stopped_by.empty(); ++i) {
      const SweepRun& run = plan.runs[i];
      if (failed.contains(i) || is_done(run, settings)) continue;
      if (!quiet && plan.runs.size() > 1 && !busy.contains(i)) {
        StatusLine().say(fmt::format("[{} of {}] {}, seed {}", i + 1, plan.runs.size(),
                                     plan.points[run.point].label, run.seed));
      }
      try {
        outcome.stopped_by = carry_out(plugin, run, settings, quiet);
        worked = true;
      } catch (const RunFolderBusy&) {
        if (!quiet && busy.insert(i).second) StatusLine().say("another process is at it");
        waiting = true;
      } catch (const Error& failure) {
        if (plan.runs.size() == 1) throw;
        failed.insert(i);
        outcome.failures.push_back(fmt::format("{}: {}", run.name, failure.what()));
      }
      if (worked) collect();
    }
    for (int second = 0; waiting && !worked && second < 5; ++second) {
      if (const char* signal = StopSignal::received()) outcome.stopped_by = signal;
      if (!outcome.stopped_by.empty()) break;
      ::sleep(1);
    }
  }
  collect();
  return outcome;
}

}  // namespace freeformer
