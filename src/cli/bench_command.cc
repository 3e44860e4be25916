#include <unistd.h>

#include <chrono>
#include <cmath>
#include <functional>

#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/load_plugin.h"
#include "core/bfloat16.h"
#include "core/error.h"
#include "core/json.h"
#include "core/median.h"
#include "core/philox.h"
#include "core/shape.h"
#include "kernels/cpu.h"
#include "kernels/gemm.h"
#include "kernels/mapper.h"
#include "kernels/parallel.h"

namespace freeformer::cli {
namespace {

// Median seconds of `work`: at least `repeats` times, after one run to warm up.
double median_seconds(int repeats, const std::function<void()>& work) {
  work();
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return median(std::move(seconds));
}

std::vector<float> random_floats(int64_t count, float scale, uint64_t tensor) {
  std::vector<float> values(static_cast<size_t>(count));
  const RandomSource source(1, RandomStream::kData);
  for (int64_t i = 0; i < count; i += 4) {
    const PhiloxBlock block = source.block(tensor, uint32_t(i / 4), 0);
    for (int64_t j = i; j < std::min(count, i + 4); ++j) {
      values[size_t(j)] = scale * (2 * unit_float(block[size_t(j - i)]) - 1);
    }
  }
  return values;
}

std::vector<BFloat16> narrowed(const std::vector<float>& values) {
  std::vector<BFloat16> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(), to_bfloat16);
  return result;
}

struct MapperCase {
  int bits = 16;
  int64_t dim = 512, tokens = 4096;
  bool bf16 = true;
  int repeats = 3;
};

struct MapperTimes {
  double backward = 0;        // seconds, gradient of the bit logits
  double table_gradient = 0;  // seconds, rows of the table
  double gemm_f32 = 0;
  double gemm_bf16 = 0;  // 0 where it was not asked
  int64_t workspace_bytes = 0;

  // The fastest that there is for the product that cannot be avoided.
  double gemm() const { return gemm_bf16 > 0 ? std::min(gemm_f32, gemm_bf16) : gemm_f32; }
};

// One GEMM [tokens, dim] x [dim, codes]: the work that the exact gradient cannot do without. The
// faster of oneDNN's and ours.
template <typename T>
double time_gemm(const MapperCase& c, const T* grad, const T* table, kernels::GemmType type) {
  const int64_t C = code_count(c.bits);
  const kernels::GemmTile gemm(
      {.M = c.tokens, .N = C, .K = c.dim, .transpose_b = true, .in = type});
  std::vector<float> out(size_t(c.tokens * C));
  const kernels::GemmShape shape{.M = c.tokens, .N = C, .K = c.dim, .transpose_b = true};
  return std::min(
      median_seconds(c.repeats, [&] { gemm.run(grad, table, out.data()); }),
      median_seconds(c.repeats, [&] { kernels::gemm(shape, grad, table, out.data()); }));
}

// The GEMM beside us stores all of [tokens, codes].
void check_memory(const MapperCase& c) {
  const int64_t C = code_count(c.bits);
  const auto needed = uint64_t(4 * c.tokens * C + 6 * C * c.dim + 8 * c.tokens * c.dim);
  const auto present = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGE_SIZE));
  if (needed > present / 2) {
    fail(ErrorCode::kCapacity,
         "{} bits with {} tokens of {} need {}, expected at most {}: give "
         "fewer --tokens",
         c.bits, c.tokens, c.dim, byte_count(needed), byte_count(present / 2));
  }
}

MapperTimes measure_mapper(const MapperCase& c) {
  const int64_t C = code_count(c.bits);
  const auto table = random_floats(C * c.dim, 0.02f, 0);
  const auto grad = random_floats(c.tokens * c.dim, 0.01f, 1);
  const auto logits = random_floats(c.tokens * c.bits, 2.0f, 2);
  std::vector<float> d_logits(logits.size());
  std::vector<int64_t> codes(size_t(c.tokens)), rows(codes.size());
  const RandomSource source(1, RandomStream::kLatent);
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = int64_t(source.block(i, 0, 0)[0]) & (C - 1);
  }
  MapperTimes times;
  if (c.bf16) {
    const auto table16 = narrowed(table), grad16 = narrowed(grad);
    std::vector<BFloat16> values(grad16.size());
    times.backward = median_seconds(c.repeats, [&] {
      times.workspace_bytes = kernels::mapper_backward_logits(
          logits.data(), table16.data(), grad16.data(), c.tokens, c.dim, c.bits, d_logits.data());
    });
    times.table_gradient = median_seconds(c.repeats, [&] {
      kernels::mapper_backward_table(codes.data(), grad16.data(), c.tokens, c.dim, rows.data(),
                                     values.data());
    });
    times.gemm_bf16 = time_gemm(c, grad16.data(), table16.data(), kernels::GemmType::kBF16);
  } else {
    std::vector<float> values(grad.size());
    times.backward = median_seconds(c.repeats, [&] {
      times.workspace_bytes = kernels::mapper_backward_logits(
          logits.data(), table.data(), grad.data(), c.tokens, c.dim, c.bits, d_logits.data());
    });
    times.table_gradient = median_seconds(c.repeats, [&] {
      kernels::mapper_backward_table(codes.data(), grad.data(), c.tokens, c.dim, rows.data(),
                                     values.data());
    });
  }
  times.gemm_f32 = time_gemm(c, grad.data(), table.data(), kernels::GemmType::kF32);
  return times;
}

int bench_mapper(const std::vector<std::string>& arguments) {
  CommandLine command(
      "The binary mapper's backward pass (exact gradient of the bit logits) beside one GEMM of "
      "the\n"
      "same size, [tokens, dim] x [dim, 2^bits], measured in the same run; medians. The GEMM is\n"
      "the faster of oneDNN's and ours and, with a bf16 table, of bf16 and fp32 on this "
      "machine.\n\n"
      "examples:\n"
      "  freeformer bench mapper\n"
      "  freeformer bench mapper --bits 16 --dim 1536 --tokens 2048 --json\n",
      "bench mapper");
  MapperCase c;
  std::vector<int> bits = {8, 12, 16};
  std::string dtype = "bf16";
  bool json = false;
  command.add_option("--bits", bits, "latent bits, one or several (default 8 12 16)")
      .range(1, kMaxLatentBits);
  command.add_option("--dim", c.dim, "model dimension (default 512)").range(1, 65536);
  command.add_option("--tokens", c.tokens, "tokens (default 4096)").range(1, 1 << 20);
  command.add_option("--dtype", dtype, "of table and gradient: bf16 or fp32 (default bf16)")
      .choices({"bf16", "fp32"});
  command.add_option("--repeats", c.repeats, "runs of each, after a warm-up (default 3)")
      .range(1, 1000);
  command.add_flag("--json", json, "one JSON object per line");
  int status = kDone;
  if (!command.parse(arguments, status)) return status;
  c.bf16 = dtype == "bf16";

  if (!json) {
    fmt::print("{}, {} threads, kernels {}, {}\n\n", kernels::cpu_model(), kernels::thread_count(),
               kernels::active_isa(), kernels::gemm_library());
    fmt::print(
        "| bits | tokens | dim | table | backward ms | GEMM bf16 ms | GEMM fp32 ms | ratio to "
        "GEMM | table rows ms | extra memory |\n|---|---|---|---|---|---|---|---|---|---|\n");
  }
  for (const int b : bits) {
    c.bits = b;
    check_memory(c);
    const MapperTimes times = measure_mapper(c);
    const double ratio = times.backward / times.gemm();
    if (json) {
      OrderedJson line = {{"bench", "mapper"},
                          {"bits", b},
                          {"tokens", c.tokens},
                          {"dim", c.dim},
                          {"dtype", dtype},
                          {"threads", kernels::thread_count()},
                          {"isa", kernels::active_isa()},
                          {"backward_seconds", times.backward},
                          {"table_gradient_seconds", times.table_gradient},
                          {"gemm_fp32_seconds", times.gemm_f32},
                          {"ratio_to_gemm", ratio},
                          {"workspace_bytes", times.workspace_bytes}};
      if (c.bf16) line["gemm_bf16_seconds"] = times.gemm_bf16;
      fmt::print("{}\n", to_text(line));
    } else {
      fmt::print("| {} | {} | {} | {} | {:.1f} | {} | {:.1f} | {:.2f} | {:.1f} | {} |\n", b,
                 c.tokens, c.dim, dtype, 1e3 * times.backward,
                 c.bf16 ? fmt::format("{:.1f}", 1e3 * times.gemm_bf16) : "–", 1e3 * times.gemm_f32,
                 ratio, 1e3 * times.table_gradient, byte_count(uint64_t(times.workspace_bytes)));
    }
    std::fflush(stdout);
  }
  return kDone;
}

struct TrainBenchOptions {
  std::string config;
  ModelConfig model;
  std::vector<int> bits = {0, 12, 16};
  std::vector<std::string> precisions = {"bf16", "fp32"};
  TrainBenchRequest request;
  bool beside_plain = false, aten = false, json = false;
};

OrderedJson to_json(const TrainBenchRequest& request, const TrainBenchResult& result) {
  OrderedJson json = {{"bench", "train"},
                      {"cpu", kernels::cpu_model()},
                      {"threads", kernels::thread_count()},
                      {"isa", kernels::active_isa()},
                      {"bits", request.model.latent.bits},
                      {"precision", request.precision},
                      {"kernels", request.kernels},
                      {"recompute", request.recompute},
                      {"gradient_group", request.gradient_group},
                      {"context", request.context},
                      {"rows", request.rows},
                      {"step_seconds", result.step_seconds},
                      {"median_seconds", result.median_seconds},
                      {"tokens_per_second", result.tokens_per_second},
                      {"flops_per_token", result.flops_per_token},
                      {"gemm_flops_per_second", result.gemm_rate},
                      {"gemm_burst_flops_per_second", result.gemm_burst},
                      {"share_of_gemm_limit", result.share_of_gemm_limit},
                      {"peak_bytes", result.peak_bytes}};
  if (request.beside_plain) {
    json["plain_step_seconds"] = result.plain_step_seconds;
    json["of_plain"] = result.of_plain;
  }
  for (const TrainBenchPart& part : result.parts) {
    json["parts"].push_back(
        {{"name", part.name}, {"seconds", part.seconds}, {"calls", part.calls}});
  }
  json["model"] = OrderedJson::parse(write_model_config(request.model));
  return json;
}

void print_parts(const TrainBenchRequest& request, const TrainBenchResult& result) {
  fmt::print(
      "\ntime by part, {} bits, {}:\n\n| part | ms a step | share | calls |\n|---|---|---|---|\n",
      request.model.latent.bits, request.precision);
  double mean = 0;
  for (const double seconds : result.step_seconds) mean += seconds;
  mean /= double(result.step_seconds.size());
  for (const TrainBenchPart& part : result.parts) {
    fmt::print("| {} | {:.1f} | {:.1f} % | {} |\n", part.name, 1e3 * part.seconds,
               100 * part.seconds / mean, part.calls);
  }
}

ModelConfig with_bits(ModelConfig model, int bits) {
  model.latent = {};
  if (bits > 0) model.latent = {LatentKind::kBinary, bits, 0.5};
  return model;
}

int bench_train(const std::vector<std::string>& arguments) {
  CommandLine command(
      "Whole training steps on random tokens: the plain decoder and Free Transformers of the same\n"
      "shape. GFLOPS count the matrix products a token needs (6 a weight, causal attention by "
      "half,\n"
      "the encoder, 2·D·2^bits for the exact gradient of the codes); the limit is what large\n"
      "GEMMs sustain between the steps. Peak memory is the process's: of several cases, the "
      "largest\n"
      "so far.\n\n"
      "examples:\n"
      "  freeformer bench train\n"
      "  freeformer bench train --bits 0 16 --precision bf16 --context 4096 --rows 1 --json\n"
      "  freeformer bench train --model config.json --recompute\n",
      "bench train");
  TrainBenchOptions o;
  ModelConfig& m = o.model;
  m.hidden_size = 512;
  m.intermediate_size = 0;
  m.num_hidden_layers = 8;
  m.num_attention_heads = 8;
  m.num_key_value_heads = 2;
  m.head_dim = 0;
  m.vocab_size = 8192;
  m.tie_word_embeddings = true;
  command
      .add_option("--model", o.config, "a config.json for the shape, instead of the options below")
      .type_name("FILE");
  command.add_option("--dim", m.hidden_size, "D (default 512)").range(1, 65536);
  command.add_option("--mlp", m.intermediate_size, "F (default 2.75 D)").range(1, 1 << 20);
  command.add_option("--layers", m.num_hidden_layers, "L (default 8)").range(1, 1024);
  command.add_option("--heads", m.num_attention_heads, "N (default 8)").range(1, 1024);
  command.add_option("--kv-heads", m.num_key_value_heads, "K (default 2)").range(1, 1024);
  command.add_option("--vocab", m.vocab_size, "V (default 8192)").range(2, 1 << 24);
  command.add_option("--bits", o.bits, "latent bits, one or several; 0: plain (default 0 12 16)")
      .range(0, kMaxLatentBits);
  command.add_option("--precision", o.precisions, "fp32, bf16 or both (default bf16 fp32)")
      .choices({"fp32", "bf16"});
  command.add_option("--context", o.request.context, "T (default 512)").range(1, 1 << 20);
  command.add_option("--rows", o.request.rows, "sequences of a step (default 8)").range(1, 1 << 16);
  command.add_option("--repeats", o.request.repeats, "steps to measure, after two (default 5)")
      .range(1, 1000);
  command.add_option("--device", o.request.device, "a LibTorch device (default cpu)");
  command
      .add_option("--gradient-group", o.request.gradient_group,
                  "the codes' gradient from one token in so many, as latent.gradient=sampled "
                  "(default 1: exact)")
      .range(1, 65536);
  command.add_flag("--recompute", o.request.recompute, "keep only the blocks' inputs");
  command.add_flag("--beside-plain", o.beside_plain,
                   "a step of the plain decoder before and after each step of a Free one: a "
                   "ratio that depends less on the machine's mood; peak memory is of both");
  command.add_flag("--aten", o.aten, "LibTorch's operations instead of our kernels");
  command.add_flag("--json", o.json, "one JSON object per line, with the time of every part");
  int status = kDone;
  if (!command.parse(arguments, status)) return status;
  if (!o.config.empty()) {
    for (const char* option : {"--dim", "--mlp", "--layers", "--heads", "--kv-heads", "--vocab"}) {
      if (command.given(option)) {
        fail(ErrorCode::kInvalidArgument, "{} has no effect with --model", option);
      }
    }
    m = read_model_config(o.config);
    if (!command.given("--bits")) o.bits = {m.latent.bits};
  } else {
    if (m.intermediate_size == 0) {
      m.intermediate_size = std::max<int64_t>(m.hidden_size * 11 / 4 / 64, 1) * 64;
    }
    m.head_dim = m.hidden_size / m.num_attention_heads;
  }
  m.max_position_embeddings = std::max(m.max_position_embeddings, o.request.context);
  o.request.kernels = !o.aten;
  for (const int bits : o.bits) validate(with_bits(m, bits), "the benchmark's model");
  if (o.beside_plain && std::all_of(o.bits.begin(), o.bits.end(), [](int b) { return b == 0; })) {
    fail(ErrorCode::kInvalidArgument, "--beside-plain has no effect: --bits is 0, a plain decoder");
  }
  if (!o.json) {
    fmt::print("{}, {} threads, kernels {}, {}, bf16 products {}\n", kernels::cpu_model(),
               kernels::thread_count(), o.aten ? "off" : kernels::active_isa(),
               kernels::gemm_library(),
               kernels::has_native_bf16() ? "in hardware" : "widened to fp32");
    fmt::print("D={} F={} L={} N={} K={} V={} T={} B={}{}\n\n", m.hidden_size, m.intermediate_size,
               m.num_hidden_layers, m.num_attention_heads, m.num_key_value_heads, m.vocab_size,
               o.request.context, o.request.rows, o.request.recompute ? " recompute" : "");
    fmt::print(
        "| bits | precision | tokens/s | of plain | ms a step | GFLOPS | GEMM GFLOPS | of the "
        "limit | peak memory |\n|---|---|---|---|---|---|---|---|---|\n");
  }
  std::vector<std::pair<TrainBenchRequest, TrainBenchResult>> results;
  for (const std::string& precision : o.precisions) {
    double plain = 0;
    for (const int bits : o.bits) {
      TrainBenchRequest request = o.request;
      request.precision = precision;
      request.model = with_bits(m, bits);
      request.beside_plain = o.beside_plain && bits > 0;
      const TrainBenchResult result = torch_plugin().bench_train(request);
      results.emplace_back(request, result);
      if (bits == 0) plain = result.tokens_per_second;
      double of_plain = plain > 0 ? result.tokens_per_second / plain : 0;
      if (request.beside_plain) of_plain = median(result.of_plain);
      if (o.json) {
        fmt::print("{}\n", to_text(to_json(request, result)));
      } else {
        fmt::print(
            "| {} | {} | {:.0f} | {} | {:.0f} | {:.0f} | {:.0f} | {:.1f} % | {} |\n", bits,
            precision, result.tokens_per_second,
            of_plain > 0 ? fmt::format("{:.3f}", of_plain) : "–", 1e3 * result.median_seconds,
            1e-9 * result.tokens_per_second * result.flops_per_token, 1e-9 * result.gemm_rate,
            100 * result.share_of_gemm_limit, byte_count(uint64_t(result.peak_bytes)));
      }
      std::fflush(stdout);
    }
  }
  if (!o.json) {
    for (const auto& [request, result] : results) print_parts(request, result);
  }
  return kDone;
}

}  // namespace

int run_bench(const std::vector<std::string>& arguments) {
  constexpr const char* kUsage =
      "usage: freeformer bench WHAT [options]\n\n"
      "  train       training steps, plain and Free: speed, share of the GEMM limit, memory, "
      "parts\n"
      "  mapper      the binary mapper's backward pass beside a GEMM of the same size\n\n"
      "freeformer bench WHAT --help tells more.\n";
  if (!arguments.empty() && arguments[0] == "train") {
    return bench_train({arguments.begin() + 1, arguments.end()});
  }
  if (!arguments.empty() && arguments[0] == "mapper") {
    return bench_mapper({arguments.begin() + 1, arguments.end()});
  }
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    fmt::print("{}", kUsage);
    return kDone;
  }
  fail(ErrorCode::kInvalidArgument, "{}, expected: train or mapper",
       arguments.empty() ? "nothing to measure" : "unknown benchmark '" + arguments[0] + "'");
}

}  // namespace freeformer::cli
