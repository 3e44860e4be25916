#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/load_plugin.h"
#include "core/error.h"
#include "core/json.h"

namespace freeformer::cli {
namespace {

// The cases that ship with the sources or the installation.
std::vector<std::filesystem::path> shipped_cases() {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  for (const std::filesystem::path& root :
       {program.parent_path().parent_path() / "share/freeformer/golden",
        std::filesystem::path(FREEFORMER_GOLDEN_DIR)}) {
    if (!std::filesystem::is_directory(root)) continue;
    std::vector<std::filesystem::path> cases;
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      if (std::filesystem::exists(entry.path() / "expected.safetensors")) {
        cases.push_back(entry.path());
      }
    }
    std::sort(cases.begin(), cases.end());
    if (!cases.empty()) return cases;
  }
  fail(ErrorCode::kInvalidArgument, "no golden cases are installed: give one with --golden DIR");
}

void print_report(const GoldenReport& report) {
  fmt::print("{} ({} on {})\n", report.folder.string(), report.dtype, report.device);
  double worst_gradient = 0;
  for (const GoldenError& error : report.errors) {
    const bool gradient = error.quantity.starts_with("grad.");
    if (gradient && !(error.error <= worst_gradient)) worst_gradient = error.error;  // NaN too
    // Gradients are many; each that is off is named, the rest are summed up.
    if (gradient && error.passed()) continue;
    fmt::print("  {:<44} {:>9.2e}  (at most {:.0e})  {}\n", error.quantity, error.error,
               error.tolerance, error.passed() ? "ok" : "OFF");
  }
  fmt::print("  {:<44} {:>9.2e}\n", "largest error of a gradient", worst_gradient);
}

OrderedJson to_json(const GoldenReport& report) {
  OrderedJson json;
  json["case"] = report.folder.string();
  json["dtype"] = report.dtype;
  json["device"] = report.device;
  json["passed"] = report.passed();
  for (const GoldenError& error : report.errors) {
    json["errors"][error.quantity] = {
        {"error", error.error}, {"tolerance", error.tolerance}, {"passed", error.passed()}};
  }
  return json;
}

}  // namespace

int run_selftest(const std::vector<std::string>& arguments) {
  CommandLine command(
      "Runs golden cases (a small model with inputs, and the logits, losses and gradients that an\n"
      "independent float64 reference computed) through this build, prints the largest relative\n"
      "error per quantity and fails above tolerance: the way to trust a new machine or device.\n\n"
      "examples:\n"
      "  freeformer selftest                      the cases that ship with Freeformer\n"
      "  freeformer selftest --golden DIR --json\n"
      "  freeformer selftest --bf16\n",
      "selftest");
  std::vector<std::string> folders;
  GoldenOptions options;
  bool json = false;
  command.add_option("--golden", folders, "folder of a case; may be repeated").type_name("DIR");
  command.add_flag("--bf16", options.bf16, "compute in bf16, at bf16's tolerances");
  command
      .add_option("--device", options.device, "a LibTorch device: cpu, cuda, cuda:1 (default cpu)")
      .type_name("DEVICE");
  command.add_flag("--json", json, "one JSON object a case, with the error per quantity");
  int status = kDone;
  if (!command.parse(arguments, status)) return status;

  std::vector<std::filesystem::path> cases(folders.begin(), folders.end());
  if (cases.empty()) cases = shipped_cases();
  TorchPlugin& torch = torch_plugin();
  std::vector<std::string> failed;
  for (const auto& folder : cases) {
    options.folder = folder;
    const GoldenReport report = torch.run_golden(options);
    if (json) {
      fmt::print("{}\n", to_text(to_json(report)));
    } else {
      print_report(report);
    }
    for (const GoldenError& error : report.errors) {
      if (!error.passed()) failed.push_back(error.quantity);
    }
    if (report.errors.empty()) failed.emplace_back("nothing was compared");
  }
  if (failed.empty()) {
    if (!json) fmt::print("selftest passed: {} case(s)\n", cases.size());
    return kDone;
  }
  fail(ErrorCode::kInternal, "{} quantities are off, first: {}", failed.size(), failed[0]);
}

}  // namespace freeformer::cli
