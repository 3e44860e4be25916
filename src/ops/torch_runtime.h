// LibTorch as this process found it: its BLAS, its threads, its devices.
#pragma once

#include <string>

#include "ops/torch.h"

namespace freeformer::ops {

// Gives LibTorch our thread count, and warns once, loudly, if its BLAS is the reference one.
void prepare_torch();

// "cpu", "cuda:1", …; throws kInvalidArgument where this LibTorch does not have it.
torch::Device parse_device(const std::string& name);

// Operations per second of a large matrix product in this dtype: the machine's limit. Takes about a
// fifth of a second.
double measure_gemm_rate(at::ScalarType dtype, torch::Device device);

// The path of the BLAS behind LibTorch's matrix products; empty if it is built in.
std::string torch_blas();

}  // namespace freeformer::ops
