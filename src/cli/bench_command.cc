#include <unistd.h>

#include <chrono>
#include <cmath>
#include <functional>

#include "cli/cli11.h"
#include "cli/command.h"
#include "core/bfloat16.h"
#include "core/error.h"
#include "core/json.h"
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
  std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
  return seconds[size_t(repeats / 2)];
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

  // The machine's best at the product that cannot be avoided.
  double gemm() const { return gemm_bf16 > 0 ? std::min(gemm_f32, gemm_bf16) : gemm_f32; }
};

// One GEMM [tokens, dim] x [dim, codes]: the work that the exact gradient cannot do without.
template <typename T>
double time_gemm(const MapperCase& c, const T* grad, const T* table, kernels::GemmType type) {
  const int64_t C = code_count(c.bits);
  const kernels::GemmTile gemm(
      {.M = c.tokens, .N = C, .K = c.dim, .transpose_b = true, .in = type});
  std::vector<float> out(size_t(c.tokens * C));
  return median_seconds(c.repeats, [&] { gemm.run(grad, table, out.data()); });
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
  CLI::App app(
      "The binary mapper's backward pass (exact gradient of the bit logits) beside one GEMM of "
      "the\n"
      "same size, [tokens, dim] x [dim, 2^bits], measured in the same run; medians. With a bf16\n"
      "table the GEMM is the faster of bf16 and fp32 on this machine.\n\n"
      "examples:\n"
      "  freeformer bench mapper\n"
      "  freeformer bench mapper --bits 16 --dim 1536 --tokens 2048 --json\n",
      "bench mapper");
  MapperCase c;
  std::vector<int> bits = {8, 12, 16};
  std::string dtype = "bf16";
  bool json = false;
  app.add_option("--bits", bits, "latent bits, one or several (default 8 12 16)")
      ->check(CLI::Range(1, kMaxLatentBits));
  app.add_option("--dim", c.dim, "model dimension (default 512)")->check(CLI::Range(1, 65536));
  app.add_option("--tokens", c.tokens, "tokens (default 4096)")->check(CLI::Range(1, 1 << 20));
  app.add_option("--dtype", dtype, "of table and gradient: bf16 or fp32 (default bf16)")
      ->check(CLI::IsMember({"bf16", "fp32"}));
  app.add_option("--repeats", c.repeats, "runs of each, after a warm-up (default 3)")
      ->check(CLI::Range(1, 1000));
  app.add_flag("--json", json, "one JSON object per line");
  int status = kDone;
  if (!parse(app, arguments, status)) return status;
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

}  // namespace

int run_bench(const std::vector<std::string>& arguments) {
  constexpr const char* kUsage =
      "usage: freeformer bench WHAT [options]\n\n"
      "  mapper      the binary mapper's backward pass beside a GEMM of the same size\n\n"
      "freeformer bench WHAT --help tells more.\n";
  if (!arguments.empty() && arguments[0] == "mapper") {
    return bench_mapper({arguments.begin() + 1, arguments.end()});
  }
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    fmt::print("{}", kUsage);
    return kDone;
  }
  fail(ErrorCode::kInvalidArgument, "{}, expected: mapper",
       arguments.empty() ? "nothing to measure" : "unknown benchmark '" + arguments[0] + "'");
}

}  // namespace freeformer::cli
