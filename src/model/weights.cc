#include "model/weights.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include "core/error.h"
#include "core/philox.h"
#include "core/tensor_manifest.h"
#include "kernels/parallel.h"

namespace freeformer {
namespace {

at::ScalarType scalar_type(const TensorInfo& info) {
  switch (info.dtype) {
    case DType::kBool:
      return at::kBool;
    case DType::kU8:
      return at::kByte;
    case DType::kI8:
      return at::kChar;
    case DType::kI16:
      return at::kShort;
    case DType::kI32:
      return at::kInt;
    case DType::kI64:
      return at::kLong;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF32:
      return at::kFloat;
    case DType::kF64:
      return at::kDouble;
    default:
      fail(ErrorCode::kUnsupported, "tensor '{}' is {}, which LibTorch cannot hold", info.name,
           name(info.dtype));
  }
}

DType stored_type(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::kF32;
    case at::kBFloat16:
      return DType::kBF16;
    case at::kHalf:
      return DType::kF16;
    case at::kLong:  // counters of the optimiser
      return DType::kI64;
    default:
      fail(ErrorCode::kUnsupported,
           "weights of type {} cannot be stored; expected float32, "
           "bfloat16 or float16",
           toString(tensor.scalar_type()));
  }
}

// Standard normals by Box-Muller, four at a time.
Tensor normals(const std::vector<int64_t>& shape, const RandomSource& source, uint64_t tensor) {
  Tensor values = at::empty(shape, at::kFloat);
  float* out = values.data_ptr<float>();
  const int64_t count = values.numel();
  const auto draw = [&](int64_t i) {
    const PhiloxBlock block = source.block(tensor, uint32_t(i / 4), uint32_t(i / 4 >> 32));
    for (int pair = 0; pair < 2; ++pair) {
      // 1 - u is in (0, 1]: its logarithm is finite.
      const double radius = std::sqrt(-2.0 * std::log(1.0 - double(unit_float(block[2 * pair]))));
      const double angle = 2.0 * std::numbers::pi * double(unit_float(block[2 * pair + 1]));
      if (i + 2 * pair < count) out[i + 2 * pair] = float(radius * std::cos(angle));
      if (i + 2 * pair + 1 < count) out[i + 2 * pair + 1] = float(radius * std::sin(angle));
    }
  };
  kernels::parallel_for(count, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += 4) draw(i);
  });
  return values;
}

// Row c = Σ_h s_h(c) v_h / sqrt(Z), s_h = +1 where bit h of c is set and -1 elsewhere.
Tensor rows_from_bits(const Tensor& vectors_ZD) {
  const int64_t Z = vectors_ZD.size(0);
  Tensor rows_CD = at::zeros({1, vectors_ZD.size(1)}, vectors_ZD.options());
  for (int64_t h = 0; h < Z; ++h) {  // bit h doubles the table: clear, then set
    rows_CD = at::cat({rows_CD - vectors_ZD[h], rows_CD + vectors_ZD[h]}, 0);
  }
  return rows_CD / std::sqrt(double(Z));
}

// The index-th tensor of the manifest: each has its own random numbers.
Tensor draw(const ModelConfig& config, const TensorSpec& spec, uint64_t index, uint64_t seed,
            TableInit table) {
  const RandomSource source(seed, RandomStream::kInit);
  if (spec.name.ends_with("norm.weight")) return at::ones(spec.shape);
  if (spec.part == ModelPart::kPostSampler && table == TableInit::kBits) {
    return rows_from_bits(normals({config.latent.bits, spec.shape[1]}, source, index)) *
           config.initializer_range;
  }
  return normals(spec.shape, source, index) * config.initializer_range;
}

}  // namespace

void initialize(FreeTransformer& model, uint64_t seed, TableInit table) {
  const torch::NoGradGuard no_grad;
  auto parameters = model->named_parameters();
  uint64_t index = 0;
  for (const TensorSpec& spec : tensor_manifest(model->config())) {
    parameters[spec.name].copy_(draw(model->config(), spec, index++, seed, table));
  }
}

Tensor initial_weight(const ModelConfig& config, const std::string& name, uint64_t seed,
                      TableInit table) {
  uint64_t index = 0;
  for (const TensorSpec& spec : tensor_manifest(config)) {
    if (spec.name == name) return draw(config, spec, index, seed, table);
    ++index;
  }
  FF_CHECK(false);
  return {};
}

Tensor to_tensor(const TensorInfo& info, std::span<const std::byte> data) {
  Tensor tensor = at::empty(info.shape, scalar_type(info));
  if (!data.empty()) std::memcpy(tensor.data_ptr(), data.data(), data.size());
  return tensor;
}

void load_weights(FreeTransformer& model, const Checkpoint& checkpoint) {
  const torch::NoGradGuard no_grad;
  auto parameters = model->named_parameters();
  for (const TensorSpec& spec : tensor_manifest(model->config())) {
    const auto [info, data] = checkpoint.tensor(spec.name);
    Tensor& parameter = parameters[spec.name];
    FF_CHECK(info->shape == parameter.sizes().vec());  // copy_ would broadcast
    parameter.copy_(to_tensor(*info, data));
  }
}

TensorToWrite to_write(const std::string& name, const Tensor& tensor) {
  FF_CHECK(tensor.is_cpu() && tensor.is_contiguous());
  return {name,
          stored_type(tensor),
          tensor.sizes().vec(),
          {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}};
}

void save_weights(const FreeTransformer& model, const std::filesystem::path& folder) {
  std::map<std::string, Tensor> parameters;
  for (const auto& item : model->named_parameters()) parameters[item.key()] = item.value();
  save_weights(model->config(), parameters, folder);
}

void save_weights(const ModelConfig& config, const std::map<std::string, Tensor>& parameters,
                  const std::filesystem::path& folder) {
  std::vector<Tensor> tensors;  // keeps the CPU copies alive
  std::vector<TensorToWrite> pieces;
  for (const TensorSpec& spec : tensor_manifest(config)) {
    tensors.push_back(parameters.at(spec.name).detach().cpu().contiguous());
    pieces.push_back(to_write(spec.name, tensors.back()));
  }
  ModelConfig stored = config;
  stored.torch_dtype = pieces[0].dtype == DType::kF32    ? "float32"
                       : pieces[0].dtype == DType::kBF16 ? "bfloat16"
                                                         : "float16";
  write_checkpoint(folder, stored, std::move(pieces));
}

}  // namespace freeformer
