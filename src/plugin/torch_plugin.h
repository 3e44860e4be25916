// What the program and the LibTorch library say to each other. The program links no LibTorch; it
// loads libfreeformer_torch_plugin.so when a command needs it (cli/load_plugin.h).
#pragma once

#include <memory>
#include <string>

#include "core/golden.h"
#include "engine/engine.h"
#include "run/train_bench.h"
#include "run/train_request.h"

namespace freeformer {

class TorchPlugin {
 public:
  virtual ~TorchPlugin() = default;
  virtual GoldenReport run_golden(const GoldenOptions& options) = 0;
  virtual TrainOutcome train(const TrainRequest& request) = 0;
  virtual TrainBenchResult bench_train(const TrainBenchRequest& request) = 0;
  // `precision`: fp32 or bf16.
  virtual std::unique_ptr<Engine> open_engine(const std::string& folder, const std::string& device,
                                              const std::string& precision) = 0;
};

// Changes whenever the interface above does: a stale library is refused, not called.
inline constexpr int kTorchPluginVersion = 3;
inline constexpr const char* kTorchPluginEntry = "freeformer_torch_plugin";
// The type of the library's one exported function. nullptr if the versions differ.
using TorchPluginEntry = TorchPlugin* (*)(int version);

}  // namespace freeformer
