// AdamW (Loshchilov & Hutter) over a model's parameters:
//
//   m = β1 m + (1-β1) g          v = β2 v + (1-β2) g²
//   w = w (1 - η λ) - η m/(1-β1^t) / (sqrt(v/(1-β2^t)) + ε)
//
// λ on matrices alone. Masters, m and v are fp32 whatever the model computes in; a bf16 model gets
// its rounded copy back after each step. Gradients are clipped by their global norm.
//
// The table of codes has gradients in the rows of codes that were drawn, and only those rows move:
// each lives in its own time t, the number of steps that drew it. With the whole table's t, a row's
// first update would be (1-β1) / sqrt(1-β2) too large or too small.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/free_transformer.h"
#include "run/train_config.h"

namespace freeformer {

class AdamW {
 public:
  // Takes the model's weights as masters and converts it to `compute_dtype`. One whose masters were
  // rounded before would have lost what bf16 cannot hold: give an fp32 model.
  AdamW(FreeTransformer model, const OptimizerSettings& settings, at::ScalarType compute_dtype);

  // Adds the gradients of one pass, and clears them in the model. In fp32.
  void accumulate();

  // Norm of everything accumulated, before clipping.
  double gradient_norm() const;

  // Clips, updates masters and model, forgets the gradients. `learning_rate` is today's; `norm` is
  // gradient_norm(), where the caller knows it already; the encoder path learns at `encoder_share`
  // of its rate.
  void step(double learning_rate, std::optional<double> norm = {}, double encoder_share = 1);

  // fp32 weights by name; what a checkpoint holds.
  std::map<std::string, Tensor> masters() const;
  // m, v and times by name, for optimizer.safetensors.
  std::map<std::string, Tensor> state() const;
  // Both, as they were saved. Throws kBadCheckpoint where a name or shape does not fit; `where`
  // names the file.
  void load_state(const std::map<std::string, Tensor>& state, const std::string& where);
  // After the masters were changed from outside.
  void refresh_model();

 private:
  struct Slot {
    std::string name;
    Tensor parameter;  // the model's
    Tensor master, m, v;
    Tensor time;      // int64: a scalar, or [C] for the table of codes
    double rate = 1;  // factor on the learning rate
    bool decays = false, by_rows = false, of_encoder = false;
    bool rounded = false;      // the parameter is a copy of the master in fewer bits
    Tensor gradient;           // dense, fp32; undefined: none yet
    std::vector<Tensor> rows;  // by_rows: the passes' sparse gradients
  };

  // Today's rate of a slot.
  struct Rates {
    double learning_rate, encoder_share;
    double of(const Slot& slot) const {
      return learning_rate * slot.rate * (slot.of_encoder ? encoder_share : 1);
    }
  };

  void update_fused(const Rates& rates, double clip);
  void update_all(Slot& slot, double learning_rate, double clip) const;
  void update_rows(Slot& slot, double learning_rate, double clip) const;

  OptimizerSettings settings_;
  std::vector<Slot> slots_;
};

}  // namespace freeformer
