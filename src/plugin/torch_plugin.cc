#include "plugin/torch_plugin.h"

#include "model/golden.h"

namespace freeformer {
namespace {

class Plugin final : public TorchPlugin {
 public:
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
