#include "train/train_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <numeric>

#include "core/median.h"
#include "core/philox.h"
#include "data/shuffle.h"
#include "kernels/timing.h"
#include "model/weights.h"
#include "ops/arena.h"
#include "ops/binary_mapper.h"
#include "ops/layers.h"
#include "ops/torch_runtime.h"
#include "run/flops.h"
#include "train/batches.h"
#include "train/optimizer.h"

namespace freeformer {
namespace {

constexpr int kWarmUpSteps = 2;
constexpr uint64_t kSeed = 1;

// Linux forgets a process's peak when asked to.
void reset_peak_memory() { std::ofstream("/proc/self/clear_refs") << "5"; }

int64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kilobytes = 0;
  while (status >> word) {
    if (word == "VmHWM:") status >> kilobytes;
  }
  return kilobytes * 1024;
}

std::vector<Row> random_rows(const TrainBenchRequest& request, int step) {
  const RandomSource random(kSeed, RandomStream::kData);
  std::vector<Row> rows(size_t(request.rows));
  for (int64_t b = 0; b < request.rows; ++b) {
    for (int64_t t = 0; t <= request.context; ++t) {
      const uint32_t bits = random.block(uint64_t(step * request.rows + b), uint32_t(t), 0)[0];
      rows[size_t(b)].tokens.push_back(
          int32_t(scale_bits(bits, uint32_t(request.model.vocab_size))));
    }
  }
  return rows;
}

// A model with its optimiser, and one step of it as the trainer does it.
class Trainee {
 public:
  Trainee(const ModelConfig& config, const TrainBenchRequest& request, torch::Device device,
          at::ScalarType dtype)
      : request_(request), device_(device), bits_(config.latent.bits), model_(config) {
    initialize(model_, kSeed, TableInit::kRandom);
    model_->to(device);
    model_->set_recompute(request.recompute);
    optimizer_.emplace(model_, OptimizerSettings(), dtype);
  }

  double step_seconds(int index) {
    const auto start = std::chrono::steady_clock::now();
    step(index);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  void step(int index) {
    std::optional<kernels::TimedPart> data("data");
    const TrainingBatch batch = make_batch(random_rows(request_, index), device_);
    LatentSource source;
    if (bits_ > 0) {
      std::vector<uint64_t> sequences(size_t(request_.rows));
      std::iota(sequences.begin(), sequences.end(), uint64_t(index * request_.rows));
      source = LatentSource::posterior(
                   ops::latent_uniforms(kSeed, sequences, 0, request_.context, bits_).to(device_))
                   .with_gradient_of(ops::sample_tokens(kSeed, sequences, request_.context,
                                                        request_.gradient_group, device_));
    }
    data.reset();
    model_->loss(batch.batch, batch.targets_BT, source).total.backward();
    optimizer_->accumulate();
    optimizer_->step(1e-4, optimizer_->gradient_norm());
  }

  const TrainBenchRequest& request_;
  torch::Device device_;
  int bits_;
  FreeTransformer model_;
  std::optional<AdamW> optimizer_;
};

std::vector<TrainBenchPart> parts_of(const kernels::PartTimes& times, double seconds, int steps) {
  std::vector<TrainBenchPart> parts;
  double named = 0;
  for (const auto& [name, time] : times) {
    parts.push_back({name, time.seconds / steps, time.calls / steps});
    named += time.seconds / steps;
  }
  parts.push_back({"other", std::max(0.0, seconds - named), 1});
  std::sort(parts.begin(), parts.end(),
            [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return parts;
}

}  // namespace

TrainBenchResult bench_train(const TrainBenchRequest& request) {
  ops::prepare_torch();
  if (request.device == "cpu" && request.kernels) ops::use_arena();
  ops::use_kernels(request.kernels);
  const torch::Device device = ops::parse_device(request.device);
  reset_peak_memory();
  const at::ScalarType dtype = request.precision == "bf16" ? at::kBFloat16 : at::kFloat;
  Trainee trainee(request.model, request, device, dtype);
  std::optional<Trainee> plain;
  if (request.beside_plain) {
    ModelConfig config = request.model;
    config.latent = {};
    plain.emplace(config, request, device, dtype);
  }

  TrainBenchResult result;
  kernels::PartTimes times;
  result.flops_per_token =
      training_flops_per_token(request.model, request.context, request.gradient_group);
  const double tokens = double(request.rows * request.context);
  double gemm_seconds_per_operation = 0;
  std::vector<double> shares;
  // Between the steps, so that both see the same machine; and after every step alike.
  const auto measure_rate = [&](double seconds) {
    return ops::measure_gemm_rate(dtype, device, std::clamp(seconds / 4, 0.1, 1.0));
  };
  const auto plain_step = [&](int i) {
    const double seconds = plain->step_seconds(i);
    if (i >= kWarmUpSteps) result.plain_step_seconds.push_back(seconds);
    measure_rate(seconds);
  };
  for (int i = 0; i < kWarmUpSteps + request.repeats; ++i) {
    if (plain) plain_step(i);
    kernels::start_timing();
    const double seconds = trainee.step_seconds(i);
    const kernels::PartTimes parts = kernels::stop_timing();
    const ops::GemmRate rate = measure_rate(seconds);
    if (i < kWarmUpSteps) continue;
    result.step_seconds.push_back(seconds);
    for (const auto& [name, time] : parts) {
      times[name].seconds += time.seconds;
      times[name].calls += time.calls;
    }
    gemm_seconds_per_operation += 1 / rate.sustained / request.repeats;
    result.gemm_burst = std::max(result.gemm_burst, rate.burst);
    shares.push_back(tokens * result.flops_per_token / seconds / rate.sustained);
  }
  if (plain) plain_step(kWarmUpSteps + request.repeats);
  ops::use_kernels(true);
  result.gemm_rate = 1 / gemm_seconds_per_operation;
  result.median_seconds = median(result.step_seconds);
  result.tokens_per_second = tokens / result.median_seconds;
  // Of a step and the products right after it: a median over a mean would flatter us.
  result.share_of_gemm_limit = median(shares);
  if (plain) {
    for (size_t i = 0; i < result.step_seconds.size(); ++i) {
      const double around =
          std::sqrt(result.plain_step_seconds[i] * result.plain_step_seconds[i + 1]);
      result.of_plain.push_back(around / result.step_seconds[i]);
    }
  }
  result.peak_bytes = peak_memory();
  const double mean = std::accumulate(result.step_seconds.begin(), result.step_seconds.end(), 0.0) /
                      double(request.repeats);
  result.parts = parts_of(times, mean, request.repeats);
  return result;
}

}  // namespace freeformer
