#include "engine/generate.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "engine/bits.h"

namespace freeformer {
namespace {

// One request on its way.
class Running {
 public:
  Running(const GenerateRequest& request, const ModelConfig& config, const Tokenizer* tokenizer)
      : request_(request), config_(config), tokenizer_(tokenizer), history_(request.prompt) {
    check_request();
    if (config.latent.present()) {
      plan_.emplace(request.z, config.latent.bits, request.sampling.seed, request.sequence);
    }
  }

  const GenerateRequest& request() const { return request_; }
  bool finished() const { return finished_; }
  void finish(FinishReason reason) {
    result.reason = reason;
    finished_ = true;
  }

  // Everything so far, from the beginning, with its codes.
  Engine::Prefill prefill() const {
    Engine::Prefill prefill{history_, {}, {}};
    if (!plan_) return prefill;
    if (codes_.empty() && plan_->encodes_prompt()) {
      prefill.uniforms = plan_->uniforms(0, int64_t(history_.size()));
    } else {
      prefill.codes = codes_.empty() ? plan_->codes(0, int64_t(history_.size())) : codes_;
    }
    return prefill;
  }
  void set_codes(const std::vector<int32_t>& codes) {
    if (codes_.empty()) result.prompt_codes = codes;
    codes_ = codes;
  }

  Engine::Decode decode(Engine::Sequence sequence) const {
    return {sequence, history_.back(), codes_.empty() ? 0 : codes_.back()};
  }

  // Takes the logits of the next token: draws it, tells the callback, and finishes where it ends.
  void advance(size_t index, std::span<const float> logits, const GenerateCallback& callback) {
    GeneratedToken token;
    token.sampled = sample_token(logits, history_, request_.sampling, request_.sequence,
                                 uint32_t(history_.size()), request_.logprobs);
    if (!codes_.empty()) token.code = codes_.back();
    const auto& ends = config_.eos_token_id;
    if (std::find(ends.begin(), ends.end(), token.sampled.token) != ends.end()) {
      const std::string rest = take_text(result.text.size());
      if (callback && !rest.empty()) callback(index, token, rest);
      return finish(FinishReason::kEndOfText);
    }
    history_.push_back(token.sampled.token);
    if (plan_) codes_.push_back(plan_->code(int64_t(history_.size()) - 1));
    result.tokens.push_back(token);
    const bool stopped = extend_text(token.sampled.token);
    if (stopped) {
      if (callback) callback(index, token, take_text(result.text.size()));
      return finish(FinishReason::kStop);
    }
    const bool last = int64_t(result.tokens.size()) == request_.max_tokens;
    const bool full = int64_t(history_.size()) > config_.max_position_embeddings;
    const size_t safe = last || full ? result.text.size() : result.text.size() - held_back();
    if (callback && !callback(index, token, take_text(safe))) {
      result.text.resize(given_);
      return finish(FinishReason::kCancelled);
    }
    if (last) return finish(FinishReason::kLength);
    if (full) finish(FinishReason::kContext);
  }

  GenerateResult result;

 private:
  void check_request() const {
    if (request_.prompt.empty()) {
      fail(ErrorCode::kInvalidArgument, "the prompt is empty, expected at least one token");
    }
    for (const int32_t token : request_.prompt) {
      if (token < 0 || token >= config_.vocab_size) {
        fail(ErrorCode::kInvalidArgument, "token {} of the prompt, expected 0 to {}", token,
             config_.vocab_size - 1);
      }
    }
    if (int64_t(request_.prompt.size()) > config_.max_position_embeddings) {
      fail(ErrorCode::kInvalidArgument,
           "the prompt has {} tokens, expected at most {} (the "
           "model's max_position_embeddings)",
           request_.prompt.size(), config_.max_position_embeddings);
    }
    if (request_.max_tokens < 1) {
      fail(ErrorCode::kInvalidArgument, "{} tokens to generate, expected 1 or more",
           request_.max_tokens);
    }
    if (!config_.latent.present() && request_.z != LatentPolicy()) {
      fail(ErrorCode::kInvalidArgument, "--z {}: this model has no latent", to_text(request_.z));
    }
    for (const std::string& stop : request_.stop) {
      if (stop.empty()) fail(ErrorCode::kInvalidArgument, "an empty stop text");
      if (tokenizer_ == nullptr) {
        fail(ErrorCode::kInvalidArgument, "stop texts need a tokenizer, and this model has none");
      }
    }
    check(request_.sampling, config_.vocab_size);
  }

  // Adds the token's text; true if a stop text now ends it (and is cut off).
  bool extend_text(int32_t token) {
    if (tokenizer_ == nullptr) return false;
    const size_t before = result.text.size();
    result.text += tokenizer_->decode(std::span(&token, 1));
    size_t cut = std::string::npos;
    for (const std::string& stop : request_.stop) {
      // It may have begun in what was held back.
      const size_t from = before - std::min(before, stop.size() - 1);
      cut = std::min(cut, result.text.find(stop, from));
    }
    if (cut == std::string::npos) return false;
    result.text.resize(cut);
    return true;
  }

  // Bytes at the end of the text that may be the beginning of a stop text.
  size_t held_back() const {
    size_t most = 0;
    for (const std::string& stop : request_.stop) {
      for (size_t n = std::min(stop.size() - 1, result.text.size()); n > most; --n) {
        if (result.text.ends_with(std::string_view(stop).substr(0, n))) most = n;
      }
    }
    return most;
  }

  std::string take_text(size_t until) {
    std::string piece = until > given_ ? result.text.substr(given_, until - given_) : "";
    given_ = std::max(given_, until);
    return piece;
  }

  const GenerateRequest& request_;
  const ModelConfig& config_;
  const Tokenizer* tokenizer_;
  std::optional<CodePlan> plan_;
  std::vector<int32_t> history_;  // tokens: prompt and generated
  std::vector<int32_t> codes_;    // of the history; the last one is drawn when its token is
  size_t given_ = 0;              // bytes of the text that the callback has seen
  bool finished_ = false;
};

// Releases the sequences it holds, whatever happens.
class Sequences {
 public:
  explicit Sequences(Engine& engine) : engine_(engine) {}
  ~Sequences() {
    for (const auto& sequence : held_) {
      if (sequence) engine_.release(*sequence);
    }
  }
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  void hold(size_t index, Engine::Sequence sequence) {
    if (held_.size() <= index) held_.resize(index + 1);
    held_[index] = sequence;
  }
  Engine::Sequence operator[](size_t index) const { return *held_[index]; }
  void release(size_t index) {
    if (index < held_.size() && held_[index]) {
      engine_.release(*held_[index]);
      held_[index].reset();
    }
  }

 private:
  Engine& engine_;
  std::vector<std::optional<Engine::Sequence>> held_;
};

}  // namespace

const char* name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return "length";
    case FinishReason::kEndOfText:
      return "end of text";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kContext:
      return "context is full";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "?";
}

std::vector<GenerateResult> generate(Engine& engine, const Tokenizer* tokenizer,
                                     std::span<const GenerateRequest> requests,
                                     const GenerateCallback& callback) {
  std::vector<Running> running;
  running.reserve(requests.size());
  for (const GenerateRequest& request : requests) {
    running.emplace_back(request, engine.config(), tokenizer);
  }
  Sequences sequences(engine);

  // The first token of each, from a prefill; and with no cache, every token.
  const auto prefill = [&](const std::vector<size_t>& indices) {
    std::vector<Engine::Prefill> batch;
    for (const size_t i : indices) batch.push_back(running[i].prefill());
    const auto prefilled = engine.prefill(batch);
    for (size_t k = 0; k < indices.size(); ++k) {
      sequences.hold(indices[k], prefilled[k].sequence);
    }
    for (size_t k = 0; k < indices.size(); ++k) {
      Running& one = running[indices[k]];
      if (!prefilled[k].codes.empty()) one.set_codes(prefilled[k].codes);
      one.advance(indices[k], prefilled[k].logits, callback);
      if (one.finished() || !one.request().use_cache) sequences.release(indices[k]);
    }
  };
  std::vector<size_t> all(requests.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  prefill(all);

  while (true) {
    std::vector<size_t> cached, uncached;
    for (size_t i = 0; i < running.size(); ++i) {
      if (!running[i].finished()) (requests[i].use_cache ? cached : uncached).push_back(i);
    }
    if (cached.empty() && uncached.empty()) break;
    if (!cached.empty()) {
      std::vector<Engine::Decode> batch;
      for (const size_t i : cached) batch.push_back(running[i].decode(sequences[i]));
      const auto logits = engine.decode(batch);
      for (size_t k = 0; k < cached.size(); ++k) {
        running[cached[k]].advance(cached[k], logits[k], callback);
        if (running[cached[k]].finished()) sequences.release(cached[k]);
      }
    }
    if (!uncached.empty()) prefill(uncached);
  }
  std::vector<GenerateResult> results;
  for (Running& one : running) results.push_back(std::move(one.result));
  return results;
}

LatentPolicy resolve_latent_policy(LatentPolicy policy, Engine& engine,
                                   const Tokenizer* tokenizer) {
  if (policy.kind == LatentPolicy::Kind::kFile) policy.codes = read_codes(policy.text);
  if (policy.kind != LatentPolicy::Kind::kFrom) return policy;
  if (!engine.config().latent.present()) {
    fail(ErrorCode::kInvalidArgument, "--z {}: this model has no latent", to_text(policy));
  }
  if (tokenizer == nullptr) {
    fail(ErrorCode::kInvalidArgument, "--z from:TEXT needs a tokenizer, and this model has none");
  }
  const std::vector<int32_t> tokens = tokenizer->encode(policy.text);
  if (tokens.empty()) fail(ErrorCode::kInvalidArgument, "--z from:TEXT: the text is empty");
  if (int64_t(tokens.size()) > engine.config().max_position_embeddings) {
    fail(ErrorCode::kInvalidArgument,
         "--z from:TEXT: {} tokens, expected at most {} (the model's max_position_embeddings)",
         tokens.size(), engine.config().max_position_embeddings);
  }
  const std::vector<std::span<const int32_t>> texts = {tokens};
  const std::vector<float> bit_logits = engine.encode(texts)[0];
  const auto Z = size_t(engine.config().latent.bits);
  const std::vector<float> half(Z, 0.5f);
  policy.codes.clear();
  for (size_t t = 0; t < tokens.size(); ++t) {
    policy.codes.push_back(draw_code(std::span(bit_logits).subspan(t * Z, Z), half));
  }
  return policy;
}

}  // namespace freeformer
