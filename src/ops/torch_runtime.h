// LibTorch as this process found it: its BLAS, its threads, its devices.
#pragma once

#include <string>

#include "ops/torch.h"

namespace freeformer::ops {

// Gives LibTorch our thread count, and warns once, loudly, if its BLAS is the reference one.
void prepare_torch();

// "cpu", "cuda:1", …; throws kInvalidArgument where this LibTorch does not have it.
torch::Device parse_device(const std::string& name);

// Operations per second of large matrix products in this dtype, one after the other for about so
// many seconds: the machine's limit. A mean and not the best: where others share the machine, a
// burst of a few milliseconds can be half as fast again as anything that lasts.
struct GemmRate {
  double sustained = 0;  // of the faster of our product and oneDNN's
  double burst = 0;      // the fastest single product
};
GemmRate measure_gemm_rate(at::ScalarType dtype, torch::Device device, double seconds = 0.2);

// The path of the BLAS behind LibTorch's matrix products; empty if it is built in.
std::string torch_blas();

}  // namespace freeformer::ops
