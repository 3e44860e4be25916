#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/model_options.h"
#include "core/error.h"
#include "core/json.h"
#include "core/philox.h"
#include "core/utf8.h"
#include "engine/bits.h"

namespace freeformer::cli {
namespace {

// What the encoder says about one token.
struct TokenCode {
  int32_t token = 0, code = 0;
  std::string text;  // empty without a tokenizer
  std::vector<double> probabilities;
  double kl_bits = 0;
};

std::vector<TokenCode> encode(const OpenModel& model, const std::vector<int32_t>& tokens,
                              std::optional<uint64_t> seed) {
  const std::vector<std::span<const int32_t>> texts = {tokens};
  const std::vector<float> bit_logits = model.engine->encode(texts)[0];
  const auto Z = size_t(model.engine->config().latent.bits);
  std::vector<float> uniforms(Z, 0.5f);  // the most likely bits
  std::vector<TokenCode> codes(tokens.size());
  for (size_t t = 0; t < tokens.size(); ++t) {
    const auto logits = std::span(bit_logits).subspan(t * Z, Z);
    if (seed) {
      RandomSource(*seed, RandomStream::kLatent).uniforms(0, uint32_t(t), int(Z), uniforms.data());
    }
    codes[t].token = tokens[t];
    codes[t].code = draw_code(logits, uniforms);
    if (model.tokenizer) codes[t].text = model.tokenizer->decode(std::span(&tokens[t], 1));
    for (const float logit : logits) {
      codes[t].probabilities.push_back(sigmoid(logit));
      codes[t].kl_bits += bit_kl(logit) / std::log(2.0);
    }
  }
  return codes;
}

// A token's text in one visible piece: "a", "␣", "\n", "0xe9".
std::string visible(const std::string& text) {
  if (text == " ") return "␣";
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (uint8_t(c) < ' ' || c == 127) {
      out += fmt::format("0x{:02x}", uint8_t(c));
    } else {
      out += c;
    }
  }
  if (find_invalid_utf8(out) == std::string::npos) return out;
  out.clear();
  for (const char c : text) out += fmt::format("0x{:02x}", uint8_t(c));
  return out;
}

// Bit h = 0 first; the digit where the encoder is sure, a dot where it hardly says anything.
std::string bit_string(const TokenCode& token) {
  std::string bits;
  for (const double p : token.probabilities) {
    const bool says_nothing = bit_kl(std::log(p / (1 - p))) < 0.01 * std::log(2.0);
    bits += says_nothing ? '.' : token.code >> bits.size() & 1 ? '1' : '0';
  }
  return bits;
}

void print_table(const std::vector<TokenCode>& codes) {
  fmt::print("{:>6}  {:>6}  {:<8} {:>7}  {:>8}  bits (0 first; . says under 0.01 bit)\n", "place",
             "token", "text", "code", "KL bits");
  double sum = 0;
  for (size_t t = 0; t < codes.size(); ++t) {
    fmt::print("{:>6}  {:>6}  {:<8} {:>7}  {:>8.3f}  {}\n", t, codes[t].token,
               visible(codes[t].text), codes[t].code, codes[t].kl_bits, bit_string(codes[t]));
    sum += codes[t].kl_bits;
  }
  fmt::print("mean KL {:.4f} bits per token over {} tokens\n", sum / double(codes.size()),
             codes.size());
}

// The text with each token on a background whose hue is its code and whose strength its KL.
void print_coloured(const std::vector<TokenCode>& codes, int Z) {
  double most = 1e-9;
  for (const TokenCode& token : codes) most = std::max(most, token.kl_bits);
  for (const TokenCode& token : codes) {
    const double hue = 6.0 * double(token.code) / double(int64_t{1} << Z);
    const double strength = token.kl_bits / most;
    const auto channel = [&](double offset) {
      const double k = std::fmod(offset + hue, 6.0);
      return int(40 + 150 * strength * (1 - std::clamp(std::min(k, 4 - k), 0.0, 1.0)));
    };
    fmt::print("\033[97;48;2;{};{};{}m{}\033[0m", channel(5), channel(3), channel(1),
               visible(token.text));
    if (token.text == "\n") fmt::print("\n");
  }
  fmt::print("\n");
}

}  // namespace

int run_encode(const std::vector<std::string>& arguments) {
  CommandLine command(
      "Shows what the encoder reads into a text: for every token its code, the bits and their KL\n"
      "to a fair coin. Codes are the most likely ones, or drawn with --seed.\n\n"
      "examples:\n"
      "  freeformer encode -m DIR 'To be, or not to be'\n"
      "  freeformer encode -m DIR --colour -f speech.txt\n"
      "  freeformer encode -m DIR --json TEXT >codes.json; freeformer generate --z file:codes.json "
      "…\n",
      "encode");
  ModelOptions options;
  std::string text, file, tokens_text;
  bool json = false, colour = false;
  uint64_t seed = 0;
  options.add_to(command);
  command.add_option("TEXT", text, "the text (default: stdin)").type_name("TEXT");
  command.add_option("-f,--file", file, "the text is the content of a file").type_name("FILE");
  command.add_option("--tokens", tokens_text, "the text as token ids: 3,1,4").type_name("IDS");
  command.add_option("-s,--seed", seed, "draw the codes with this seed").type_name("N");
  command.add_flag("--colour,--color", colour, "the text itself, coloured by code and KL");
  command.add_flag("--json", json, "one JSON object with codes, probabilities and KL");
  int status = kDone;
  if (!command.parse(arguments, status)) return status;
  if (int(command.given("TEXT")) + int(command.given("--file")) + int(command.given("--tokens")) >
      1) {
    fail(ErrorCode::kInvalidArgument, "TEXT, --file and --tokens: expected one of them");
  }
  if (json && colour) fail(ErrorCode::kInvalidArgument, "--colour has no effect with --json");
  const OpenModel model = open_model(options);
  const ModelConfig& config = model.engine->config();
  if (!config.latent.present()) {
    fail(ErrorCode::kInvalidArgument, "{} is a plain decoder without a latent: nothing to encode",
         options.folder);
  }
  std::vector<int32_t> tokens;
  if (!tokens_text.empty()) {
    tokens = parse_token_list(tokens_text);
  } else {
    const Tokenizer& tokenizer = model.require_tokenizer();
    tokens = tokenizer.encode(command.given("TEXT") ? text : read_input(file.empty() ? "-" : file));
  }
  if (tokens.empty()) fail(ErrorCode::kInvalidArgument, "the text is empty");
  if (int64_t(tokens.size()) > config.max_position_embeddings) {
    fail(ErrorCode::kInvalidArgument,
         "the text has {} tokens, expected at most {} (the model's max_position_embeddings)",
         tokens.size(), config.max_position_embeddings);
  }
  const auto codes =
      encode(model, tokens, command.given("--seed") ? std::optional(seed) : std::nullopt);
  if (json) {
    OrderedJson result;
    result["tokens"] = tokens;
    for (const TokenCode& token : codes) {
      if (model.tokenizer) result["text"].push_back(token.text);
      result["codes"].push_back(token.code);
      result["kl_bits"].push_back(token.kl_bits);
      result["probabilities"].push_back(token.probabilities);
    }
    fmt::print("{}\n", to_text(result));
  } else if (colour) {
    print_coloured(codes, config.latent.bits);
  } else {
    print_table(codes);
  }
  return kDone;
}

}  // namespace freeformer::cli
