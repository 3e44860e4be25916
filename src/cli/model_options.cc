#include "cli/model_options.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "cli/command_line.h"
#include "cli/load_plugin.h"
#include "core/error.h"
#include "core/file.h"
#include "kernels/parallel.h"

namespace freeformer::cli {

void ModelOptions::add_to(CommandLine& command) {
  command.add_option("-m,--model", folder, "a checkpoint: a run's checkpoints/best, say")
      .type_name("DIR")
      .required();
  add_all_but_model_to(command);
}

void ModelOptions::add_all_but_model_to(CommandLine& command) {
  command.add_option("--device", device, "a LibTorch device: cpu, cuda, cuda:1 (default cpu)")
      .type_name("DEVICE");
  command.add_option("--precision", precision, "fp32 or bf16 (default fp32)")
      .choices({"fp32", "bf16"})
      .type_name("TYPE");
  command.add_option("-t,--threads", threads, "threads (default: one per physical core)")
      .type_name("N");
}

OpenModel open_model(const ModelOptions& options) {
  if (options.threads != 0) kernels::set_thread_count(options.threads);
  OpenModel model;
  model.engine = torch_plugin().open_engine(options.folder, options.device, options.precision);
  const auto path = std::filesystem::path(options.folder) / "tokenizer.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    model.tokenizer_problem = path.string() + " does not exist";
    return model;
  }
  try {
    model.tokenizer = read_tokenizer(path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    model.tokenizer_problem = error.what();
    return model;
  }
  if (model.tokenizer->vocab_size() > model.engine->config().vocab_size) {
    reject_file(path.string(), "{} tokens, but config.json has a vocab_size of {}",
                model.tokenizer->vocab_size(), model.engine->config().vocab_size);
  }
  return model;
}

const Tokenizer& OpenModel::require_tokenizer() const {
  if (!tokenizer) {
    fail(ErrorCode::kInvalidArgument,
         "{}; this command reads text with the model's tokenizer (generate and encode take "
         "--tokens)",
         tokenizer_problem);
  }
  return *tokenizer;
}

std::vector<int32_t> parse_token_list(const std::string& text) {
  std::vector<int32_t> tokens;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    int32_t token = 0;
    const char *first = text.data() + begin, *last = text.data() + comma;
    const auto [end, error] = std::from_chars(first, last, token);
    if (error != std::errc() || end != last || token < 0) {
      fail(ErrorCode::kInvalidArgument, "--tokens: \"{}\", expected ids like 3,1,4",
           std::string(first, last));
    }
    tokens.push_back(token);
    begin = comma + 1;
  }
  return tokens;
}

std::string read_input(const std::string& path) {
  constexpr size_t kMost = size_t{1} << 30;
  std::error_code ignored;
  const auto kind = std::filesystem::status(path, ignored).type();
  const bool pipe = kind == std::filesystem::file_type::fifo ||
                    kind == std::filesystem::file_type::character;  // <(command), /dev/stdin
  if (path != "-" && !pipe) return read_text_file(path, kMost);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(
      path == "-" ? nullptr : std::fopen(path.c_str(), "rb"), std::fclose);
  if (path != "-" && !opened) fail(ErrorCode::kIo, "{}: {}", path, std::strerror(errno));
  std::FILE* stream = path == "-" ? stdin : opened.get();
  const std::string name = path == "-" ? "stdin" : path;
  std::string text;
  char buffer[65536];
  size_t n = 0;
  while ((n = std::fread(buffer, 1, sizeof buffer, stream)) > 0) {
    text.append(buffer, n);
    if (text.size() > kMost) fail(ErrorCode::kCapacity, "{}: over {} bytes", name, kMost);
  }
  if (std::ferror(stream) != 0) fail(ErrorCode::kIo, "{}: cannot read", name);
  return text;
}

}  // namespace freeformer::cli
