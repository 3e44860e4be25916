// Loads LibTorch and what stands on it, once, when the first command asks.
#pragma once

#include "plugin/torch_plugin.h"

namespace freeformer::cli {

// Throws kUnsupported, with the remedy, in a build without LibTorch or where it cannot be loaded.
TorchPlugin& torch_plugin();

}  // namespace freeformer::cli
