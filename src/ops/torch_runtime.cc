#include "ops/torch_runtime.h"

#include <link.h>

#include <chrono>
#include <filesystem>
#include <mutex>

#include "core/blas.h"
#include "core/error.h"
#include "core/log.h"
#include "kernels/cpu.h"
#include "kernels/gemm.h"
#include "kernels/parallel.h"
#include "ops/layers.h"

namespace freeformer::ops {

std::string torch_blas() {
  // Debian's LibTorch calls libblas.so.3, which the alternatives system points at one of several.
  std::string found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) {
        if (std::string(info->dlpi_name).find("/libblas.so") == std::string::npos) return 0;
        std::error_code error;
        const auto path = std::filesystem::canonical(info->dlpi_name, error);
        *static_cast<std::string*>(result) = error ? info->dlpi_name : path.string();
        return 1;
      },
      &found);
  return found;
}

torch::Device parse_device(const std::string& name) {
  try {
    const torch::Device device(name);
    at::zeros({1}, device).item<float>();  // one that computes and answers
    return device;
  } catch (const std::exception&) {
    fail(ErrorCode::kInvalidArgument,
         "device \"{}\" is not one of this LibTorch's, expected cpu or, where it has them, cuda, "
         "cuda:1, …",
         name);
  }
}

double measure_gemm_rate(at::ScalarType dtype, torch::Device device) {
  const torch::NoGradGuard no_grad;
  constexpr int64_t kRows = 2048, kSize = 1024;
  // Where bf16 is widened, fp32 is the limit of both.
  const bool widened = device.is_cpu() && dtype == at::kBFloat16 && !kernels::has_native_bf16();
  const auto options = at::device(device).dtype(widened ? at::kFloat : dtype);
  const Tensor a = at::ones({kRows, kSize}, options), b = at::ones({kSize, kSize}, options);
  Tensor c = at::empty({kRows, kSize}, options.dtype(at::kFloat));
  using Clock = std::chrono::steady_clock;
  const auto best_seconds = [](const auto& product) {
    product();  // the first call sets things up
    const auto seconds_since = [](Clock::time_point start) {
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    const auto start = Clock::now();
    double best = 1e9;
    while (seconds_since(start) < 0.1) {
      const auto begin = Clock::now();
      product();
      best = std::min(best, seconds_since(begin));
    }
    return best;
  };
  double best = best_seconds([&] { ops::linear(a, b)[0][0].item<float>(); });  // wait for a device
  if (device.is_cpu()) {  // a limit is the best there is, whoever reaches it
    const kernels::GemmTile library(
        {.M = kRows,
         .N = kSize,
         .K = kSize,
         .transpose_b = true,
         .in = a.scalar_type() == at::kFloat ? kernels::GemmType::kF32 : kernels::GemmType::kBF16});
    best = std::min(
        best, best_seconds([&] { library.run(a.data_ptr(), b.data_ptr(), c.data_ptr<float>()); }));
  }
  return 2.0 * kRows * kSize * kSize / best;
}

void prepare_torch() {
  at::set_num_threads(kernels::thread_count());
  static std::once_flag warned;
  std::call_once(warned, [] {
    if (has_own_threads(torch_blas())) {
      log(LogLevel::kInfo, "torch",
          "LibTorch's BLAS ({}) has threads of its own, which compete with OpenMP's: training may "
          "take twice as long. Remedy: {}",
          torch_blas(), kOneTeamRemedy);
    }
    if (!is_reference_blas(torch_blas())) return;
    log(LogLevel::kWarn, "torch",
        "LibTorch runs on the reference BLAS ({}), many times slower than this machine can. "
        "Remedy: {}",
        torch_blas(), kFastBlasRemedy);
  });
}

}  // namespace freeformer::ops
