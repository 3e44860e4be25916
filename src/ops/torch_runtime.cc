#include "ops/torch_runtime.h"

#include <link.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

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

GemmRate measure_gemm_rate(at::ScalarType dtype, torch::Device device, double seconds) {
  const torch::NoGradGuard no_grad;
  constexpr int64_t kRows = 2048, kSize = 1024;
  // Where bf16 is widened, fp32 is the limit of both.
  const bool widened = device.is_cpu() && dtype == at::kBFloat16 && !kernels::has_native_bf16();
  const auto options = at::device(device).dtype(widened ? at::kFloat : dtype);
  const Tensor a = at::ones({kRows, kSize}, options), b = at::ones({kSize, kSize}, options);
  const Tensor c = at::empty({kRows, kSize}, options.dtype(at::kFloat));
  std::vector<std::function<void()>> products = {
      [&] { ops::linear(a, b)[0][0].item<float>(); }};  // waits for a device that runs ahead
  std::optional<kernels::GemmTile> library;
  if (device.is_cpu()) {
    library.emplace(kernels::GemmTileShape{
        .M = kRows,
        .N = kSize,
        .K = kSize,
        .transpose_b = true,
        .in = a.scalar_type() == at::kFloat ? kernels::GemmType::kF32 : kernels::GemmType::kBF16});
    products.push_back([&] { library->run(a.data_ptr(), b.data_ptr(), c.data_ptr()); });
  }
  using Clock = std::chrono::steady_clock;
  std::vector<double> totals(products.size(), 0.0);
  std::vector<int> counts(products.size(), 0);
  double best = 1e9, all = 0;
  for (const auto& product : products) product();  // the first call sets things up
  while (all < seconds) {                          // in turns, so that both see the same machine
    for (size_t i = 0; i < products.size(); ++i) {
      const auto begin = Clock::now();
      products[i]();
      const double taken = std::chrono::duration<double>(Clock::now() - begin).count();
      best = std::min(best, taken);
      totals[i] += taken;
      ++counts[i];
      all += taken;
    }
  }
  constexpr double kOperations = 2.0 * kRows * kSize * kSize;
  GemmRate rate;
  rate.burst = kOperations / best;
  for (size_t i = 0; i < products.size(); ++i) {
    rate.sustained = std::max(rate.sustained, kOperations * counts[i] / totals[i]);
  }
  return rate;
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
