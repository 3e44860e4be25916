// LibTorch as this process found it: its BLAS, its threads.
#pragma once

#include <string>

namespace freeformer::ops {

// Gives LibTorch our thread count, and warns once, loudly, if its BLAS is the reference one.
void prepare_torch();

// The path of the BLAS behind LibTorch's matrix products; empty if it is built in.
std::string torch_blas();

}  // namespace freeformer::ops
