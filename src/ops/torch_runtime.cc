#include "ops/torch_runtime.h"

#include <link.h>

#include <filesystem>
#include <mutex>

#include "core/blas.h"
#include "core/log.h"
#include "kernels/parallel.h"
#include "ops/torch.h"

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

void prepare_torch() {
  at::set_num_threads(kernels::thread_count());
  static std::once_flag warned;
  std::call_once(warned, [] {
    if (!is_reference_blas(torch_blas())) return;
    log(LogLevel::kWarn, "torch",
        "LibTorch runs on the reference BLAS ({}), many times slower than this machine can. "
        "Remedy: {}",
        torch_blas(), kFastBlasRemedy);
  });
}

}  // namespace freeformer::ops
