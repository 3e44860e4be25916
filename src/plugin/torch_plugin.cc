#include "plugin/torch_plugin.h"

#include "model/golden.h"
#include "ops/torch.h"
#include "ops/torch_runtime.h"

namespace freeformer {
namespace {

class Plugin final : public TorchPlugin {
 public:
  TorchInfo info() override {
    ops::prepare_torch();
    const std::string blas = ops::torch_blas();
    return {ops::torch_version(), blas, ops::is_reference_blas(blas), at::get_num_threads()};
  }
  GoldenReport run_golden(const GoldenOptions& options) override {
    return freeformer::run_golden(options);
  }
};

}  // namespace
}  // namespace freeformer

extern "C" freeformer::TorchPlugin* freeformer_torch_plugin(int version);
extern "C" freeformer::TorchPlugin* freeformer_torch_plugin(int version) {
  static freeformer::Plugin plugin;
  return version == freeformer::kTorchPluginVersion ? &plugin : nullptr;
}
