#include <unistd.h>

#include <cmath>

#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/model_options.h"
#include "core/error.h"
#include "core/json.h"
#include "engine/generate.h"

namespace freeformer::cli {
namespace {

struct Options {
  ModelOptions model;
  std::string prompt, file, tokens;
  bool has_prompt = false;
  int64_t count = 1;
  std::string z = "posterior";
  GenerateRequest request;
  std::vector<std::string> biases;
  bool json = false, no_cache = false, no_prompt = false, escape = false;
};

void add_options(CommandLine& command, Options& o) {
  SamplingSettings& s = o.request.sampling;
  o.model.add_to(command);
  command.add_option("-p,--prompt", o.prompt, "the prompt (default: stdin)").type_name("TEXT");
  command.add_option("-f,--file", o.file, "the prompt is the content of a file").type_name("FILE");
  command.add_option("--tokens", o.tokens, "the prompt as token ids: 3,1,4").type_name("IDS");
  command.add_flag("-e,--escape", o.escape, "\\n and \\t in the prompt are a newline and a tab");
  command.add_option("-n,--n-predict", o.request.max_tokens, "tokens to generate (default 128)")
      .type_name("N");
  command.add_option("--count", o.count, "sequences, each with its own draws (default 1)")
      .type_name("N");
  command
      .add_option("--z", o.z,
                  "where the codes come from: posterior (default), map, prior, seed:N, code:V,…, "
                  "from:TEXT, file:PATH")
      .type_name("POLICY");
  command.add_option("-s,--seed", s.seed, "of tokens and codes: same seed, same text (default 0)")
      .type_name("N");
  command.add_option("--temp", s.temperature, "temperature; 0: the most likely token (default 0.8)")
      .type_name("X");
  command.add_option("--top-k", s.top_k, "keep the K most likely; 0: all (default 40)")
      .type_name("K");
  command
      .add_option("--top-p", s.top_p, "keep the likeliest up to this mass; 1: off (default 0.95)")
      .type_name("P");
  command
      .add_option("--min-p", s.min_p,
                  "drop below this share of the likeliest; 0: off (default 0.05)")
      .type_name("P");
  command
      .add_option("--repeat-penalty", s.repeat_penalty, "divides logits of recent tokens; 1: off")
      .type_name("X");
  command.add_option("--repeat-last-n", s.repeat_last_n, "how far penalties look back (default 64)")
      .type_name("N");
  command
      .add_option("--presence-penalty", s.presence_penalty,
                  "off the logits of recent tokens; 0: off")
      .type_name("X");
  command.add_option("--frequency-penalty", s.frequency_penalty, "the same for each time; 0: off")
      .type_name("X");
  command
      .add_option("-l,--logit-bias", o.biases, "TOKEN+X or TOKEN-X; TOKEN-inf bans it; repeatable")
      .type_name("BIAS")
      .one_at_a_time();
  command.add_option("--stop", o.request.stop, "a text that ends the sequence; repeatable")
      .type_name("TEXT")
      .one_at_a_time();
  command.add_option("--logprobs", o.request.logprobs, "with --json: alternatives for each token")
      .type_name("N");
  command.add_flag("--no-display-prompt", o.no_prompt, "print what is generated alone");
  command.add_flag("--no-cache", o.no_cache, "compute everything again for each token: a check");
  command.add_flag("--json", o.json,
                   "one JSON object a sequence, with tokens, codes, log-probabilities");
}

std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char next = text[++i];
    if (next == 'n') {
      out += '\n';
    } else if (next == 't') {
      out += '\t';
    } else {
      if (next != '\\') out += '\\';
      out += next;
    }
  }
  return out;
}

std::vector<int32_t> prompt_tokens(const Options& o, const OpenModel& model) {
  if (!o.tokens.empty()) return parse_token_list(o.tokens);
  const Tokenizer& tokenizer = model.require_tokenizer();
  std::string text = o.prompt;
  if (!o.file.empty()) {
    text = read_input(o.file);
  } else if (!o.has_prompt) {
    if (isatty(STDIN_FILENO) == 1) {
      std::fputs("[freeformer] the prompt, then Ctrl-D:\n", stderr);
    }
    text = read_input("-");
  }
  return tokenizer.encode(o.escape ? unescaped(text) : text);
}

void parse_bias(const std::string& text, SamplingSettings& settings) {
  const size_t sign = text.find_first_of("+-", 1);
  char *end = nullptr, *number_end = nullptr;
  const long token = std::strtol(text.c_str(), &end, 10);
  const double value =
      sign == text.npos ? std::nan("") : std::strtod(text.c_str() + sign, &number_end);
  if (sign == text.npos || end != text.c_str() + sign || *number_end != '\0' || std::isnan(value) ||
      token < 0 || token > INT32_MAX) {
    fail(ErrorCode::kInvalidArgument, "--logit-bias \"{}\", expected TOKEN+X, TOKEN-X or TOKEN-inf",
         text);
  }
  settings.logit_bias[int32_t(token)] = value;
}

OrderedJson to_json(const GenerateResult& result, const GenerateRequest& request,
                    const OpenModel& model) {
  OrderedJson json;
  if (model.tokenizer) json["text"] = result.text;
  json["finish_reason"] = name(result.reason);
  json["seed"] = request.sampling.seed;
  json["sequence"] = request.sequence;
  json["prompt_tokens"] = request.prompt;
  const bool latent = model.engine->config().latent.present();
  if (latent) {
    json["z"] = to_text(request.z);
    json["prompt_codes"] = result.prompt_codes;
  }
  std::vector<int32_t> tokens, codes;
  std::vector<double> log_probabilities;
  OrderedJson top = OrderedJson::array();
  for (const GeneratedToken& token : result.tokens) {
    tokens.push_back(token.sampled.token);
    codes.push_back(token.code);
    log_probabilities.push_back(token.sampled.log_probability);
    OrderedJson alternatives = OrderedJson::array();
    for (const TokenProbability& other : token.sampled.top) {
      alternatives.push_back({{"token", other.token}, {"logprob", other.log_probability}});
    }
    top.push_back(alternatives);
  }
  json["tokens"] = tokens;
  if (latent) json["codes"] = codes;  // of the position before each token: the one it was told from
  json["logprobs"] = log_probabilities;
  if (request.logprobs > 0) json["top_logprobs"] = top;
  return json;
}

std::string joined(const std::vector<int32_t>& tokens) {
  std::string text;
  for (const int32_t token : tokens) text += (text.empty() ? "" : ",") + std::to_string(token);
  return text;
}

// stdout takes text at once, so that it can be read while it comes.
void put(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0) fail(ErrorCode::kIo, "cannot write to standard output");
}

}  // namespace

int run_generate(const std::vector<std::string>& arguments) {
  CommandLine command(
      "Continues a prompt. Text goes to stdout as it comes, everything else to stderr. Sampling\n"
      "options, their defaults and order are llama.cpp's; --z says where the codes come from.\n\n"
      "examples:\n"
      "  freeformer generate -m runs/shakespeare-free/checkpoints/best -p 'ROMEO:' -n 300\n"
      "  freeformer generate -m DIR -p 'K>' -n 64 --count 8 --z seed:3      one Z for all eight\n"
      "  echo 'Once upon' | freeformer generate -m DIR --temp 0 --json\n",
      "generate");
  Options o;
  add_options(command, o);
  int status = kDone;
  if (!command.parse(arguments, status)) return status;
  o.has_prompt = command.given("--prompt");
  if (int(o.has_prompt) + int(!o.file.empty()) + int(!o.tokens.empty()) > 1) {
    fail(ErrorCode::kInvalidArgument, "--prompt, --file and --tokens: expected one of them");
  }
  if (o.count < 1 || o.count > 65536) {
    fail(ErrorCode::kInvalidArgument, "--count is {}, expected 1 to 65536", o.count);
  }
  if (o.escape && !o.tokens.empty()) {
    fail(ErrorCode::kInvalidArgument, "--escape has no effect with --tokens");
  }
  if (o.request.logprobs != 0 && !o.json) {
    fail(ErrorCode::kInvalidArgument, "--logprobs has no effect without --json");
  }
  if (o.request.logprobs < 0) {
    fail(ErrorCode::kInvalidArgument, "--logprobs is {}, expected 0 or more", o.request.logprobs);
  }
  for (const std::string& bias : o.biases) parse_bias(bias, o.request.sampling);
  LatentPolicy policy = parse_latent_policy(o.z);

  const OpenModel model = open_model(o.model);
  if (command.given("--z") && !model.engine->config().latent.present()) {
    fail(ErrorCode::kInvalidArgument, "--z {}: {} is a plain decoder without a latent", o.z,
         o.model.folder);
  }
  o.request.z = resolve_latent_policy(policy, *model.engine, model.tokenizer.get());
  o.request.use_cache = !o.no_cache;
  o.request.prompt = prompt_tokens(o, model);
  std::vector<GenerateRequest> requests;
  for (int64_t i = 0; i < o.count; ++i) {
    requests.push_back(o.request);
    requests.back().sequence = uint64_t(i);
  }
  const bool streams = !o.json && o.count == 1;
  const std::string prompt_text = o.no_prompt       ? ""
                                  : model.tokenizer ? model.tokenizer->decode(o.request.prompt)
                                                    : "";
  int64_t generated = 0;
  const auto results = generate(
      *model.engine, model.tokenizer.get(), requests,
      [&](size_t, const GeneratedToken& token, const std::string& text) {
        ++generated;
        if (streams) {
          if (generated == 1) put(prompt_text);  // not before the request has proved good
          put(model.tokenizer ? text
                              : (generated > 1 ? "," : "") + std::to_string(token.sampled.token));
        }
        return true;
      });
  for (size_t i = 0; i < results.size(); ++i) {
    if (o.json) {
      put(to_text(to_json(results[i], requests[i], model)) + "\n");
    } else if (streams) {
      put("\n");
    } else if (model.tokenizer) {
      put(prompt_text + results[i].text + "\n");
    } else {
      std::vector<int32_t> tokens;
      for (const GeneratedToken& token : results[i].tokens) tokens.push_back(token.sampled.token);
      put(joined(tokens) + "\n");
    }
    if (results[i].reason == FinishReason::kContext) {
      fmt::print(stderr, "[freeformer] sequence {}: the model's context of {} tokens is full\n", i,
                 model.engine->config().max_position_embeddings);
    }
  }
  return kDone;
}

}  // namespace freeformer::cli
