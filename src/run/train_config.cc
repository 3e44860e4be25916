#include "run/train_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "core/error.h"
#include "core/file.h"

namespace freeformer {
namespace {

void list(Fields& fields, RunSettings& s) {
  fields.add("folder", &s.folder, "the run's folder; empty: runs/ and the settings file's name");
  fields.add("seed", &s.seed, "of weights, data order and codes: same seed, same run");
  fields.add("steps", &s.steps, "optimiser steps of the whole run");
  fields.add("device", &s.device, "a LibTorch device: cpu, cuda, cuda:1");
  fields.choice("precision", s.precision, {"fp32", "bf16"},
                "of the arithmetic; bf16 keeps fp32 master weights");
  fields.add("recompute", &s.recompute,
             "keep only the blocks' inputs for the backward pass: less memory, a third more work");
  fields.add("kernels", &s.kernels,
             "our own CPU kernels; false: LibTorch's operations, slower, to compare with");
}

void list(Fields& fields, ModelSettings& s) {
  fields.add("from", &s.from,
             "a config.json whose shape to take, or a checkpoint whose weights to start from");
  fields.add("vocab_size", &s.vocab_size, "0: the data's");
  fields.add("hidden_size", &s.hidden_size, "D, width of the residual stream");
  fields.add("intermediate_size", &s.intermediate_size,
             "F, width of the MLP; 0: 8/3 D, rounded up");
  fields.add("num_hidden_layers", &s.num_hidden_layers, "L, blocks; even with a latent");
  fields.add("num_attention_heads", &s.num_attention_heads, "N, query heads");
  fields.add("num_key_value_heads", &s.num_key_value_heads, "K, divides N; 0: N");
  fields.add("head_dim", &s.head_dim, "H; 0: D / N");
  fields.add("max_position_embeddings", &s.max_position_embeddings, "0: the data's context");
  fields.add("rms_norm_eps", &s.rms_norm_eps, "added to the mean square in every norm");
  fields.add("rope_theta", &s.rope_theta, "base of the rotary embedding");
  fields.add("initializer_range", &s.initializer_range, "standard deviation of initial weights");
  fields.add("tie_word_embeddings", &s.tie_word_embeddings, "read-out shares the embedding");
}

void list(Fields& fields, LatentSettings& s) {
  fields.add("bits", &s.bits, "Z, latent bits per token; 0: a plain decoder");
  fields.add("kappa_bits", &s.kappa_bits, "κ, free bits per token");
  fields.add("kappa_path", &s.kappa_path,
             "κ's way there, in STEP:VALUE and a last STEP: \"1000:0 1300\" is 0 for 1000 steps, "
             "then along a line, kappa_bits after 1300; a step twice is a jump");
  fields.add("beta", &s.beta, "β, weight of the KL above κ; the paper has 1");
  fields.add("beta_path", &s.beta_path, "β's way there, in the same words");
  fields.add("sharpen_by", &s.sharpen_by,
             "once, the weights that read the bits' logits out are multiplied by this: bits that "
             "lean become firm at a stroke; 1: never");
  fields.add("sharpen_after", &s.sharpen_after, "steps before that");
  fields.choice("init", s.init, {"random", "bits"},
                "the table of codes: random rows (the paper), or sums of one vector per bit");
  fields.choice(
      "encoder_init", s.encoder_init, {"random", "ahead"},
      "how the encoder begins: at random (the paper), or with weights made from the first "
      "batch it sees, looking at the next token and saying what surprises the decoder");
  fields.add("wake_after", &s.wake_after,
             "steps in which the decoder learns alone, as if there were no latent");
  fields.choice("gradient", s.gradient, {"exact", "sampled"},
                "of the bits' logits: of every token, or of one token in gradient_group, scaled up "
                "(unbiased, cheaper, noisier)");
  fields.add("gradient_group", &s.gradient_group, "tokens of which one is taken (sampled)");
}

void list(Fields& fields, BatchSettings& s) {
  fields.add("tokens_per_step", &s.tokens_per_step,
             "tokens of one optimiser step, rounded to whole rows of the data's context");
  fields.add("micro_rows", &s.micro_rows,
             "rows of one pass; passes add up to a step. 0: all rows of a step at once");
}

void list(Fields& fields, OptimizerSettings& s) {
  fields.add("learning_rate", &s.learning_rate, "AdamW's peak rate; the schedule scales it");
  fields.add("beta1", &s.beta1, "decay of the mean of gradients");
  fields.add("beta2", &s.beta2, "decay of the mean of squares");
  fields.add("epsilon", &s.epsilon, "added to the root of the mean square");
  fields.add("weight_decay", &s.weight_decay, "decoupled, on matrices only");
  fields.add("clip_norm", &s.clip_norm, "largest norm of all gradients together; 0: no clipping");
  fields.add("encoder_factor", &s.encoder_factor,
             "learning rate of the encoder path (ζ, its block, norm and read-out) over the rest's");
  fields.add("table_factor", &s.table_factor,
             "learning rate of the table of codes over the rest's");
}

void list(Fields& fields, EvaluationSettings& s) {
  fields.add("every", &s.every, "steps between evaluations on held-out rows; 0: never");
  fields.add("rows", &s.rows, "held-out rows to use, evenly spread; 0: all");
  fields.add("iwae_samples", &s.iwae_samples, "K of the IWAE bound; 0: leave it out");
}

void list(Fields& fields, CheckpointSettings& s) {
  fields.add("every", &s.every, "steps between checkpoints; 0: only the last and the best");
  fields.add("keep_last", &s.keep_last, "how many of the newest to keep");
  fields.add("keep_every", &s.keep_every, "also keep those of every so many steps; 0: none");
}

void list(Fields& fields, LoggingSettings& s) {
  fields.add("every", &s.every, "steps between lines of metrics.jsonl and the terminal");
  fields.add("tensorboard", &s.tensorboard, "write TensorBoard event files too");
  fields.add("gemm_share", &s.gemm_share,
             "measure the machine's GEMM rate at start (0.2 s) and tell the share reached");
}

std::filesystem::path config_json_of(const ModelSettings& settings) {
  const std::filesystem::path from = settings.from;
  return settings.begins_from_weights() ? from / "config.json" : from;
}

void require(const Fields& fields, const char* key, bool holds, const char* expected) {
  if (!holds) fields.reject(key, expected);
}

void check_path(const Fields& fields, const char* key, const std::string& text, int64_t steps) {
  const auto path = ValuePath::parse(text);
  require(fields, key, path.has_value(),
          "points STEP:VALUE with steps that do not fall and values of 0 or more, then a STEP "
          "alone, like 1000:0 1300");
  if (path->end() >= steps) {
    fields.reject(
        key, fmt::format("a last step before run.steps = {}: else the run ends on the way", steps));
  }
}

void check_numbers(const Fields& f, const TrainConfig& c) {
  require(f, "run.seed", c.run.seed >= 0, "0 or more");
  require(f, "run.steps", c.run.steps >= 1 && c.run.steps <= 1'000'000'000, "1 to 10^9");
  // The other sizes are judged with the shape as a whole, but this one is calculated with before.
  require(f, "model.hidden_size", c.model.hidden_size >= 1 && c.model.hidden_size <= 1 << 20,
          "1 to 1048576");
  require(f, "latent.bits", c.latent.bits >= 0 && c.latent.bits <= kMaxLatentBits, "0 to 20");
  require(f, "latent.kappa_bits", c.latent.kappa_bits >= 0, "0 or more");
  check_path(f, "latent.kappa_path", c.latent.kappa_path, c.run.steps);
  require(f, "latent.gradient_group",
          c.latent.gradient_group >= 1 && c.latent.gradient_group <= 65536, "1 to 65536");
  require(f, "latent.beta", c.latent.beta >= 0, "0 or more");
  check_path(f, "latent.beta_path", c.latent.beta_path, c.run.steps);
  require(f, "latent.sharpen_by", c.latent.sharpen_by >= 1e-3 && c.latent.sharpen_by <= 1e3,
          "0.001 to 1000");
  if (c.latent.sharpen_after < 0 || c.latent.sharpen_after >= c.run.steps) {
    f.reject("latent.sharpen_after", fmt::format("0 to below run.steps = {}", c.run.steps));
  }
  require(f, "latent.wake_after", c.latent.wake_after >= 0, "0 or more");
  require(f, "batch.tokens_per_step",
          c.batch.tokens_per_step >= 1 && c.batch.tokens_per_step <= 1'000'000'000, "1 to 10^9");
  require(f, "batch.micro_rows", c.batch.micro_rows >= 0, "0 or more");
  const OptimizerSettings& o = c.optimizer;
  require(f, "optimizer.learning_rate", o.learning_rate > 0 && o.learning_rate <= 1e30,
          "more than 0");
  require(f, "optimizer.beta1", o.beta1 >= 0 && o.beta1 < 1, "0 to below 1");
  require(f, "optimizer.beta2", o.beta2 >= 0 && o.beta2 < 1, "0 to below 1");
  require(f, "optimizer.epsilon", o.epsilon > 0 && o.epsilon <= 1e30, "more than 0");
  require(f, "optimizer.weight_decay", o.weight_decay >= 0, "0 or more");
  require(f, "optimizer.clip_norm", o.clip_norm >= 0, "0 or more");
  require(f, "optimizer.encoder_factor", o.encoder_factor >= 0, "0 or more");
  require(f, "optimizer.table_factor", o.table_factor >= 0, "0 or more");
  require(f, "evaluation.every", c.evaluation.every >= 0, "0 or more");
  require(f, "evaluation.rows", c.evaluation.rows >= 0, "0 or more");
  require(f, "evaluation.iwae_samples", c.evaluation.iwae_samples >= 0, "0 or more");
  require(f, "checkpoints.every", c.checkpoints.every >= 0, "0 or more");
  require(f, "checkpoints.keep_last", c.checkpoints.keep_last >= 1, "1 or more");
  require(f, "checkpoints.keep_every", c.checkpoints.keep_every >= 0, "0 or more");
  require(f, "logging.every", c.logging.every >= 1, "1 or more");
}

// What the other settings leave without effect.
void check_effects(Fields& fields, const TrainConfig& config) {
  bool has_latent = config.latent.bits > 0;
  const char* why_not = "latent.bits is 0";
  if (!config.model.from.empty()) {
    const std::filesystem::path config_json = config_json_of(config.model);
    has_latent = read_model_config(config_json).latent.present();
    why_not = "the model of model.from has no latent";
    for (const Fields::Field& field : std::vector(fields.all())) {
      if (field.key.starts_with("model.") && field.key != "model.from") {
        fields.no_effect(field.key, "model.from gives the shape");
      }
    }
    fields.no_effect("latent.bits", "model.from gives the shape");
    if (config.model.begins_from_weights()) {
      for (const char* key : {"latent.init", "latent.encoder_init", "latent.wake_after"}) {
        fields.no_effect(key, "model.from gives the weights");
      }
    }
  }
  if (!has_latent) {
    for (const Fields::Field& field : std::vector(fields.all())) {
      if (field.key.starts_with("latent.") && field.key != "latent.bits") {
        fields.no_effect(field.key, why_not);
      }
    }
    for (const char* key :
         {"optimizer.encoder_factor", "optimizer.table_factor", "evaluation.iwae_samples"}) {
      fields.no_effect(key, why_not);
    }
  }
  if (config.latent.gradient == "exact") {
    fields.no_effect("latent.gradient_group", "latent.gradient is \"exact\"");
  }
  if (config.latent.sharpen_by == 1) {
    fields.no_effect("latent.sharpen_after", "latent.sharpen_by is 1");
  }
  if (config.checkpoints.every == 0) {
    fields.no_effect("checkpoints.keep_every", "checkpoints.every is 0");
  }
  if (config.evaluation.every == 0) {
    fields.no_effect("evaluation.rows", "evaluation.every is 0");
    fields.no_effect("evaluation.iwae_samples", "evaluation.every is 0");
  }
}

// When the latent wakes, where it does.
void check_waking(const Fields& f, const TrainConfig& c) {
  if (c.model.begins_from_weights() || (c.model.from.empty() && c.latent.bits == 0)) return;
  if (c.latent.wake_after >= c.run.steps) {
    f.reject("latent.wake_after", fmt::format("0 to below run.steps = {}", c.run.steps));
  }
  if (c.latent.sharpen_by != 1 && c.latent.sharpen_after < c.latent.wake_after) {
    f.reject("latent.sharpen_after",
             fmt::format("latent.wake_after = {} or more: before that there is nothing to sharpen",
                         c.latent.wake_after));
  }
}

// "section.key" -> value, of a text that Fields::write made: one line a key.
std::map<std::string, std::string> key_values(const std::string& settings) {
  std::map<std::string, std::string> values;
  std::istringstream lines(settings);
  std::string line, section;
  while (std::getline(lines, line)) {
    const size_t equals = line.find(" = ");
    if (line.starts_with("[") && line.ends_with("]")) {
      section = line.substr(1, line.size() - 2) + ".";
    } else if (equals != line.npos) {
      values[section + line.substr(0, equals)] = line.substr(equals + 3);
    }
  }
  return values;
}

}  // namespace

bool ModelSettings::begins_from_weights() const {
  std::error_code ignored;  // what cannot be seen cannot be read, which says why
  return std::filesystem::is_directory(from, ignored);
}

int64_t BatchSettings::rows_per_step(int64_t T) const {
  return std::max<int64_t>(1, (tokens_per_step + T / 2) / T);
}

int64_t BatchSettings::rows_per_pass(int64_t T) const {
  const int64_t rows = rows_per_step(T);
  return micro_rows == 0 ? rows : std::min(micro_rows, rows);
}

Fields list_fields(TrainConfig& config) {
  Fields fields;
  fields.section("run", [&](Fields& f) { list(f, config.run); });
  fields.section("data", [&](Fields& f) { list_fields(f, config.data); });
  fields.section("model", [&](Fields& f) { list(f, config.model); });
  fields.section("latent", [&](Fields& f) { list(f, config.latent); });
  fields.section("batch", [&](Fields& f) { list(f, config.batch); });
  fields.section("optimizer", [&](Fields& f) { list(f, config.optimizer); });
  fields.section("schedule", [&](Fields& f) { list_fields(f, config.schedule); });
  fields.section("evaluation", [&](Fields& f) { list(f, config.evaluation); });
  fields.section("checkpoints", [&](Fields& f) { list(f, config.checkpoints); });
  fields.section("logging", [&](Fields& f) { list(f, config.logging); });
  return fields;
}

TrainConfig read_train_config(const std::filesystem::path& file,
                              const std::vector<std::string>& assignments) {
  TrainConfig config;
  Fields fields = list_fields(config);
  fields.read(read_text_file(file, size_t{1} << 20), file.string());
  for (const std::string& assignment : assignments) fields.set(assignment);
  fields.apply_conditions([&](const std::string& key) {
    const bool plain = config.model.from.empty() && config.latent.bits == 0;
    return plain && key.starts_with("latent.") && key != "latent.bits";
  });
  check_numbers(fields, config);
  check(fields, "data.", config.data);
  if (!fields.was_set("schedule.warmup_steps")) {  // the default suits long runs
    config.schedule.warmup_steps = std::min(config.schedule.warmup_steps, config.run.steps / 10);
  }
  check(fields, "schedule.", config.schedule, config.run.steps);
  check_effects(fields, config);
  check_waking(fields, config);
  // Shape mistakes name the key of this file, before any data is opened; the smallest stands in.
  if (config.model.from.empty()) model_config(config, 1, 1);
  // A checkpoint keeps its κ unless the settings have another.
  if (!config.model.from.empty() && !fields.was_set("latent.kappa_bits")) {
    const LatentConfig latent = read_model_config(config_json_of(config.model)).latent;
    if (latent.present()) config.latent.kappa_bits = latent.kappa_bits;
  }
  config.folder =
      config.run.folder.empty() ? "runs" / file.stem() : std::filesystem::path(config.run.folder);
  config.resolved = fields.write();
  return config;
}

std::vector<std::string> changed_settings(const std::string& before, const std::string& after) {
  const auto a = key_values(before), b = key_values(after);
  std::vector<std::string> changes;
  const auto value = [](const auto& map, const std::string& key) {
    const auto found = map.find(key);
    return found == map.end() ? std::string("nothing") : found->second;
  };
  for (const auto& [key, text] : b) {
    if (value(a, key) != text) changes.push_back(key + ": " + value(a, key) + " -> " + text);
  }
  for (const auto& [key, text] : a) {
    if (!b.contains(key)) changes.push_back(key + ": " + text + " -> nothing");
  }
  return changes;
}

std::string explain_train_config() {
  TrainConfig config;
  return list_fields(config).explain();
}

ModelConfig model_config(const TrainConfig& config, int64_t data_vocab_size, int64_t T) {
  const ModelSettings& m = config.model;
  ModelConfig c;
  if (!m.from.empty()) {
    c = read_model_config(config_json_of(m));
    if (c.latent.present()) c.latent.kappa_bits = config.latent.kappa_bits;
  } else {
    c.vocab_size = m.vocab_size == 0 ? data_vocab_size : m.vocab_size;
    c.hidden_size = m.hidden_size;
    // 8/3 D keeps the parameters of the classic 4 D without a gate; multiples of 32 suit vectors.
    c.intermediate_size =
        m.intermediate_size == 0 ? (m.hidden_size * 8 / 3 + 31) / 32 * 32 : m.intermediate_size;
    c.num_hidden_layers = m.num_hidden_layers;
    c.num_attention_heads = m.num_attention_heads;
    c.num_key_value_heads =
        m.num_key_value_heads == 0 ? m.num_attention_heads : m.num_key_value_heads;
    c.head_dim = m.head_dim;
    if (m.head_dim == 0 && m.num_attention_heads > 0) {
      if (m.hidden_size % m.num_attention_heads != 0) {
        fail(ErrorCode::kInvalidConfig,
             "model.hidden_size {} does not divide by model.num_attention_heads {}: give "
             "model.head_dim",
             m.hidden_size, m.num_attention_heads);
      }
      c.head_dim = m.hidden_size / m.num_attention_heads;
    }
    c.max_position_embeddings = m.max_position_embeddings == 0 ? T : m.max_position_embeddings;
    c.rms_norm_eps = m.rms_norm_eps;
    c.rope_theta = m.rope_theta;
    c.initializer_range = m.initializer_range;
    c.tie_word_embeddings = m.tie_word_embeddings;
    if (config.latent.bits > 0) {
      c.latent = {LatentKind::kBinary, int(config.latent.bits), config.latent.kappa_bits};
    }
    validate(c, "the [model] settings");
  }
  if (c.vocab_size < data_vocab_size && !(m.from.empty() && m.vocab_size == 0)) {
    fail(ErrorCode::kInvalidConfig,
         "{} is {}, but the data has tokens up to {}: expected {} or more",
         m.from.empty() ? "model.vocab_size" : m.from + ": vocab_size", c.vocab_size,
         data_vocab_size - 1, data_vocab_size);
  }
  if (c.max_position_embeddings < T) {
    fail(ErrorCode::kInvalidConfig, "{} is {}, expected at least the data's context {}",
         m.from.empty() ? "model.max_position_embeddings" : m.from + ": max_position_embeddings",
         c.max_position_embeddings, T);
  }
  return c;
}

}  // namespace freeformer
