#include "model/golden.h"

#include <cmath>

#include "core/error.h"
#include "core/tensor_manifest.h"
#include "model/free_transformer.h"
#include "model/weights.h"
#include "ops/torch_runtime.h"

namespace freeformer {
namespace {

struct Tolerances {
  double codes, values, gradients;
};
// A plain fp32 implementation reaches 1e-6 and 2e-6; bf16 has 8 bits of mantissa.
constexpr Tolerances kFp32 = {0.0, 1e-5, 1e-4};
constexpr Tolerances kBf16 = {0.0, 3e-2, 1e-1};

double relative_error(const Tensor& found, const Tensor& expected) {
  const Tensor wide = expected.to(at::kDouble);
  const double difference = (found.detach().cpu().to(at::kDouble) - wide).norm().item<double>();
  const double norm = wide.norm().item<double>();
  return norm == 0 ? difference : difference / norm;
}

Tensor load(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* info = file.find(name);
  if (info == nullptr) {
    reject_file(file.path().string(), "has no tensor '{}'", name);
  }
  return to_tensor(*info, file.data(*info));
}

void require_shape(const SafetensorsFile& file, const std::string& name, const Tensor& tensor,
                   std::vector<int64_t> shape) {
  if (tensor.sizes() != at::IntArrayRef(shape)) {
    reject_file(file.path().string(), "tensor '{}' has shape {}, expected {}", name,
                describe_shape(tensor.sizes().vec()), describe_shape(shape));
  }
}

class GoldenRun {
 public:
  explicit GoldenRun(const GoldenOptions& options)
      : options_(options),
        checkpoint_(options.folder),
        config_(checkpoint_.config()),
        inputs_(options.folder / "inputs.safetensors"),
        expected_(options.folder / "expected.safetensors"),
        tolerances_(options.bf16 ? kBf16 : kFp32) {}

  GoldenReport run() {
    report_ = {options_.folder, options_.bf16 ? "bf16" : "fp32", options_.device, {}};
    const torch::Device device(options_.device);
    FreeTransformer model(config_);
    load_weights(model, checkpoint_);
    model->to(device, options_.bf16 ? at::kBFloat16 : at::kFloat);

    const Tensor tokens = load(inputs_, "tokens");
    if (tokens.dim() != 2 || tokens.size(0) < 1 || tokens.size(1) < 2 ||
        tokens.scalar_type() != at::kLong || tokens.min().item<int64_t>() < 0 ||
        tokens.max().item<int64_t>() >= config_.vocab_size) {
      reject_file(inputs_.path().string(), "'tokens' must be I64 [B, T+1] below vocab_size {}",
                  config_.vocab_size);
    }
    const int64_t B = tokens.size(0), T = tokens.size(1) - 1;
    const Batch batch{tokens.narrow(1, 0, T).contiguous().to(device), {}};
    const Tensor targets_BT = tokens.narrow(1, 1, T).contiguous().to(device);
    const Loss loss = model->loss(batch, targets_BT, latent_source(B, T).value_or(LatentSource()));
    loss.total.backward();

    compare_forward(*model, loss, B, T);
    for (const TensorSpec& spec : tensor_manifest(config_)) {
      const Tensor gradient = model->named_parameters()[spec.name].grad();
      const std::string name = "grad." + spec.name;
      const Tensor want = load(expected_, name);
      require_shape(expected_, name, want, spec.shape);
      if (!gradient.defined()) {
        fail(ErrorCode::kInternal, "'{}' received no gradient", spec.name);
      }
      add(name, relative_error(gradient.is_sparse() ? gradient.to_dense() : gradient, want),
          tolerances_.gradients);
    }
    return report_;
  }

 private:
  std::optional<LatentSource> latent_source(int64_t B, int64_t T) {
    if (!config_.latent.present()) return std::nullopt;
    const Tensor uniforms_BTZ = load(inputs_, "uniforms");
    require_shape(inputs_, "uniforms", uniforms_BTZ, {B, T, config_.latent.bits});
    const torch::Device device(options_.device);
    // bf16 may fall on the other side of a uniform; the rest is compared under the same codes.
    if (options_.bf16) {
      return LatentSource::posterior_with_codes(expected_codes(B, T).to(device));
    }
    return LatentSource::posterior(uniforms_BTZ.to(device));
  }

  Tensor expected_codes(int64_t B, int64_t T) {
    const Tensor codes = load(expected_, "codes");
    require_shape(expected_, "codes", codes, {B, T});
    if (codes.scalar_type() != at::kLong || codes.min().item<int64_t>() < 0 ||
        codes.max().item<int64_t>() >= config_.code_count()) {
      reject_file(expected_.path().string(), "'codes' must be I64 below {}", config_.code_count());
    }
    return codes;
  }

  void compare_forward(FreeTransformerImpl& model, const Loss& loss, int64_t B, int64_t T) {
    if (config_.latent.present()) {
      compare("bit_logits", loss.forward.bit_logits_BTZ, {B, T, config_.latent.bits});
      const Tensor codes = expected_codes(B, T);
      add("codes", loss.forward.codes_BT.cpu().ne(codes).to(at::kDouble).mean().item<double>(),
          tolerances_.codes);
      compare("kl", loss.kl_BT, {B, T});
    }
    compare("logits", model.logits(loss.forward.hidden_BTD), {B, T, config_.vocab_size});
    compare("ce", loss.cross_entropy, {});
    compare("loss", loss.total, {});
  }

  void compare(const std::string& name, const Tensor& found, const std::vector<int64_t>& shape) {
    const Tensor want = load(expected_, name);
    // Scalars are stored as [] or [1].
    if (!shape.empty()) require_shape(expected_, name, want, shape);
    add(name, relative_error(found, want.view(found.sizes())), tolerances_.values);
  }

  void add(const std::string& quantity, double error, double tolerance) {
    report_.errors.push_back({quantity, error, tolerance});
  }

  GoldenOptions options_;
  Checkpoint checkpoint_;
  ModelConfig config_;
  SafetensorsFile inputs_, expected_;
  Tolerances tolerances_;
  GoldenReport report_;
};

}  // namespace

GoldenReport run_golden(const GoldenOptions& options) {
  ops::prepare_torch();
  ops::parse_device(options.device);  // before anything is read
  try {
    return GoldenRun(options).run();
  } catch (const c10::Error& error) {
    // LibTorch's messages carry a stack trace behind the first line.
    fail(ErrorCode::kUnsupported, "{}: LibTorch: {}", options.folder.string(),
         error.what_without_backtrace());
  }
}

}  // namespace freeformer
