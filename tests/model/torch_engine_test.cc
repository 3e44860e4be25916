#include "model/torch_engine.h"

#include <cmath>

#include "engine/bits.h"
#include "engine/generate.h"
#include "engine/likelihood.h"
#include "expect_error.h"
#include "kernels/parallel.h"
#include "ops/torch_runtime.h"
#include "random_values.h"
#include "temporary_folder.h"
#include "tensor_matchers.h"
#include "tiny_model.h"

namespace freeformer {
namespace {

ModelConfig engine_config(int bits) {
  ModelConfig config = tiny_config(bits);
  config.max_position_embeddings = 300;
  return config;
}

std::vector<int32_t> some_tokens(int64_t count, uint64_t seed) {
  std::vector<int32_t> tokens;
  for (const int64_t token : random_codes(count, 23, seed)) tokens.push_back(int32_t(token));
  return tokens;
}

std::vector<int32_t> some_codes(int64_t count, uint64_t seed) {
  std::vector<int32_t> codes;
  for (const int64_t code : random_codes(count, 1 << kTinyBits, seed))
    codes.push_back(int32_t(code));
  return codes;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

// Every latent policy, resolved.
std::vector<LatentPolicy> policies() {
  std::vector<LatentPolicy> all;
  for (const char* text : {"posterior", "map", "prior", "seed:7", "code:3,9,30", "code:5"}) {
    all.push_back(parse_latent_policy(text));
  }
  LatentPolicy from{LatentPolicy::Kind::kFrom, 0, some_codes(40, 8), "x"};
  all.push_back(from);
  return all;
}

GenerateRequest request(int64_t prompt_length, uint64_t seed, const LatentPolicy& z, int64_t n) {
  GenerateRequest r;
  r.prompt = some_tokens(prompt_length, seed);
  r.max_tokens = n;
  r.z = z;
  r.sequence = seed;
  r.sampling.seed = seed + 1;
  r.sampling.repeat_penalty = 1.1;
  r.logprobs = 3;
  return r;
}

std::vector<int32_t> tokens_of(const GenerateResult& result) {
  std::vector<int32_t> tokens;
  for (const GeneratedToken& token : result.tokens) tokens.push_back(token.sampled.token);
  return tokens;
}

void expect_same_generation(const GenerateResult& a, const GenerateResult& b) {
  EXPECT_EQ(a.prompt_codes, b.prompt_codes);
  ASSERT_EQ(tokens_of(a), tokens_of(b));
  for (size_t i = 0; i < a.tokens.size(); ++i) {
    EXPECT_EQ(a.tokens[i].code, b.tokens[i].code);
    ASSERT_NEAR(a.tokens[i].sampled.log_probability, b.tokens[i].sampled.log_probability, 1e-5);
  }
}

TEST(TorchEngine, OneSequenceAloneAndInABatchOfNineAreTheSame) {
  for (const int bits : {0, kTinyBits}) {
    FreeTransformer model = tiny_model(engine_config(bits));
    TorchEngine engine(model);
    std::vector<GenerateRequest> requests;
    const auto all = policies();
    for (uint64_t i = 0; i < 9; ++i) {
      requests.push_back(
          request(1 + int64_t(i * i), i, bits == 0 ? LatentPolicy() : all[i % 7], 20 + int64_t(i)));
    }
    const auto together = generate(engine, nullptr, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_same_generation(generate(engine, nullptr, {&requests[i], 1})[0], together[i]);
    }
    EXPECT_EQ(engine.open_sequences(), 0);
  }
}

TEST(TorchEngine, WithAndWithoutCacheTheSameTextForEveryPolicy) {
  FreeTransformer model = tiny_model(engine_config(kTinyBits));
  TorchEngine engine(model);
  for (const LatentPolicy& policy : policies()) {
    std::vector<GenerateRequest> requests = {request(9, 4, policy, 200),
                                             request(9, 4, policy, 200)};
    requests[1].use_cache = false;
    const auto results = generate(engine, nullptr, requests);
    ASSERT_EQ(results[0].tokens.size(), 200u) << to_text(policy);
    expect_same_generation(results[0], results[1]);
  }
  FreeTransformer plain = tiny_model(engine_config(0));
  TorchEngine plain_engine(plain);
  std::vector<GenerateRequest> requests = {request(9, 4, {}, 200), request(9, 4, {}, 200)};
  requests[1].use_cache = false;
  const auto results = generate(plain_engine, nullptr, requests);
  expect_same_generation(results[0], results[1]);
}

TEST(TorchEngine, OneAndTwoThreadsGiveTheSameText) {
  FreeTransformer model = tiny_model(engine_config(kTinyBits));
  TorchEngine engine(model);
  const std::vector<GenerateRequest> requests = {request(12, 4, {}, 60)};
  const int before = kernels::thread_count();
  std::vector<GenerateResult> results;
  for (const int threads : {1, 2}) {
    kernels::set_thread_count(threads);
    ops::prepare_torch();
    results.push_back(generate(engine, nullptr, requests)[0]);
  }
  kernels::set_thread_count(before);
  ops::prepare_torch();
  expect_same_generation(results[0], results[1]);
}

TEST(TorchEngine, PrefillIsTheModelsForward) {
  FreeTransformer model = tiny_model(engine_config(kTinyBits));
  TorchEngine engine(model);
  const auto tokens = some_tokens(11, 3);
  const Tensor tokens_BT =
      at::tensor(std::vector<int64_t>(tokens.begin(), tokens.end())).view({1, 11});
  const Tensor uniforms = ops::latent_uniforms(6, {2}, 0, 11, kTinyBits);
  const torch::NoGradGuard no_grad;
  const ForwardResult forward = model->forward({tokens_BT}, LatentSource::posterior(uniforms));
  const std::vector<float> flat(uniforms.data_ptr<float>(),
                                uniforms.data_ptr<float>() + uniforms.numel());
  const std::vector<Engine::Prefill> requests = {{tokens, {}, flat}};
  const auto prefilled = engine.prefill(requests);
  const Tensor codes = forward.codes_BT[0].to(at::kInt);
  EXPECT_EQ(prefilled[0].codes,
            std::vector<int32_t>(codes.data_ptr<int32_t>(), codes.data_ptr<int32_t>() + 11));
  const Tensor logits = model->logits(forward.hidden_BTD)[0][10].contiguous();
  expect_near(prefilled[0].logits,
              {logits.data_ptr<float>(), logits.data_ptr<float>() + logits.numel()}, 1e-5);
  engine.release(prefilled[0].sequence);
}

TEST(TorchEngine, ScoreIsTheLossOfEachToken) {
  for (const int bits : {0, kTinyBits}) {
    FreeTransformer model = tiny_model(engine_config(bits));
    TorchEngine engine(model);
    // Two of different length in one call, each against the model alone.
    const std::vector<std::vector<int32_t>> texts = {some_tokens(9, 1), some_tokens(5, 2)};
    const std::vector<std::vector<int32_t>> codes = {some_codes(8, 3), some_codes(4, 4)};
    std::vector<Engine::Score> requests;
    for (size_t i = 0; i < 2; ++i) {
      requests.push_back({texts[i], bits == 0 ? std::span<const int32_t>() : codes[i]});
    }
    const auto scores = engine.score(requests);
    for (size_t i = 0; i < 2; ++i) {
      const auto T = int64_t(texts[i].size()) - 1;
      const Tensor tokens =
          at::tensor(std::vector<int64_t>(texts[i].begin(), texts[i].end())).view({1, T + 1});
      const Tensor given =
          at::tensor(std::vector<int64_t>(codes[i].begin(), codes[i].end())).view({1, T});
      const torch::NoGradGuard no_grad;
      const Loss loss = model->loss({tokens.narrow(1, 0, T)}, tokens.narrow(1, 1, T),
                                    bits == 0 ? LatentSource() : LatentSource::given(given));
      const Tensor log_p = loss.nll_BT[0].neg().contiguous();
      expect_near(scores[i], {log_p.data_ptr<float>(), log_p.data_ptr<float>() + T}, 1e-5);
    }
  }
}

TEST(TorchEngine, EncodeIsTheEncodersLogits) {
  FreeTransformer model = tiny_model(engine_config(kTinyBits));
  TorchEngine engine(model);
  const auto a = some_tokens(7, 1), b = some_tokens(3, 2);
  const std::vector<std::span<const int32_t>> both = {a, b}, only_b = {b};
  const auto together = engine.encode(both);
  expect_near(together[1], engine.encode(only_b)[0], 1e-5);
  const Tensor tokens = at::tensor(std::vector<int64_t>(a.begin(), a.end())).view({1, 7});
  const torch::NoGradGuard no_grad;
  const Tensor logits =
      model->forward({tokens}, LatentSource::posterior(at::full({1, 7, kTinyBits}, 0.5f)))
          .bit_logits_BTZ.contiguous();
  expect_near(together[0], {logits.data_ptr<float>(), logits.data_ptr<float>() + 7 * kTinyBits},
              1e-5);
}

TEST(TorchEngine, RefusesTokensAndCodesOutsideTheModel) {
  FreeTransformer model = tiny_model(engine_config(kTinyBits));
  TorchEngine engine(model);
  const std::vector<Engine::Prefill> bad_token = {{{1, 23}, {0, 0}, {}}};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "token 23, expected 0 to 22",
                          engine.prefill(bad_token));
  const std::vector<Engine::Prefill> bad_code = {{{1, 2}, {0, 32}, {}}};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "expected 0 to 31",
                          engine.prefill(bad_code));
  EXPECT_EQ(engine.open_sequences(), 0);
  const std::vector<int32_t> text = {1, 40};
  const std::vector<int32_t> codes = {1};
  const std::vector<Engine::Score> bad_target = {{text, codes}};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "token 40", engine.score(bad_target));
}

// P(S) = Σ_z P(z) P(S|z) over all 4^4 codes.
double exact_nll(Engine& engine, const std::vector<int32_t>& tokens) {
  double sum = 0;
  std::vector<std::vector<int32_t>> all;
  for (int32_t z = 0; z < 256; ++z) all.push_back({z & 3, z >> 2 & 3, z >> 4 & 3, z >> 6});
  std::vector<Engine::Score> requests;
  for (const auto& codes : all) requests.push_back({tokens, codes});
  for (const auto& scores : engine.score(requests)) {
    double log_p = 0;
    for (const float score : scores) log_p += score;
    sum += std::exp(log_p) / 256;
  }
  return -std::log(sum);
}

TEST(TorchEngine, BoundsConvergeToTheEnumeratedLikelihoodFromAbove) {
  ModelConfig config = engine_config(2);
  FreeTransformer model = tiny_model(config, 5);
  TorchEngine engine(model);
  const std::vector<int32_t> text = {3, 14, 1, 5, 9};  // four codes, four predictions
  const double exact = exact_nll(engine, text) / 4;
  // The same text 300 times, each with draws of its own: the mean over draws, and its error.
  const std::vector<std::vector<int32_t>> copies(300, text);
  const auto bound = [&](int64_t K) {
    LikelihoodSettings settings;
    settings.iwae_samples = K;
    return *measure_likelihood(engine, copies, settings);
  };
  const Likelihood one = bound(1), four = bound(4), many = bound(64);
  const auto error = [](const Estimate& e) { return 3 * e.standard_error + 1e-6; };
  EXPECT_GT(one.elbo.mean, exact);
  EXPECT_GT(one.elbo.mean - exact, 0.01) << "the bound is tight by itself: nothing is tested";
  EXPECT_GE(one.prior_ce->mean, exact - error(*one.prior_ce));
  EXPECT_NEAR(one.iwae->mean, one.elbo.mean, error(*one.iwae) + error(one.elbo));
  EXPECT_GT(one.iwae->mean, four.iwae->mean);
  EXPECT_GT(four.iwae->mean, many.iwae->mean);
  EXPECT_GE(many.iwae->mean, exact - error(*many.iwae));
  EXPECT_NEAR(many.iwae->mean, exact, 0.005);
}

TEST(TorchEngine, TheScoreOfACompletionDoesNotLeakThroughTheEncoder) {
  // An encoder that saw the completion would give the prompt other codes. By hand: codes of the
  // prompt from the prompt alone, the rest from the prior; for completions that differ.
  FreeTransformer model = tiny_model(engine_config(kTinyBits), 5);
  TorchEngine engine(model);
  const auto prompt = some_tokens(6, 1);
  const std::vector<std::span<const int32_t>> texts = {prompt};
  const std::vector<float> logits = engine.encode(texts)[0];
  const RandomSource source(9, RandomStream::kLatent);
  std::vector<int32_t> codes;
  std::vector<float> uniforms(kTinyBits);
  const std::vector<float> flat(kTinyBits, 0.0f);
  for (size_t t = 0; t < 8; ++t) {
    source.uniforms(0, uint32_t(t), kTinyBits, uniforms.data());
    codes.push_back(draw_code(
        t < 6 ? std::span(logits).subspan(t * kTinyBits, kTinyBits) : std::span(flat), uniforms));
  }
  for (const std::vector<int32_t>& completion : {std::vector<int32_t>{4, 7, 12}, {4, 20, 1}}) {
    std::vector<int32_t> tokens = prompt;
    tokens.insert(tokens.end(), completion.begin(), completion.end());
    const std::vector<Engine::Score> scored = {{tokens, codes}};
    const std::vector<float> by_hand = engine.score(scored)[0];
    EXPECT_NEAR(score_completion(engine, prompt, completion, 1, 9, 0),
                double(by_hand[5]) + by_hand[6] + by_hand[7], 1e-4);
    // The encoder run on everything would have said something else of the prompt.
    const std::vector<std::span<const int32_t>> whole = {tokens};
    const std::vector<float> leaked = engine.encode(whole)[0];
    EXPECT_FALSE(std::equal(logits.begin(), logits.end(), leaked.begin()));
  }
}

TEST(TorchEngine, OpensACheckpointInEitherPrecision) {
  const TemporaryFolder folder;
  FreeTransformer model = tiny_model(engine_config(kTinyBits));
  save_weights(model, folder.path());
  const auto fp32 = open_torch_engine(folder.path().string(), "cpu", "fp32");
  const auto bf16 = open_torch_engine(folder.path().string(), "cpu", "bf16");
  const auto tokens = some_tokens(6, 1);
  const auto codes = some_codes(5, 2);
  const std::vector<Engine::Score> requests = {{tokens, codes}};
  const auto exact = fp32->score(requests)[0], rounded = bf16->score(requests)[0];
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(exact[i], rounded[i], 0.3);
  EXPECT_NE(exact, rounded);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "not one of this LibTorch's",
                          open_torch_engine(folder.path().string(), "tpu", "fp32"));
}

}  // namespace
}  // namespace freeformer
