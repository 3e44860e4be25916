// Whole runs with our kernels: what the number of threads and LibTorch's operations have to say.
#include <gtest/gtest.h>

#include <cmath>

#include "core/json.h"
#include "kernels/cpu.h"
#include "ops/layers.h"
#include "training_run.h"

namespace freeformer {
namespace {

// The loss and the gradient's norm of every step. Large enough for the kernels to have several
// tasks, with all they have: grouped heads, a latent, more than one block of queries.
std::vector<double> curve(const std::string& name, std::vector<std::string> assignments) {
  const TemporaryFolder folder;
  for (const char* common :
       {"data.context=56", "model.hidden_size=32", "model.num_attention_heads=4",
        "model.num_key_value_heads=2", "model.initializer_range=0.05", "latent.bits=4",
        "batch.tokens_per_step=448", "batch.micro_rows=0", "evaluation.every=0",
        "checkpoints.every=0", "optimizer.learning_rate=0.003"}) {
    assignments.emplace_back(common);
  }
  run_quietly(tiny_run(folder.path() / name, assignments));
  ops::use_kernels(true);
  std::vector<double> values;
  const std::string text = read_text_file(folder.path() / name / "metrics.jsonl");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const auto line = OrderedJson::parse(text.substr(begin, end - begin));
    values.push_back(line["loss"].get<double>());
    values.push_back(line["gradient_norm"].get<double>());
    begin = end + 1;
  }
  return values;
}

TEST(KernelsInTraining, LossesAreTheSameForOneAndTwoThreads) {
  const int before = kernels::thread_count();
  for (const char* precision : {"run.precision=fp32", "run.precision=bf16"}) {
    // oneDNN's sums may depend on the number of threads.
    if (precision == std::string("run.precision=bf16") && kernels::has_native_bf16()) continue;
    const std::vector<std::string> settings = {"run.steps=6", precision};
    kernels::set_thread_count(1);
    const auto alone = curve("alone", settings);
    kernels::set_thread_count(2);
    const auto together = curve("together", settings);
    ASSERT_EQ(alone.size(), 12u);
    EXPECT_EQ(alone, together) << precision;
  }
  kernels::set_thread_count(before);
}

TEST(KernelsInTraining, FollowTheCurveOfLibTorchsOperations) {
  const std::vector<std::string> common = {"run.precision=fp32", "run.steps=30"};
  auto with = common, without = common;
  with.emplace_back("run.kernels=true");
  without.emplace_back("run.kernels=false");
  const auto ours = curve("ours", with), theirs = curve("theirs", without);
  ASSERT_EQ(ours.size(), 60u);
  ASSERT_EQ(theirs.size(), 60u);
  for (size_t i = 0; i < ours.size(); ++i) {
    // Of two sums in another order the gradient's norm tells sooner than the loss.
    EXPECT_NEAR(ours[i], theirs[i], (i % 2 == 0 ? 1e-4 : 1e-3) * std::abs(theirs[i])) << i / 2;
  }
  EXPECT_LT(ours[58], ours[0]) << "nothing was learnt";
  EXPECT_NE(ours, theirs) << "the same operations";
}

}  // namespace
}  // namespace freeformer
