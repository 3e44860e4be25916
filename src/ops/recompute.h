// Trading arithmetic for memory: a function whose intermediates are not kept but computed again in
// the backward pass (activation checkpointing).
#pragma once

#include <functional>
#include <vector>

#include "ops/torch.h"

namespace freeformer::ops {

// function(inputs), with the same value and the same gradients. Parameters that the function uses
// get their gradients too, added to .grad, provided that some input requires one (else kInternal).
// It must be pure: called twice, it computes the same, so nothing it reads may change in between.
Tensor recompute(std::function<Tensor(const std::vector<Tensor>&)> function,
                 const std::vector<Tensor>& inputs);

}  // namespace freeformer::ops
