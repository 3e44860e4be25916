// What every command that uses a model asks for: where it is, how to run it, its tokenizer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "text/tokenizer.h"

namespace freeformer::cli {

class CommandLine;

struct ModelOptions {
  std::string folder;
  std::string device = "cpu";
  std::string precision = "fp32";
  int threads = 0;

  // -m/--model, --device, --precision, -t/--threads
  void add_to(CommandLine& command);
  void add_all_but_model_to(CommandLine& command);  // for a command that takes several models
};

// A model with its tokenizer, ready for use.
struct OpenModel {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Tokenizer> tokenizer;  // nullptr: it has none that we read
  std::string tokenizer_problem;         // why, then

  // Throws kInvalidArgument where there is no tokenizer.
  const Tokenizer& require_tokenizer() const;
};
OpenModel open_model(const ModelOptions& options);

// "3,1,4": token ids of --tokens. Throws kInvalidArgument.
std::vector<int32_t> parse_token_list(const std::string& text);

// All of stdin ("-"), of a file or of a pipe.
std::string read_input(const std::string& path);

}  // namespace freeformer::cli
