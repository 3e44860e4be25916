#include "model/torch_engine.h"

#include <algorithm>

#include "core/error.h"
#include "model/weights.h"
#include "ops/torch_runtime.h"

namespace freeformer {

// New tokens of one sequence.
struct TorchEngine::Row {
  std::span<const int32_t> tokens, codes;
  std::span<const float> uniforms;
  Cache* past = nullptr;  // nullptr: nothing before, and nothing is kept
};

// Rows are laid end to end in one packed row of M tokens, so every matrix product is one; only
// attention goes sequence by sequence, each with its own past. No padding, no masks.
class TorchEngine::PackedAttention : public SequenceAttention {
 public:
  struct Part {
    int64_t first, count;
    Cache* past;
  };
  explicit PackedAttention(std::vector<Part> parts) : parts_(std::move(parts)) {}

  Tensor attend(int64_t layer, const Tensor& q_BTNH, const Tensor& k_BTKH,
                const Tensor& v_BTKH) override {
    std::vector<Tensor> outs;
    for (const Part& part : parts_) {
      Tensor k = k_BTKH.narrow(1, part.first, part.count);
      Tensor v = v_BTKH.narrow(1, part.first, part.count);
      if (part.past != nullptr && layer != kEncoderLayer) {
        k = extended(part.past->keys_SKH[size_t(layer)], part.past->length, k);
        v = extended(part.past->values_SKH[size_t(layer)], part.past->length, v);
      }
      outs.push_back(ops::attention(q_BTNH.narrow(1, part.first, part.count), k, v,
                                    {layer != kEncoderLayer, {}}));
    }
    return at::cat(outs, 1);
  }

  // After the last layer: the new positions are the past now.
  void commit() {
    for (const Part& part : parts_) {
      if (part.past != nullptr) part.past->length += part.count;
    }
  }

 private:
  // The past with `now` [1, n, K, H] behind it: [1, length + n, K, H].
  static Tensor extended(Tensor& past_SKH, int64_t length, const Tensor& now) {
    const int64_t needed = length + now.size(1);
    if (!past_SKH.defined() || past_SKH.size(0) < needed) {
      const int64_t room = std::max<int64_t>({needed, 2 * length, 64});
      Tensor larger = at::empty({room, now.size(2), now.size(3)}, now.options());
      if (length > 0) larger.narrow(0, 0, length).copy_(past_SKH.narrow(0, 0, length));
      past_SKH = larger;
    }
    past_SKH.narrow(0, length, now.size(1)).copy_(now[0]);
    return past_SKH.narrow(0, 0, needed).unsqueeze(0);
  }

  std::vector<Part> parts_;
};

namespace {

template <typename T>
std::vector<float> to_floats(const T& tensor) {
  const Tensor floats = tensor.to(at::kCPU, at::kFloat).contiguous();
  const float* data = floats.template data_ptr<float>();
  return {data, data + floats.numel()};
}

}  // namespace

struct TorchEngine::Packed {
  Batch batch;
  LatentSource source;
  std::unique_ptr<PackedAttention> attention;
};

TorchEngine::TorchEngine(FreeTransformer model) : model_(std::move(model)) {}

TorchEngine::Packed TorchEngine::pack(std::span<const Row> rows) const {
  std::vector<int64_t> tokens, positions, codes;
  std::vector<float> uniforms;
  std::vector<PackedAttention::Part> parts;
  for (const Row& row : rows) {
    const int64_t past = row.past == nullptr ? 0 : row.past->length;
    parts.push_back({int64_t(tokens.size()), int64_t(row.tokens.size()), row.past});
    for (size_t t = 0; t < row.tokens.size(); ++t) {
      const int32_t token = row.tokens[t];
      if (token < 0 || token >= config().vocab_size) {
        fail(ErrorCode::kInvalidArgument, "token {}, expected 0 to {}", token,
             config().vocab_size - 1);
      }
      tokens.push_back(token);
      positions.push_back(past + int64_t(t));
    }
    codes.insert(codes.end(), row.codes.begin(), row.codes.end());
    uniforms.insert(uniforms.end(), row.uniforms.begin(), row.uniforms.end());
  }
  const auto M = int64_t(tokens.size());
  const auto device = model_->parameters()[0].device();
  Packed packed;
  packed.attention = std::make_unique<PackedAttention>(std::move(parts));
  packed.batch.tokens_BT = at::tensor(tokens).view({1, M}).to(device);
  packed.batch.positions_BT = at::tensor(positions).view({1, M}).to(device);
  packed.batch.sequences = packed.attention.get();
  if (config().latent.present()) {
    const int64_t Z = config().latent.bits;
    if (!uniforms.empty()) {
      FF_CHECK(codes.empty() && int64_t(uniforms.size()) == M * Z);
      packed.source = LatentSource::posterior(at::tensor(uniforms).view({1, M, Z}).to(device));
    } else if (!codes.empty()) {
      FF_CHECK(int64_t(codes.size()) == M);
      packed.source = LatentSource::given(at::tensor(codes).view({1, M}).to(device));
    }
  }
  return packed;
}

std::vector<std::vector<float>> TorchEngine::last_logits(const Tensor& hidden_MD,
                                                         std::span<const Row> rows) {
  std::vector<int64_t> last;
  int64_t end = 0;
  for (const Row& row : rows) last.push_back((end += int64_t(row.tokens.size())) - 1);
  const Tensor logits =
      model_->logits(hidden_MD.index_select(0, at::tensor(last).to(hidden_MD.device())));
  std::vector<std::vector<float>> result;
  for (int64_t i = 0; i < int64_t(rows.size()); ++i) result.push_back(to_floats(logits[i]));
  return result;
}

std::vector<Engine::Prefilled> TorchEngine::prefill(std::span<const Prefill> requests) {
  const torch::NoGradGuard no_grad;
  std::vector<Prefilled> results(requests.size());
  // Codes from the encoder and codes given do not mix in one pass.
  for (const bool encoded : {false, true}) {
    std::vector<size_t> indices;
    std::vector<Row> rows;
    std::vector<Cache> fresh;
    fresh.reserve(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const Prefill& request = requests[i];
      FF_CHECK(!request.tokens.empty());
      if (request.uniforms.empty() == encoded) continue;
      const auto L = size_t(config().num_hidden_layers);
      fresh.push_back({0, std::vector<Tensor>(L), std::vector<Tensor>(L)});
      indices.push_back(i);
      rows.push_back({request.tokens, request.codes, request.uniforms, &fresh.back()});
    }
    if (rows.empty()) continue;
    const Packed packed = pack(rows);
    const ForwardResult forward = model_->forward(packed.batch, packed.source);
    packed.attention->commit();
    const auto logits = last_logits(forward.hidden_BTD[0], rows);
    Tensor codes_M;
    if (forward.codes_BT.defined()) codes_M = forward.codes_BT[0].to(at::kCPU, at::kInt);
    int64_t first = 0;
    for (size_t k = 0; k < indices.size(); ++k) {
      Prefilled& result = results[indices[k]];
      const auto T = int64_t(rows[k].tokens.size());
      result.logits = logits[k];
      if (codes_M.defined()) {
        const int32_t* codes = codes_M.data_ptr<int32_t>() + first;
        result.codes.assign(codes, codes + T);
      }
      first += T;
      result.sequence = next_sequence_++;
      caches_.emplace(result.sequence, std::move(fresh[k]));
    }
  }
  return results;
}

std::vector<std::vector<float>> TorchEngine::decode(std::span<const Decode> requests) {
  const torch::NoGradGuard no_grad;
  std::vector<Row> rows;
  const bool latent = config().latent.present();
  for (const Decode& request : requests) {
    const auto cache = caches_.find(request.sequence);
    FF_CHECK(cache != caches_.end());
    rows.push_back({std::span(&request.token, 1),
                    latent ? std::span(&request.code, 1) : std::span<const int32_t>(),
                    {},
                    &cache->second});
  }
  const Packed packed = pack(rows);
  const ForwardResult forward = model_->forward(packed.batch, packed.source);
  packed.attention->commit();
  return last_logits(forward.hidden_BTD[0], rows);
}

void TorchEngine::release(Sequence sequence) { caches_.erase(sequence); }

std::vector<std::vector<float>> TorchEngine::score(std::span<const Score> requests) {
  const torch::NoGradGuard no_grad;
  std::vector<Row> rows;
  std::vector<int64_t> targets;
  for (const Score& request : requests) {
    FF_CHECK(request.tokens.size() >= 2);
    rows.push_back({request.tokens.first(request.tokens.size() - 1), request.codes, {}, nullptr});
    for (const int32_t token : request.tokens.subspan(1)) {
      if (token < 0 || token >= config().vocab_size) {
        fail(ErrorCode::kInvalidArgument, "token {}, expected 0 to {}", token,
             config().vocab_size - 1);
      }
      targets.push_back(token);
    }
  }
  const Packed packed = pack(rows);
  const Tensor hidden_MD = model_->forward(packed.batch, packed.source).hidden_BTD[0];
  const Tensor targets_M = at::tensor(targets).to(hidden_MD.device());
  std::vector<float> scores;
  // Logits of all tokens at once may be larger than the model.
  const int64_t M = hidden_MD.size(0);
  const int64_t step = std::max<int64_t>(1, (int64_t{1} << 26) / config().vocab_size);
  for (int64_t first = 0; first < M; first += step) {
    const int64_t count = std::min(step, M - first);
    const Tensor log_p =
        model_->logits(hidden_MD.narrow(0, first, count)).to(at::kFloat).log_softmax(-1);
    const auto piece =
        to_floats(log_p.gather(1, targets_M.narrow(0, first, count).unsqueeze(1)).squeeze(1));
    scores.insert(scores.end(), piece.begin(), piece.end());
  }
  std::vector<std::vector<float>> results;
  auto at = scores.begin();
  for (const Row& row : rows) {
    results.emplace_back(at, at + int64_t(row.tokens.size()));
    at += int64_t(row.tokens.size());
  }
  return results;
}

std::vector<std::vector<float>> TorchEngine::encode(
    std::span<const std::span<const int32_t>> texts) {
  const torch::NoGradGuard no_grad;
  if (!config().latent.present()) {
    fail(ErrorCode::kInvalidArgument, "this model has no latent, so there is nothing to encode");
  }
  std::vector<Row> rows;
  for (const auto& text : texts) {
    FF_CHECK(!text.empty());
    rows.push_back({text, {}, {}, nullptr});
  }
  const std::vector<float> bit_logits = to_floats(model_->encode(pack(rows).batch)[0]);
  std::vector<std::vector<float>> results;
  auto at = bit_logits.begin();
  for (const auto& text : texts) {
    const int64_t count = int64_t(text.size()) * config().latent.bits;
    results.emplace_back(at, at + count);
    at += count;
  }
  return results;
}

std::unique_ptr<Engine> open_torch_engine(const std::string& folder, const std::string& device,
                                          const std::string& precision) {
  ops::prepare_torch();
  const Checkpoint checkpoint(folder);
  FreeTransformer model(checkpoint.config());
  load_weights(model, checkpoint);
  model->to(ops::parse_device(device), precision == "bf16" ? at::kBFloat16 : at::kFloat);
  model->eval();
  return std::make_unique<TorchEngine>(model);
}

}  // namespace freeformer
