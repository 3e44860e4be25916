// What a run needs to go on, beside weights that any tool can read:
//
//   config.json, model.safetensors   the model, in fp32
//   tokenizer.json                   where the data has one
//   optimizer.safetensors            AdamW's state
//   trainer_state.json               the step and what was decided so far
//   config.toml                      the settings
#pragma once

#include <filesystem>
#include <string>

#include "core/json.h"
#include "text/tokenizer.h"
#include "train/optimizer.h"

namespace freeformer {

struct TrainerState {
  int64_t step = 0;            // done
  int64_t tokens = 0;          // targets learned from
  uint64_t next_row = 0;       // of the data
  std::string data;            // its fingerprint
  int64_t evaluated_step = 0;  // the last evaluation
  double best_bound = std::nan("");
  int64_t best_step = -1;
  int64_t wake_step = 0;  // steps done when the latent woke; -1: it is asleep
  // A step whose evaluation was interrupted: its other figures, to be logged with it. Else null.
  OrderedJson pending;
};

// Fills an empty folder.
void write_training_checkpoint(const std::filesystem::path& folder, const ModelConfig& config,
                               const AdamW& optimizer, const TrainerState& state,
                               const Tokenizer* tokenizer, const std::string& settings);

// Reads weights, optimiser and state into `model` and `optimizer`. Throws kBadCheckpoint where a
// checksum is wrong, the shape is another than `model`'s, or something is missing.
TrainerState read_training_checkpoint(const std::filesystem::path& folder,
                                      const ModelConfig& config, AdamW& optimizer);

}  // namespace freeformer
