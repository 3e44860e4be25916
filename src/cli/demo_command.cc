#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/load_plugin.h"
#include "cli/study_options.h"
#include "core/error.h"
#include "lab/figure.h"
#include "lab/run_sweep.h"

namespace freeformer::cli {
namespace {

// Enough to see that all works; too little to learn much.
const std::vector<std::string> kQuick = {"run.steps=60",
                                         "model.hidden_size=32",
                                         "model.intermediate_size=64",
                                         "batch.tokens_per_step=1040",
                                         "latent.kappa_path=20:0 40",
                                         "latent.beta_path=20:0.2 40",
                                         "evaluation.every=30"};

}  // namespace

int run_demo(const std::vector<std::string>& arguments) {
  CommandLine line(
      "The paper's synthetic experiment in minutes. Sequences hold one letter eight times at a "
      "random\n"
      "place, and noise. A small Free Transformer learns to write such sequences, and a code Z "
      "for\n"
      "each token that nobody labelled. Then it writes: with a Z of their own, sequences put the\n"
      "letters anywhere; with one Z for all, they put them in one place. It had decided before it\n"
      "spoke. The run and its report land in one folder.\n\n"
      "examples:\n"
      "  freeformer demo\n"
      "  freeformer demo --quick             a glance: everything runs, little is learned\n",
      "demo");
  std::string folder;
  bool quick = false, quiet = false, json = false;
  SweepRequest request;
  line.add_option(
          "--out", folder,
          "folder of the run and its report (default runs/demo, of --quick runs/demo-quick)")
      .type_name("DIR");
  line.add_option("--set", request.assignments, "section.key=value over configs/demo.toml")
      .type_name("KEY=VALUE")
      .one_at_a_time();
  line.add_flag("--quick", quick, "seconds of training instead of minutes: to see that it works");
  line.add_flag("-q,--quiet", quiet, "no progress on stderr");
  line.add_flag("--json", json, "print what was measured as one JSON object");
  int status = kDone;
  if (!line.parse(arguments, status)) return status;
  request.config = shipped_file("configs/demo.toml");
  request.folder = !folder.empty() ? folder : quick ? "runs/demo-quick" : "runs/demo";
  StudySettings study;
  if (quick) {
    request.assignments.insert(request.assignments.begin(), kQuick.begin(), kQuick.end());
    study.rows = 32;
    study.iwae_samples = 2;
    study.letters.groups = 4;
    study.letters.information_groups = 2;
  }
  const SweepPlan plan = plan_sweep(request);
  if (const std::string& kind = plan.runs[0].config.data.kind; kind != "letters") {
    fail(ErrorCode::kInvalidArgument,
         "--set data.kind={}: the demo is about letters; for other data: freeformer sweep", kind);
  }
  const ReportPage page{"Deciding before speaking",
                        "A small Free Transformer on the paper's synthetic task: what its latent "
                        "code Z decides, measured.",
                        command_line("demo", arguments), machine_facts()};
  if (!quiet) {
    fmt::print(
        stderr,
        "[freeformer] training a small Free Transformer on the paper's synthetic task; Ctrl-C "
        "keeps what it has, and the same command goes on\n");
  }
  const SweepOutcome outcome =
      freeformer::run_sweep(torch_plugin(), plan, study, request.folder, page, quiet);
  if (!outcome.stopped_by.empty()) {
    fmt::print(stderr, "[freeformer] stopped by {}; the same command goes on\n",
               outcome.stopped_by);
    return kFailed;
  }
  const RunStudy& result = outcome.results.at(0).study;
  if (json) {
    fmt::print("{}\n", to_text(to_json(result)));
    return kDone;
  }
  const LettersStudy& letters = *result.letters;
  fmt::print("\n{}\n{}\n", figure_text(letters, wants_colour()), figure_sentence(letters));
  fmt::print("report: {}\nmodel: {}\n", (request.folder / "report.html").string(),
             (plan.runs[0].config.folder / "checkpoints/latest").string());
  return kDone;
}

}  // namespace freeformer::cli
