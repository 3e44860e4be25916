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

}  // namespace

void initialize(FreeTransformer& model, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const RandomSource source(seed, RandomStream::kInit);
  auto parameters = model->named_parameters();
  uint64_t index = 0;
  for (const TensorSpec& spec : tensor_manifest(model->config())) {
    Tensor& parameter = parameters[spec.name];
    const bool is_norm = spec.name.ends_with("norm.weight");
    parameter.copy_(is_norm
                        ? at::ones_like(parameter)
                        : normals(spec.shape, source, index) * model->config().initializer_range);
    ++index;
  }
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

void save_weights(const FreeTransformer& model, const std::filesystem::path& folder) {
  std::vector<Tensor> tensors;  // keeps the CPU copies alive
  std::vector<TensorToWrite> pieces;
  const auto parameters = model->named_parameters();
  for (const TensorSpec& spec : tensor_manifest(model->config())) {
    tensors.push_back(parameters[spec.name].detach().cpu().contiguous());
    const Tensor& tensor = tensors.back();
    pieces.push_back({spec.name,
                      stored_type(tensor),
                      spec.shape,
                      {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
  }
  std::filesystem::create_directories(folder);
  ModelConfig config = model->config();
  config.torch_dtype = stored_type(tensors[0]) == DType::kF32    ? "float32"
                       : stored_type(tensors[0]) == DType::kBF16 ? "bfloat16"
                                                                 : "float16";
  write_safetensors(folder / "model.safetensors", std::move(pieces));
  write_file_atomically(folder / "config.json", write_model_config(config));
}

}  // namespace freeformer
