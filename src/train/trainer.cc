#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <span>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "core/tensor_manifest.h"
#include "engine/likelihood.h"
#include "model/foresight.h"
#include "model/torch_engine.h"
#include "model/weights.h"
#include "ops/arena.h"
#include "ops/binary_mapper.h"
#include "ops/layers.h"
#include "ops/torch_runtime.h"
#include "run/event_file.h"
#include "run/flops.h"
#include "run/metrics_file.h"
#include "run/run_folder.h"
#include "run/status_line.h"
#include "run/stop_signal.h"
#include "train/batches.h"
#include "train/optimizer.h"
#include "train/training_checkpoint.h"

namespace freeformer {
namespace {

using Clock = std::chrono::steady_clock;

// Held-out rows draw their codes from sequences that training never reaches.
constexpr uint64_t kHeldOutSequences = uint64_t{1} << 62;
// Logged steps in a row with a KL under a tenth of κ before it is worth a warning.
constexpr int kIdleLatentLogs = 10;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void prepare(const RunSettings& run) {
  ops::prepare_torch();
  ops::use_kernels(run.kernels);
  if (run.kernels && run.device == "cpu") ops::use_arena();
}

bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

// Figures of one step; means over its targets.
struct StepFigures {
  double loss = 0, ce = 0, kl_nats = 0, kl_penalty_nats = 0;
  double gradient_norm = 0, learning_rate = 0;
  KlPrice price;
  int64_t targets = 0;
};

// Counts how long the latent has been idle; warns once until it wakes.
class IdleLatentWatch {
 public:
  void see(double kl_bits, double kappa_bits) {
    if (kl_bits >= kappa_bits / 10) {
      logs_ = 0;
      return;
    }
    if (++logs_ != kIdleLatentLogs) return;
    log(LogLevel::kWarn, "train",
        "the latent is hardly used: KL {:.4f} bits per token, under a tenth of κ = {:g}, for the "
        "last {} logged steps. It may need longer; latent.encoder_init=ahead, "
        "optimizer.table_factor or a small beginning of latent.beta_path help it to wake",
        kl_bits, kappa_bits, kIdleLatentLogs);
  }

 private:
  int logs_ = 0;
};

class Trainer {
 public:
  explicit Trainer(const TrainRequest& request);
  TrainOutcome run();

 private:
  void check_held_out() const;
  void check_resume(const std::string& resume) const;
  std::optional<std::filesystem::path> checkpoint_to_resume(const std::string& resume) const;
  void resume_from(const std::filesystem::path& checkpoint);
  void restore_best();
  void describe();

  StepFigures train_step();
  KlPrice price(int64_t step) const;
  void fall_asleep();
  void require_awake() const;
  void wake(std::span<const Batch> batches);
  void sharpen();
  [[noreturn]] void stop_diverged(int64_t step, double found) const;

  // After a step: logs, evaluates, saves what is due. False: a signal interrupted the evaluation.
  bool finish_step(OrderedJson line);
  std::optional<Likelihood> evaluate();
  void save(bool is_best);

  OrderedJson log_line(const StepFigures& figures) const;
  void show(const OrderedJson& line);
  void restart_clock();
  void write_events(const OrderedJson& line);

  at::ScalarType compute_dtype() const {
    return config_.run.precision == "bf16" ? at::kBFloat16 : at::kFloat;
  }
  int64_t gradient_group() const {
    return config_.latent.gradient == "sampled" ? config_.latent.gradient_group : 1;
  }
  TableInit table_init() const {
    return config_.latent.init == "bits" ? TableInit::kBits : TableInit::kRandom;
  }
  bool is_asleep() const { return state_.wake_step < 0; }
  // An encoder that wakes late has a warm-up of its own, as long as the run's: before the decoder
  // hears it, its gradients are noise, and Adam makes as much of them as of any others.
  // The table is what makes it heard, and has none.
  double encoder_warmth() const {
    const int64_t warmup = config_.schedule.warmup_steps, age = state_.step - state_.wake_step;
    if (state_.wake_step == 0 || warmup == 0) return 1;
    return std::min(1.0, double(age + 1) / double(warmup));
  }
  ModelConfig plain() const {
    ModelConfig config = model_config_;
    config.latent = {};
    return config;
  }
  bool is_last_step() const { return state_.step == config_.run.steps; }
  bool evaluation_due() const {
    return config_.evaluation.every > 0 &&
           (due(state_.step, config_.evaluation.every) || is_last_step());
  }

  const TrainConfig config_;
  const ValuePath kappa_path_ = ValuePath::parse(config_.latent.kappa_path).value();
  const ValuePath beta_path_ = ValuePath::parse(config_.latent.beta_path).value();
  StatusLine status_;
  StopSignal signals_;
  torch::Device device_;
  std::unique_ptr<DataSource> data_;
  int64_t T_, rows_per_step_, rows_per_pass_;
  ModelConfig model_config_;
  FreeTransformer model_{nullptr};
  std::unique_ptr<RunFolder> folder_;
  std::unique_ptr<AdamW> optimizer_;
  TrainerState state_;
  std::unique_ptr<MetricsFile> metrics_, timing_;
  std::unique_ptr<EventFile> events_;
  IdleLatentWatch idle_latent_;

  double gemm_rate_ = 0;  // operations per second; 0: not measured
  Clock::time_point last_log_ = Clock::now();
  int64_t last_log_tokens_ = 0, last_log_step_ = 0;
};

Trainer::Trainer(const TrainRequest& request)
    : config_(request.config),
      status_(request.quiet),
      device_((prepare(request.config.run), ops::parse_device(request.config.run.device))),
      data_(open_data(config_.data, uint64_t(config_.run.seed))),
      T_(data_->context()),
      rows_per_step_(config_.batch.rows_per_step(T_)),
      rows_per_pass_(config_.batch.rows_per_pass(T_)),
      model_config_(model_config(config_, data_->vocab_size(), T_)) {
  check_held_out();
  check_resume(request.resume);
  folder_ = std::make_unique<RunFolder>(config_.folder);
  const auto checkpoint = checkpoint_to_resume(request.resume);

  model_ = FreeTransformer(model_config_);
  // Asked once: the folder may go while the run goes on.
  const bool begins_from_weights = config_.model.begins_from_weights();
  if (!checkpoint && begins_from_weights) {
    load_weights(model_, Checkpoint(config_.model.from));
    require_awake();
  } else if (!checkpoint) {
    initialize(model_, uint64_t(config_.run.seed), table_init());
  }
  model_->to(device_);
  model_->set_recompute(config_.run.recompute);
  optimizer_ = std::make_unique<AdamW>(model_, config_.optimizer, compute_dtype());
  if (!checkpoint && model_config_.latent.present() && !begins_from_weights &&
      (config_.latent.wake_after > 0 || config_.latent.encoder_init == "ahead")) {
    fall_asleep();
  }
  state_.data = fingerprint(*data_);
  if (checkpoint) resume_from(*checkpoint);
  if (request.resume != "auto") folder_->set_aside_after(state_.step);

  write_file_atomically(config_.folder / "config.toml", config_.resolved);
  metrics_ = std::make_unique<MetricsFile>(config_.folder / "metrics.jsonl", state_.step);
  timing_ = std::make_unique<MetricsFile>(config_.folder / "timing.jsonl", state_.step);
  if (config_.logging.tensorboard) {
    // TensorBoard forgets the step it is told and later ones; this one is logged.
    events_ = std::make_unique<EventFile>(config_.folder, checkpoint ? state_.step + 1 : 0);
  }
  if (config_.logging.gemm_share) {
    gemm_rate_ = ops::measure_gemm_rate(compute_dtype(), device_).sustained;
  }
  restart_clock();
}

void Trainer::check_held_out() const {
  if (config_.evaluation.every > 0 && data_->held_out_count() == 0) {
    fail(ErrorCode::kInvalidConfig,
         "evaluation.every is {}, but the data has no held-out rows: give data.held_out or "
         "evaluation.every = 0",
         config_.evaluation.every);
  }
}

void Trainer::check_resume(const std::string& resume) const {
  if (resume != "auto" && resume != "no" && !std::filesystem::is_directory(resume)) {
    fail(ErrorCode::kInvalidArgument,
         "--resume {}: not a folder; expected auto, no or a checkpoint such as {}", resume,
         (config_.folder / "checkpoints/latest").string());
  }
}

std::optional<std::filesystem::path> Trainer::checkpoint_to_resume(
    const std::string& resume) const {
  const auto latest = folder_->latest();
  if (resume == "auto") {
    if (!latest) return std::nullopt;
    return folder_->checkpoint(*latest);
  }
  if (resume == "no") {
    if (latest) {
      fail(ErrorCode::kInvalidArgument,
           "{} holds a run that reached step {}: leave out --resume to go on, or choose another "
           "folder with --set run.folder=DIR",
           config_.folder.string(), *latest);
    }
    return std::nullopt;
  }
  return resume;
}

void Trainer::resume_from(const std::filesystem::path& checkpoint) {
  state_ = read_training_checkpoint(checkpoint, model_config_, *optimizer_);
  if (state_.step > config_.run.steps) {
    fail(ErrorCode::kInvalidArgument, "{} is at step {}, run.steps is {}: nothing left to do",
         checkpoint.string(), state_.step, config_.run.steps);
  }
  status_.say(fmt::format("resuming from {} (step {})", checkpoint.string(), state_.step));
  restore_best();
  for (const std::string& change :
       changed_settings(read_text_file(checkpoint / "config.toml"), config_.resolved)) {
    status_.say("  changed since: " + change);
  }
  const std::string before = std::exchange(state_.data, fingerprint(*data_));
  if (before != state_.data) {
    status_.say(fmt::format("  changed since: the data: {} -> {}", before, state_.data));
  }
}

// A kill between a checkpoint and its link, or going back to an earlier one, leaves `best` pointing
// elsewhere; a checkpoint of another run has its best there.
void Trainer::restore_best() {
  if (state_.best_step >= 0 && std::filesystem::exists(folder_->checkpoint(state_.best_step))) {
    folder_->set_best(state_.best_step);
    return;
  }
  state_.best_step = -1;
  state_.best_bound = std::nan("");
}

void Trainer::describe() {
  std::string text = model_config_.latent.present()
                         ? fmt::format("Free Transformer, {} bits, κ = {:g}",
                                       model_config_.latent.bits, config_.latent.kappa_bits)
                         : std::string("plain decoder");
  text += fmt::format(": {} parameters, {} on {}; {} rows of {} tokens a step",
                      short_number(double(parameter_count(model_config_))), config_.run.precision,
                      config_.run.device, rows_per_step_, T_);
  if (rows_per_pass_ < rows_per_step_) text += fmt::format(" in passes of {}", rows_per_pass_);
  if (gemm_rate_ > 0) text += fmt::format("; a GEMM reaches {:.0f} GFLOPS", gemm_rate_ / 1e9);
  status_.say(text);
}

KlPrice Trainer::price(int64_t step) const {
  return {kappa_path_.at(step, config_.latent.kappa_bits),
          beta_path_.at(step, config_.latent.beta)};
}

// No bit leans, and no code moves anything: checkpoints and evaluations on the way are those of the
// decoder alone.
void Trainer::fall_asleep() {
  state_.wake_step = -1;
  for (const char* name : {kReadoutWeight, kTableWeight}) optimizer_->masters().at(name).zero_();
  optimizer_->refresh_model();
}

// Nobody would wake it: a new run takes the weights of another for those to begin with.
void Trainer::require_awake() const {
  if (!model_config_.latent.present()) return;
  if (model_->named_parameters()[kTableWeight].abs().max().item<double>() > 0) return;
  fail(ErrorCode::kInvalidArgument,
       "model.from {}: its latent is asleep (the table of codes is zero); expected a checkpoint "
       "from behind latent.wake_after, or the same run resumed",
       config_.model.from);
}

void Trainer::wake(std::span<const Batch> batches) {
  state_.wake_step = state_.step;
  const auto masters = optimizer_->masters();
  for (const char* name : {kReadoutWeight, kTableWeight}) {
    Tensor(masters.at(name))
        .copy_(initial_weight(model_config_, name, uint64_t(config_.run.seed), table_init()));
  }
  optimizer_->refresh_model();
  if (config_.latent.encoder_init == "ahead") {
    for (const auto& [name, weight] : look_ahead(model_, batches)) {
      Tensor(masters.at(name)).copy_(weight);
    }
    optimizer_->refresh_model();
  }
  if (state_.step > 0) status_.say(fmt::format("step {}: the latent wakes", state_.step));
}

// Every logit times a factor. It is in the weights from then on: checkpoints hold it, and the model
// knows nothing of it.
void Trainer::sharpen() {
  const double factor = config_.latent.sharpen_by;
  if (factor == 1 || !model_config_.latent.present()) return;
  optimizer_->masters().at(kReadoutWeight).mul_(factor);
  optimizer_->refresh_model();
  status_.say(fmt::format("step {}: the bits' logits times {:g}", state_.step, factor));
}

StepFigures Trainer::train_step() {
  const int64_t step = state_.step;
  StepFigures figures;
  figures.price = price(step);
  figures.learning_rate =
      config_.optimizer.learning_rate * schedule_factor(config_.schedule, step, config_.run.steps);
  const uint64_t first_row = state_.next_row;
  std::vector<TrainingBatch> passes;
  for (int64_t begin = 0; begin < rows_per_step_; begin += rows_per_pass_) {
    std::vector<Row> rows;
    for (int64_t b = begin; b < std::min(begin + rows_per_pass_, rows_per_step_); ++b) {
      rows.push_back(data_->train_row(first_row + uint64_t(b)));
    }
    passes.push_back(make_batch(rows, device_));
    figures.targets += passes.back().target_count;
  }
  if (is_asleep() && step >= config_.latent.wake_after) {
    std::vector<Batch> batches;
    for (const TrainingBatch& pass : passes) batches.push_back(pass.batch);
    wake(batches);
  }
  if (step == config_.latent.sharpen_after) sharpen();
  const auto all_targets = double(std::max<int64_t>(1, figures.targets));
  uint64_t row = first_row;
  for (const TrainingBatch& pass : passes) {
    LatentSource source = LatentSource::asleep();
    if (model_config_.latent.present() && !is_asleep()) {
      std::vector<uint64_t> sequences;
      for (int64_t b = 0; b < pass.targets_BT.size(0); ++b) sequences.push_back(row++);
      source = LatentSource::posterior(ops::latent_uniforms(uint64_t(config_.run.seed), sequences,
                                                            0, T_, model_config_.latent.bits)
                                           .to(device_));
      source = source.with_gradient_of(
          ops::sample_tokens(uint64_t(config_.run.seed), sequences, T_, gradient_group(), device_));
    }
    const Loss loss = model_->loss(pass.batch, pass.targets_BT, source, figures.price);
    // The mean is over all targets of the step, not a mean of the passes' means.
    const double share = double(std::max<int64_t>(1, pass.target_count)) / all_targets;
    (loss.total * share).backward();
    optimizer_->accumulate();
    figures.loss += loss.total.item<double>() * share;
    figures.ce += loss.cross_entropy.item<double>() * share;
    figures.kl_nats += loss.kl.item<double>() * share;
    figures.kl_penalty_nats += loss.kl_penalty.item<double>() * share;
  }
  figures.gradient_norm = optimizer_->gradient_norm();
  if (!std::isfinite(figures.loss)) stop_diverged(step + 1, figures.loss);
  if (!std::isfinite(figures.gradient_norm)) stop_diverged(step + 1, figures.gradient_norm);
  optimizer_->step(figures.learning_rate, figures.gradient_norm, encoder_warmth());
  return figures;
}

void Trainer::stop_diverged(int64_t step, double found) const {
  const auto latest = folder_->latest();
  const auto rows = uint64_t(rows_per_step_);
  const uint64_t first = state_.next_row - (state_.step == step ? rows : 0);
  fail(ErrorCode::kDiverged,
       "step {}: the loss or its gradient is {} (rows {} to {} of the data); last good checkpoint: "
       "{}; a lower optimizer.learning_rate or a longer schedule.warmup_steps may help",
       step, found, first, first + rows - 1,
       latest ? folder_->checkpoint(*latest).string() : "none yet");
}

OrderedJson Trainer::log_line(const StepFigures& figures) const {
  OrderedJson line;
  line["step"] = state_.step;
  line["tokens"] = state_.tokens;
  line["loss"] = figures.loss;
  if (model_config_.latent.present()) {
    line["posterior_ce"] = figures.ce;
    line["kl_bits"] = figures.kl_nats / std::log(2.0);
    line["hinged_kl_bits"] = figures.kl_penalty_nats / std::log(2.0);
    line["kappa_bits"] = figures.price.kappa_bits;
    line["beta"] = figures.price.beta;
  } else {
    line["ce"] = figures.ce;
  }
  line["learning_rate"] = figures.learning_rate;
  line["gradient_norm"] = figures.gradient_norm;
  return line;
}

void Trainer::show(const OrderedJson& line) {
  const double seconds = seconds_since(last_log_);
  const double tokens_per_second = double(state_.tokens - last_log_tokens_) / seconds;
  const double left = seconds / double(std::max<int64_t>(1, state_.step - last_log_step_)) *
                      double(config_.run.steps - state_.step);
  OrderedJson timing;
  timing["step"] = state_.step;
  timing["seconds"] = seconds;
  timing["tokens_per_second"] = tokens_per_second;
  if (gemm_rate_ > 0) {
    timing["share_of_gemm_rate"] =
        tokens_per_second *
        training_flops_per_token(is_asleep() ? plain() : model_config_, T_, gradient_group()) /
        gemm_rate_;
  }
  timing_->append(timing);
  if (events_) {
    std::vector<std::pair<std::string, double>> values;
    for (const char* key : {"tokens_per_second", "share_of_gemm_rate"}) {
      if (timing.contains(key)) values.emplace_back(std::string("speed/") + key, timing[key]);
    }
    events_->scalars(state_.step, double(std::time(nullptr)), values);
  }
  restart_clock();

  std::string text = fmt::format("step {}/{}", state_.step, config_.run.steps);
  if (status_.is_terminal()) {
    text += " " + progress_bar(double(state_.step) / double(config_.run.steps), 12);
  }
  text += fmt::format("  loss {:.4f}", line["loss"].get<double>());
  if (line.contains("kl_bits")) {
    text += fmt::format("  CE {:.4f}  KL {:.3f} bits", line["posterior_ce"].get<double>(),
                        line["kl_bits"].get<double>());
  }
  text += fmt::format("  lr {:.2e}  |g| {:.2f}  {} tok/s", line["learning_rate"].get<double>(),
                      line["gradient_norm"].get<double>(), short_number(tokens_per_second));
  if (gemm_rate_ > 0) {
    text += fmt::format(" ({:.0f} % of GEMM)", 100 * timing["share_of_gemm_rate"].get<double>());
  }
  status_.show(text + fmt::format("  {} left", duration(left)));
}

// Speed is that of training: not of evaluating, saving or starting.
void Trainer::restart_clock() {
  last_log_ = Clock::now();
  last_log_tokens_ = state_.tokens;
  last_log_step_ = state_.step;
}

void Trainer::write_events(const OrderedJson& line) {
  if (!events_) return;
  std::vector<std::pair<std::string, double>> values;
  for (const auto& [key, value] : line.items()) {
    if (value.is_number() && key != "step") values.emplace_back("train/" + key, value);
  }
  if (line.contains("evaluation")) {
    for (const auto& [key, value] : line["evaluation"].items()) {
      if (value.is_object() && value.contains("nats_per_token")) {
        values.emplace_back("held_out/" + key, value["nats_per_token"]);
      }
    }
    if (line["evaluation"].contains("latent")) {
      const auto& latent = line["evaluation"]["latent"];
      for (const auto& [key, value] : latent.items()) {
        if (value.is_number()) values.emplace_back("latent/" + key, value);
      }
      for (size_t h = 0; h < latent["kl_bits_by_bit"].size(); ++h) {
        values.emplace_back(fmt::format("latent_bits/kl_bit_{:02}", h),
                            latent["kl_bits_by_bit"][h]);
      }
    }
  }
  events_->scalars(state_.step, double(std::time(nullptr)), values);
}

std::optional<Likelihood> Trainer::evaluate() {
  const auto sequences = held_out_sequences(*data_, config_.evaluation.rows);
  LikelihoodSettings settings;
  settings.seed = uint64_t(config_.run.seed);
  settings.first_sequence = kHeldOutSequences;
  settings.iwae_samples = config_.evaluation.iwae_samples;
  settings.kappa_bits = config_.latent.kappa_bits;
  TorchEngine engine(model_);
  return measure_likelihood(engine, sequences, settings, [&](double share) {
    status_.show_briefly(
        fmt::format("step {}: evaluating {}", state_.step, progress_bar(share, 20)));
    return StopSignal::received() == nullptr;
  });
}

bool Trainer::finish_step(OrderedJson line) {
  bool is_best = false;
  if (evaluation_due() && state_.evaluated_step < state_.step) {
    const auto result = evaluate();
    if (!result) {
      state_.pending = line;
      return false;
    }
    state_.evaluated_step = state_.step;
    line["evaluation"] = to_json(*result);
    // By a bound on the likelihood, never by posterior CE: that one the encoder can buy.
    if (!std::isfinite(result->bound())) stop_diverged(state_.step, result->bound());
    // While κ and β are on their way it is a bound of another objective: lowest where Z is silent.
    // A latent asleep has none.
    is_best = state_.step > std::max(kappa_path_.end(), beta_path_.end()) && !is_asleep() &&
              !(result->bound() >= state_.best_bound);
    if (is_best) {
      state_.best_bound = result->bound();
      state_.best_step = state_.step;
    }
    status_.say(
        result->has_latent
            ? fmt::format("step {}: held-out ELBO {:.4f} (posterior CE {:.4f} + KL {:.4f}), "
                          "prior CE {:.4f}{} nats; KL {:.3f} bits, {} of {} bits alive{}",
                          state_.step, result->elbo.mean, result->posterior_ce.mean,
                          result->kl.mean, result->prior_ce->mean,
                          result->iwae ? fmt::format(", IWAE-{} {:.4f}", result->iwae_samples,
                                                     result->iwae->mean)
                                       : std::string(),
                          result->health.kl_bits, result->health.bits_alive,
                          model_config_.latent.bits, is_best ? "  (best)" : "")
            : fmt::format("step {}: held-out CE {:.4f} nats{}", state_.step, result->ce.mean,
                          is_best ? "  (best)" : ""));
    restart_clock();
  }
  const bool logged =
      due(state_.step, config_.logging.every) || line.contains("evaluation") || is_last_step();
  if (logged) {
    metrics_->append(line);
    write_events(line);
  }
  if (due(state_.step, config_.checkpoints.every) || is_last_step() || is_best) {
    save(is_best);
    restart_clock();
  }
  return true;
}

void Trainer::save(bool is_best) {
  // What the last update ruined would only show in the next loss.
  for (const auto& [name, master] : optimizer_->masters()) {
    if (!at::isfinite(master).all().item<bool>()) stop_diverged(state_.step, std::nan(""));
  }
  metrics_->sync();
  folder_->save(state_.step, [&](const std::filesystem::path& temporary) {
    write_training_checkpoint(temporary, model_config_, *optimizer_, state_, data_->tokenizer(),
                              config_.resolved);
  });
  if (is_best) folder_->set_best(state_.step);
  folder_->prune(config_.checkpoints.keep_last, config_.checkpoints.keep_every,
                 state_.best_step >= 0 ? std::optional(state_.best_step) : std::nullopt);
}

TrainOutcome Trainer::run() {
  describe();
  TrainOutcome outcome;
  bool interrupted = false;
  if (!state_.pending.is_null()) {
    interrupted = !finish_step(std::exchange(state_.pending, OrderedJson()));
  }
  while (!interrupted && !is_last_step() && StopSignal::received() == nullptr) {
    const StepFigures figures = train_step();
    ++state_.step;
    state_.next_row += uint64_t(rows_per_step_);
    state_.tokens += figures.targets;
    const OrderedJson line = log_line(figures);
    if (due(state_.step, config_.logging.every) || is_last_step()) {
      show(line);
      if (model_config_.latent.present() && !is_asleep() && state_.step * 10 >= config_.run.steps) {
        idle_latent_.see(figures.kl_nats / std::log(2.0), figures.price.kappa_bits);
      }
    }
    interrupted = !finish_step(line);
  }
  if (const char* signal = StopSignal::received(); signal != nullptr && !is_last_step()) {
    outcome.stopped_by = signal;
  } else if (interrupted) {
    outcome.stopped_by = StopSignal::received();
  }
  if (!outcome.stopped_by.empty()) {
    if (folder_->latest() != state_.step || interrupted) save(false);
    status_.say(fmt::format("{}: stopped after step {}; the same command goes on from here",
                            outcome.stopped_by, state_.step));
  }
  outcome.step = state_.step;
  if (const auto latest = folder_->latest()) {
    outcome.checkpoint = folder_->checkpoint(*latest).string();
  }
  outcome.best_bound = state_.best_bound;
  outcome.best_step = state_.best_step;
  return outcome;
}

}  // namespace

TrainOutcome train(const TrainRequest& request) {
  try {
    return Trainer(request).run();
  } catch (const c10::Error& error) {
    // LibTorch's messages carry a stack trace behind the first line.
    fail(ErrorCode::kUnsupported, "LibTorch: {}", error.what_without_backtrace());
  }
}

}  // namespace freeformer
