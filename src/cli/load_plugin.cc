#include "cli/load_plugin.h"

#include <dlfcn.h>

#include <filesystem>

#include "core/error.h"

namespace freeformer::cli {
namespace {

constexpr const char* kLibrary = "libfreeformer_torch_plugin.so";

TorchPlugin* load() {
  // Beside the program in a build tree (bin/, lib/) and in an installation alike.
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const auto path = program.parent_path().parent_path() / "lib" / kLibrary;
  if (!std::filesystem::exists(path)) {
    fail(ErrorCode::kUnsupported,
         "this command needs LibTorch, and this build has none: build with "
         "-DFREEFORMER_TRAIN=ON (expected {})",
         path.string());
  }
  // RTLD_GLOBAL: exceptions and LibTorch's registries must be one for all that is loaded later.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    fail(ErrorCode::kUnsupported, "cannot load LibTorch: {}; is libtorch installed?", dlerror());
  }
  const auto entry = reinterpret_cast<TorchPluginEntry>(dlsym(library, kTorchPluginEntry));
  TorchPlugin* plugin = entry == nullptr ? nullptr : entry(kTorchPluginVersion);
  if (plugin == nullptr) {
    fail(ErrorCode::kUnsupported, "{} is of another version: build everything again",
         path.string());
  }
  return plugin;
}

}  // namespace

TorchPlugin& torch_plugin() {
  static TorchPlugin* plugin = load();
  return *plugin;
}

}  // namespace freeformer::cli
