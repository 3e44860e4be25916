// A golden case: a small model with inputs, and what an independent float64 reference computed from
// them. Files of a case's folder, and the report of a comparison.
//
//   config.json, model.safetensors    the model
//   inputs.safetensors                tokens I64 [B, T+1], uniforms F32 [B, T, Z]
//   expected.safetensors              logits, bit_logits, codes, kl (nats), ce, loss, grad.NAME
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace freeformer {

struct GoldenOptions {
  std::filesystem::path folder;
  bool bf16 = false;           // compute in bf16 with the expected codes, at bf16's tolerances
  std::string device = "cpu";  // any LibTorch device
};

// |found - expected| / |expected| (Euclidean norms); for codes the share that differs.
struct GoldenError {
  std::string quantity;
  double error = 0;
  double tolerance = 0;

  bool passed() const { return error <= tolerance; }  // a NaN does not
};

struct GoldenReport {
  std::filesystem::path folder;
  std::string dtype, device;
  std::vector<GoldenError> errors;

  bool passed() const {
    return !errors.empty() &&
           std::all_of(errors.begin(), errors.end(), [](const auto& e) { return e.passed(); });
  }
};

}  // namespace freeformer
