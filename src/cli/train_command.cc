#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/load_plugin.h"
#include "core/error.h"
#include "core/json.h"
#include "run/train_config.h"

namespace freeformer::cli {

int run_train(const std::vector<std::string>& arguments) {
  CommandLine command(
      "Trains a model from one settings file. Everything lands in the run's folder (runs/NAME):\n"
      "config.toml, metrics.jsonl, TensorBoard events, checkpoints/step-N, latest and best. A run\n"
      "that was stopped or killed goes on from its latest checkpoint by the same command, bit for\n"
      "bit. SIGTERM, SIGINT and SIGUSR1 finish the step, save and end well.\n\n"
      "examples:\n"
      "  freeformer train configs/shakespeare-free.toml --set data.paths=input.txt\n"
      "  freeformer train configs/letters.toml --set latent.kappa_bits=1/8 --set run.seed=2\n"
      "  freeformer train run.toml --resume runs/run/checkpoints/best\n"
      "  freeformer train --explain               every key, its meaning and its default\n",
      "train");
  std::string file;
  std::vector<std::string> assignments;
  TrainRequest request;
  bool explain = false, json = false, print = false;
  command.add_option("CONFIG", file, "settings, TOML").type_name("FILE");
  command.add_option("--set", assignments, "section.key=value, over the file; may be repeated")
      .type_name("KEY=VALUE")
      .one_at_a_time();
  command
      .add_option("--resume", request.resume,
                  "auto (default): go on from the latest checkpoint; no: only where there is none; "
                  "or a checkpoint")
      .type_name("auto|no|DIR");
  command.add_flag("--explain", explain, "print every key with its meaning and default, and end");
  command.add_flag("--print-config", print, "print the settings as they would be used, and end");
  command.add_flag("-q,--quiet", request.quiet, "no progress on stderr");
  command.add_flag("--json", json, "print the outcome as one JSON object");
  int status = kDone;
  if (!command.parse(arguments, status)) return status;
  if (explain) {
    fmt::print("{}", explain_train_config());
    return kDone;
  }
  if (file.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "expected a settings file: freeformer train CONFIG.toml; see freeformer train --help");
  }
  request.config = read_train_config(file, assignments);
  if (print) {
    fmt::print("{}", request.config.resolved);
    return kDone;
  }
  const TrainOutcome outcome = torch_plugin().train(request);
  const bool evaluated = outcome.best_step >= 0;
  if (json) {
    OrderedJson result;
    result["folder"] = request.config.folder.string();
    result["step"] = outcome.step;
    result["finished"] = outcome.stopped_by.empty();
    result["stopped_by"] =
        outcome.stopped_by.empty() ? OrderedJson() : OrderedJson(outcome.stopped_by);
    result["checkpoint"] = outcome.checkpoint;
    result["best_bound"] = evaluated ? OrderedJson(outcome.best_bound) : OrderedJson();
    result["best_step"] = evaluated ? OrderedJson(outcome.best_step) : OrderedJson();
    fmt::print("{}\n", to_text(result));
  } else if (!request.quiet) {
    fmt::print("{}", outcome.checkpoint);
    if (evaluated) {
      fmt::print("  (best held-out bound {:.4f} nats at step {})", outcome.best_bound,
                 outcome.best_step);
    }
    fmt::print("\n");
  }
  return kDone;
}

}  // namespace freeformer::cli
