// How fast a model trains, measured: what is asked for, and what came of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model_config.h"

namespace freeformer {

struct TrainBenchRequest {
  ModelConfig model;
  int64_t context = 512;  // T
  int64_t rows = 8;       // B, of one step
  std::string precision = "bf16";
  std::string device = "cpu";
  bool kernels = true;
  bool recompute = false;
  int64_t gradient_group = 1;  // the latent's gradient from one token in so many
  int repeats = 5;             // steps measured, after two to warm up
  bool beside_plain = false;   // a step of the plain decoder before and after each
};

struct TrainBenchPart {
  std::string name;
  double seconds = 0;  // of one step
  int64_t calls = 0;
};

struct TrainBenchResult {
  std::vector<double> step_seconds;
  double median_seconds = 0;
  double tokens_per_second = 0;
  double flops_per_token = 0;  // flops.h
  double gemm_rate = 0;        // operations a second of large products, sustained between the steps
  double gemm_burst = 0;       // the fastest single product
  double share_of_gemm_limit = 0;  // operations a second over gemm_rate: median over the steps
  std::vector<double> plain_step_seconds;  // with beside_plain: before each step and after the last
  std::vector<double> of_plain;  // every step's speed over the geometric mean of those around it
  int64_t peak_bytes = 0;        // of the process so far
  std::vector<TrainBenchPart> parts;  // longest first; "other" is what no part accounts for
};

}  // namespace freeformer
