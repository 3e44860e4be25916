// freeformer bench train, on shapes that take milliseconds.
#include <cmath>
#include <set>
#include <sstream>
#include <vector>

#include "core/json.h"
#include "program_run.h"

namespace freeformer {
namespace {

using testing::HasSubstr;

#if FREEFORMER_HAS_TORCH

const std::string kTiny =
    "bench train --dim 32 --mlp 48 --layers 2 --heads 4 --kv-heads 2 --vocab 50 --context 24 "
    "--rows 2 --repeats 2 ";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(BenchTrain, PrintsOneRowPerBitsAndPrecisionAndATableOfPartsForEach) {
  const Outcome outcome = run(kTiny + "--bits 0 3 --precision bf16 fp32");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::vector<std::string> rows, parts;
  for (const std::string& line : lines_of(outcome.out)) {
    for (const char* begin : {"| 0 | bf16 |", "| 3 | bf16 |", "| 0 | fp32 |", "| 3 | fp32 |"}) {
      if (line.starts_with(begin)) rows.push_back(begin);
    }
    if (line.starts_with("time by part")) parts.push_back(line);
  }
  EXPECT_EQ(rows, (std::vector<std::string>{"| 0 | bf16 |", "| 3 | bf16 |", "| 0 | fp32 |",
                                            "| 3 | fp32 |"}));
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_THAT(parts[3], HasSubstr("3 bits, fp32"));
  EXPECT_THAT(outcome.out, HasSubstr("D=32 F=48 L=2 N=4 K=2 V=50 T=24 B=2"));
}

TEST(BenchTrain, JsonHasPartsThatSumToTheStep) {
  const Outcome outcome = run(kTiny + "--bits 0 3 --precision fp32 --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2u);
  for (const std::string& text : lines) {
    const Json line = Json::parse(text);
    EXPECT_EQ(line["bench"], "train");
    EXPECT_EQ(line["precision"], "fp32");
    const auto seconds = line["step_seconds"].get<std::vector<double>>();
    ASSERT_EQ(seconds.size(), 2u);
    double mean = 0, sum = 0, previous = 1e9;
    for (const double one : seconds) mean += one / 2;
    std::set<std::string> names;
    for (const Json& part : line["parts"]) {
      sum += part["seconds"].get<double>();
      EXPECT_LE(part["seconds"].get<double>(), previous) << "longest first";
      previous = part["seconds"].get<double>();
      names.insert(part["name"].get<std::string>());
    }
    EXPECT_NEAR(sum, mean, 0.02 * mean);
    for (const char* name : {"linear", "linear backward", "attention", "attention backward", "norm",
                             "rope", "swiglu", "embedding", "AdamW", "data", "other"}) {
      EXPECT_TRUE(names.contains(name)) << name;
    }
    EXPECT_EQ(names.contains("binary mapper"), line["bits"] == 3);
    const double median = line["median_seconds"].get<double>();
    EXPECT_GT(median, 0);
    EXPECT_NEAR(line["tokens_per_second"].get<double>() * median, 48, 1e-6);
    EXPECT_GT(line["gemm_flops_per_second"].get<double>(), 1e6);
    EXPECT_GT(line["peak_bytes"].get<int64_t>(), 1 << 20);
    EXPECT_EQ(line["model"]["hidden_size"], 32);
  }
}

TEST(BenchTrain, BesidePlainEveryFreeStepStandsBetweenTwoPlainOnes) {
  for (const std::string kernels : {"", "--aten "}) {
    const Outcome outcome =
        run(kTiny + "--bits 0 3 --precision fp32 --beside-plain --json " + kernels);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const auto lines = lines_of(outcome.out);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_FALSE(Json::parse(lines[0]).contains("of_plain")) << "the plain decoder itself";
    const Json free = Json::parse(lines[1]);
    const auto plain = free["plain_step_seconds"].get<std::vector<double>>();
    const auto steps = free["step_seconds"].get<std::vector<double>>();
    const auto of_plain = free["of_plain"].get<std::vector<double>>();
    ASSERT_EQ(steps.size(), 2u);
    ASSERT_EQ(plain.size(), 3u);
    ASSERT_EQ(of_plain.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_GT(plain[i], 0);
      EXPECT_NEAR(of_plain[i], std::sqrt(plain[i] * plain[i + 1]) / steps[i], 1e-9);
    }
  }
  expect_one_line_error(run(kTiny + "--bits 0 --beside-plain"), 2, "--beside-plain");
}

TEST(BenchTrain, TakesTheShapeOfAConfigAndItsBits) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "config.json";
  const Outcome shaped = run(kTiny + "--bits 5 --precision fp32 --json");
  ASSERT_EQ(shaped.status, 0) << shaped.err;
  write_file_atomically(file, Json::parse(shaped.out)["model"].dump());
  const std::string rest = " --context 8 --rows 1 --repeats 1 --precision fp32 --json";
  const Outcome outcome = run("bench train --model " + file + rest);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json line = Json::parse(outcome.out);
  EXPECT_EQ(line["bits"], 5);
  EXPECT_EQ(line["model"]["intermediate_size"], 48);

  expect_one_line_error(run("bench train --dim 64 --model " + file + rest), 2, "--dim");
  expect_one_line_error(run("bench train --model " + file + " --vocab 9" + rest), 2, "--vocab");
  expect_one_line_error(run("bench train --model " + file + ".none" + rest), 1, "config.json.none");
}

TEST(BenchTrain, TheDefaultWidthOfTheMlpIsNeverNothing) {
  const Outcome outcome =
      run("bench train --dim 16 --layers 2 --heads 2 --kv-heads 1 --vocab 9 --context 8 --rows 1 "
          "--repeats 1 --bits 0 --precision fp32 --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_GT(Json::parse(outcome.out)["model"]["intermediate_size"].get<int>(), 0);
}

TEST(BenchTrain, CanUseLibTorchsOperationsAlone) {
  const Outcome outcome = run(kTiny + "--bits 0 --precision fp32 --aten --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json line = Json::parse(outcome.out);
  EXPECT_EQ(line["kernels"], false);
  for (const Json& part : line["parts"]) EXPECT_NE(part["name"], "linear backward");
}

TEST(BenchTrain, RefusesAShapeThatIsNone) {
  expect_one_line_error(run("bench train --dim 32 --heads 3 --kv-heads 2 --bits 0"), 1,
                        "num_key_value_heads");
  expect_one_line_error(run("bench train --dim 32 --layers 3 --bits 4"), 1, "num_hidden_layers");
  expect_one_line_error(run(kTiny + "--bits 99"), 2, "--bits");
  expect_one_line_error(run(kTiny + "--precision fp16"), 2, "--precision");
}

#endif

}  // namespace
}  // namespace freeformer
