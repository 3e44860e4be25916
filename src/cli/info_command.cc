#include <unistd.h>

#include <map>
#include <optional>

#include "cli/command.h"
#include "cli/command_line.h"
#include "core/blas.h"
#include "core/checkpoint.h"
#include "core/error.h"
#include "core/json.h"
#include "core/tensor_manifest.h"
#include "kernels/cpu.h"
#include "kernels/gemm.h"
#include "kernels/parallel.h"

namespace freeformer::cli {
namespace {

// The BLAS that LibTorch would load, found without loading either.
std::string system_blas() {
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                             "/usr/lib64", "/usr/lib", "/usr/local/lib"}) {
    std::error_code error;
    const auto path =
        std::filesystem::canonical(std::filesystem::path(folder) / "libblas.so.3", error);
    if (!error) return path.string();
  }
  return "";
}

OrderedJson machine_report() {
  OrderedJson json;
  json["cpu"] = kernels::cpu_model();
  json["isa"] = kernels::active_isa();
  json["isas_offered"] = kernels::supported_isas();
  json["native_bf16"] = kernels::has_native_bf16();
  json["threads"] = kernels::thread_count();
  json["memory_bytes"] = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGE_SIZE));
  json["gemm"] = kernels::gemm_library();
  json["blas"] = system_blas();
  json["libtorch"] = FREEFORMER_TORCH_VERSION;
  return json;
}

void print_machine(const OrderedJson& machine) {
  std::string offered;
  for (const auto& isa : machine["isas_offered"]) {
    offered += (offered.empty() ? "" : " ") + isa.get<std::string>();
  }
  const auto blas = machine["blas"].get<std::string>();
  const auto torch = machine["libtorch"].get<std::string>();
  fmt::print("machine\n");
  fmt::print("  processor      {}\n", machine["cpu"].get<std::string>());
  fmt::print("  kernels        {} (of {})\n", machine["isa"].get<std::string>(), offered);
  fmt::print("  bf16 products  {}\n",
             machine["native_bf16"].get<bool>() ? "in hardware" : "widened to fp32");
  fmt::print("  threads        {}\n", machine["threads"].get<int>());
  fmt::print("  memory         {}\n", byte_count(machine["memory_bytes"].get<uint64_t>()));
  fmt::print("  GEMM           {}\n", machine["gemm"].get<std::string>());
  fmt::print("  BLAS           {}{}\n", blas.empty() ? "none found" : blas,
             is_reference_blas(blas) ? fmt::format(" (slow: {})", kFastBlasRemedy) : "");
  fmt::print("  LibTorch       {}\n", torch.empty() ? "none: inference only" : torch);
}

// What a configuration promises and, where there are weights, what they hold.
OrderedJson model_report(const ModelConfig& config, const Checkpoint* checkpoint) {
  OrderedJson json;
  json["config"] = OrderedJson::parse(write_model_config(config));
  json["parameters"] = parameter_count(config);
  std::map<ModelPart, int64_t> parts;
  std::map<std::string, int64_t> dtypes;
  for (const TensorSpec& spec : tensor_manifest(config)) {
    parts[spec.part] += spec.element_count();
    if (checkpoint == nullptr) continue;
    dtypes[std::string(name(checkpoint->tensor(spec.name).info->dtype))] += spec.element_count();
  }
  for (const auto& [part, count] : parts) json["parameters_by_part"][name(part)] = count;
  if (checkpoint != nullptr) {
    json["folder"] = checkpoint->folder().string();
    for (const auto& [dtype, count] : dtypes) json["parameters_by_dtype"][dtype] = count;
    json["weight_bytes"] = checkpoint->total_bytes();
  } else {
    json["weight_bytes"] = parameter_count(config) * (config.torch_dtype == "float32" ? 4 : 2);
  }
  // Keys and values of one token: two tensors a layer, in fp32.
  json["kv_cache_bytes_per_token"] =
      2 * 4 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim;
  // fp32 weights, gradients and Adam's two moments.
  json["training_state_bytes"] = 16 * parameter_count(config);
  return json;
}

void print_model(const std::string& path, const ModelConfig& config, const OrderedJson& report) {
  const bool has_weights = report.contains("folder");
  fmt::print("{} {}\n", has_weights ? "checkpoint" : "configuration", one_line(path));
  fmt::print("  kind           {}\n",
             config.latent.present() ? "Free Transformer" : "plain decoder (Llama)");
  fmt::print("  layers         {}, model dimension {}, MLP {}\n", config.num_hidden_layers,
             config.hidden_size, config.intermediate_size);
  fmt::print("  heads          {} query, {} key-value, of {}\n", config.num_attention_heads,
             config.num_key_value_heads, config.head_dim);
  fmt::print("  vocabulary     {}, {}\n", grouped_number(config.vocab_size),
             config.tie_word_embeddings ? "tied read-out" : "own read-out");
  fmt::print("  context        {} positions, RoPE theta {:g}\n", config.max_position_embeddings,
             config.rope_theta);
  if (config.latent.present()) {
    fmt::print("  latent         {} bits a token ({} codes), free bits {:g}, enters at block {}\n",
               config.latent.bits, grouped_number(config.code_count()), config.latent.kappa_bits,
               config.middle_layer());
  }
  fmt::print("parameters       {:>16}\n", grouped_number(report["parameters"].get<int64_t>()));
  for (const auto& [part, count] : report["parameters_by_part"].items()) {
    fmt::print("  {:<15}{:>16}\n", part, grouped_number(count.get<int64_t>()));
  }
  std::string dtypes = config.torch_dtype;
  if (has_weights) {
    dtypes.clear();
    for (const auto& [dtype, count] : report["parameters_by_dtype"].items()) {
      dtypes += (dtypes.empty() ? "" : ", ") + dtype;
    }
  }
  fmt::print("memory\n");
  fmt::print("  weights        {} in {}\n", byte_count(report["weight_bytes"].get<uint64_t>()),
             dtypes);
  fmt::print("  KV cache       {} a token in fp32\n",
             byte_count(report["kv_cache_bytes_per_token"].get<uint64_t>()));
  fmt::print("  training       {} for weights, gradients and AdamW in fp32\n",
             byte_count(report["training_state_bytes"].get<uint64_t>()));
}

}  // namespace

int run_info(const std::vector<std::string>& arguments) {
  CommandLine command(
      "Prints what this machine offers and, given a checkpoint folder or a config.json, what it\n"
      "holds: sizes, parameters by part, the latent, memory. Opening a checkpoint checks every\n"
      "tensor's name, shape and place. LibTorch is not loaded.\n\n"
      "examples:\n"
      "  freeformer info\n"
      "  freeformer info runs/shakespeare/checkpoints/latest\n"
      "  freeformer info configs/models/free-1.5b.json\n"
      "  freeformer info DIR --json\n",
      "info");
  std::string path;
  bool json = false;
  command.add_option("path", path, "checkpoint folder in Hugging Face layout, or a config.json");
  command.add_flag("--json", json, "one JSON object");
  int status = kDone;
  if (!command.parse(arguments, status)) return status;

  OrderedJson report;
  report["version"] = FREEFORMER_VERSION;
  report["machine"] = machine_report();
  if (command.given("path")) {
    if (path.empty()) fail(ErrorCode::kInvalidArgument, "the path is empty");
    std::optional<Checkpoint> checkpoint;
    std::error_code ignored;  // whatever is wrong with it, opening it says so
    if (!std::filesystem::is_regular_file(path, ignored)) checkpoint.emplace(path);
    const ModelConfig config = checkpoint ? checkpoint->config() : read_model_config(path);
    report["model"] = model_report(config, checkpoint ? &*checkpoint : nullptr);
    if (!json) print_model(path, config, report["model"]);
  }
  if (json) {
    fmt::print("{}\n", to_text(report, 2));
  } else {
    print_machine(report["machine"]);
  }
  return kDone;
}

}  // namespace freeformer::cli
