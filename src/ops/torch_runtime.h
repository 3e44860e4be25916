// LibTorch as this process found it: version, BLAS, threads.
#pragma once

#include <string>

namespace freeformer::ops {

// Gives LibTorch our thread count, and warns once, loudly, if its BLAS is the reference one.
void prepare_torch();

std::string torch_version();
// The BLAS behind LibTorch's matrix products, as a library path or a name; empty if built in.
std::string torch_blas();
bool is_reference_blas(const std::string& library_path);

}  // namespace freeformer::ops
