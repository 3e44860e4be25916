// The settings of a training run: one struct per component, composed under section names. The file
// (TOML) is read over the defaults, then --set; `freeformer train --explain` prints the list.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/model_config.h"
#include "core/settings.h"
#include "data/data_source.h"
#include "run/schedule.h"

namespace freeformer {

struct RunSettings {
  std::string folder;  // empty: runs/ and the name of the settings file
  int64_t seed = 1;
  int64_t steps = 1000;
  std::string device = "cpu";
  std::string precision = "fp32";
  bool recompute = false;
  bool kernels = true;
};

// The names of config.json.
struct ModelSettings {
  std::string from;  // a config.json for the shape, or a checkpoint for shape and weights
  int64_t vocab_size = 0;
  int64_t hidden_size = 256;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 6;
  int64_t num_attention_heads = 4;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000.0;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;

  // `from` is a checkpoint, not only a shape.
  bool begins_from_weights() const;
};

struct LatentSettings {
  int64_t bits = 0;
  double kappa_bits = 0.5;
  std::string kappa_path;
  double beta = 1.0;
  std::string beta_path;
  double sharpen_by = 1.0;
  int64_t sharpen_after = 0;
  std::string init = "random";
  std::string encoder_init = "random";
  int64_t wake_after = 0;
  std::string gradient = "exact";
  int64_t gradient_group = 4;
};

struct OptimizerSettings {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;
  double encoder_factor = 1.0;
  double table_factor = 1.0;
};

struct BatchSettings {
  int64_t tokens_per_step = 16384;
  int64_t micro_rows = 0;

  // Rows of T tokens: of a step, and of one pass through the model.
  int64_t rows_per_step(int64_t T) const;
  int64_t rows_per_pass(int64_t T) const;
};

struct EvaluationSettings {
  int64_t every = 250;
  int64_t rows = 64;
  int64_t iwae_samples = 0;
};

struct CheckpointSettings {
  int64_t every = 500;
  int64_t keep_last = 2;
  int64_t keep_every = 0;
};

struct LoggingSettings {
  int64_t every = 10;
  bool tensorboard = true;
  bool gemm_share = true;
};

struct TrainConfig {
  RunSettings run;
  ModelSettings model;
  LatentSettings latent;
  DataSettings data;
  BatchSettings batch;
  OptimizerSettings optimizer;
  ScheduleSettings schedule;
  EvaluationSettings evaluation;
  CheckpointSettings checkpoints;
  LoggingSettings logging;

  std::filesystem::path folder;  // of the run, decided
  std::string resolved;          // all settings that have an effect, as TOML
};

// The one list of all keys.
Fields list_fields(TrainConfig& config);

// Defaults, then the file, then the assignments ("section.key=value"); everything checked.
TrainConfig read_train_config(const std::filesystem::path& file,
                              const std::vector<std::string>& assignments);

// Keys whose values differ between two texts of resolved settings: "run.steps: 100 -> 200".
std::vector<std::string> changed_settings(const std::string& before, const std::string& after);

// Every key with its meaning and default.
std::string explain_train_config();

// The model that a run makes for data with this vocabulary and context T.
ModelConfig model_config(const TrainConfig& config, int64_t data_vocab_size, int64_t T);

}  // namespace freeformer
