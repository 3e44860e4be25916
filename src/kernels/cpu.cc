#include "kernels/cpu.h"

#include <sched.h>

#include <hwy/targets.h>
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <utility>

#include "core/error.h"
#include "kernels/gemm.h"

namespace freeformer::kernels {
namespace {

struct IsaName {
  const char* name;
  int64_t target;
};

// Which of the two Highway uses for plain C++ depends on the compiler.
constexpr int64_t kScalar = HWY_SCALAR | HWY_EMU128;

// Highway calls AVX-512 "AVX3"; "DL" is its Ice Lake flavour.
constexpr IsaName kIsas[] = {
#if HWY_ARCH_X86
    {"avx512_dl", HWY_AVX3_DL}, {"avx512", HWY_AVX3}, {"avx2", HWY_AVX2},
    {"sse4", HWY_SSE4},         {"ssse3", HWY_SSSE3},
#elif HWY_ARCH_ARM
    {"sve2", HWY_SVE2},
    {"sve", HWY_SVE},
    {"neon", HWY_NEON},
#endif
    {"scalar", kScalar},
};

// Read before anything is masked.
const std::vector<IsaName>& supported() {
  static const std::vector<IsaName> list = [] {
    std::vector<IsaName> found;
    const int64_t targets = hwy::SupportedTargets() | kScalar;
    for (const IsaName& isa : kIsas) {
      if (targets & isa.target) found.push_back(isa);
    }
    return found;
  }();
  return list;
}

std::string& active() {
  static std::string name;
  return name;
}

}  // namespace

std::vector<std::string> supported_isas() {
  std::vector<std::string> names;
  for (const IsaName& isa : supported()) names.emplace_back(isa.name);
  return names;
}

void force_isa(const std::string& name) {
  const auto& list = supported();
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const IsaName& isa) { return isa.name == name; });
  if (found == list.end()) {
    std::string names;
    for (const IsaName& isa : list) names += (names.empty() ? "" : ", ") + std::string(isa.name);
    fail(ErrorCode::kInvalidArgument, "FREEFORMER_CPU_ISA={}: this processor offers {}", name,
         names);
  }
  // This one and everything below it, so that a kernel not built for it still finds a home.
  int64_t targets = kScalar;
  for (auto isa = found; isa != list.end(); ++isa) targets |= isa->target;
  hwy::SetSupportedTargetsForTest(targets);
  hwy::GetChosenTarget().Update(targets);
  active() = name;
}

const std::string& active_isa() {
  static const bool initialised = [] {
    const char* forced = std::getenv("FREEFORMER_CPU_ISA");
    const std::string name = forced != nullptr && *forced != '\0' ? forced : supported()[0].name;
    force_isa(name);
    limit_gemm_isa(name);
    return true;
  }();
  static_cast<void>(initialised);
  return active();
}

bool has_native_bf16() {
#if HWY_ARCH_X86
  return __builtin_cpu_supports("avx512bf16") && active_isa().starts_with("avx512");
#else
  return false;
#endif
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      const size_t colon = line.find(": ");
      if (colon != line.npos) return line.substr(colon + 2);
    }
  }
  return "unknown processor";
}

int physical_core_count() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  std::set<std::pair<std::string, std::string>> cores;  // (package, core)
  const auto read = [](int cpu, const char* what) {
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + what);
    std::string text;
    std::getline(file, text);
    return text;
  };
  int logical = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    ++logical;
    cores.emplace(read(cpu, "physical_package_id"), read(cpu, "core_id"));
  }
  // Without topology files all cores look like one.
  return cores.size() == 1 && cores.begin()->second.empty() ? logical : int(cores.size());
}

}  // namespace freeformer::kernels
