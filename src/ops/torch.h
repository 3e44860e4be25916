// LibTorch, and everything that differs between its versions (1.13 of Debian 12 up to 2.x). The
// precompiled header of all that links LibTorch. Nothing else in the project asks for a version.
#pragma once

// LibTorch's headers shadow names and drop qualifiers; our warnings are for our code.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <torch/torch.h>
#pragma GCC diagnostic pop

#if TORCH_VERSION_MAJOR < 1 || (TORCH_VERSION_MAJOR == 1 && TORCH_VERSION_MINOR < 13)
#error "Freeformer needs LibTorch 1.13 or newer"
#endif

namespace freeformer {

using torch::Tensor;

}  // namespace freeformer
