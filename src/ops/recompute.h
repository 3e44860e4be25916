// Trading arithmetic for memory: a function whose intermediates are not kept but computed again in
// the backward pass (activation checkpointing).
#pragma once

#include <functional>
#include <vector>

#include "ops/torch.h"

namespace freeformer::ops {

// function(inputs), with the same value and the same gradients. Parameters that the function uses
// get their gradients too. It must be pure: called twice, it computes the same.
Tensor recompute(std::function<Tensor(const std::vector<Tensor>&)> function,
                 const std::vector<Tensor>& inputs);

}  // namespace freeformer::ops
