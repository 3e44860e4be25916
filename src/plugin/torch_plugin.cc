#include "plugin/torch_plugin.h"

#include "model/golden.h"
#include "model/torch_engine.h"
#include "train/train_bench.h"
#include "train/trainer.h"

namespace freeformer {
namespace {

class Plugin final : public TorchPlugin {
 public:
  GoldenReport run_golden(const GoldenOptions& options) override {
    return freeformer::run_golden(options);
  }
  TrainOutcome train(const TrainRequest& request) override { return freeformer::train(request); }
  TrainBenchResult bench_train(const TrainBenchRequest& request) override {
    return freeformer::bench_train(request);
  }
  std::unique_ptr<Engine> open_engine(const std::string& folder, const std::string& device,
                                      const std::string& precision) override {
    return open_torch_engine(folder, device, precision);
  }
};

}  // namespace
}  // namespace freeformer

extern "C" freeformer::TorchPlugin* freeformer_torch_plugin(int version);
extern "C" freeformer::TorchPlugin* freeformer_torch_plugin(int version) {
  static freeformer::Plugin plugin;
  return version == freeformer::kTorchPluginVersion ? &plugin : nullptr;
}
