#include "lab/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "expect_error.h"
#include "temporary_folder.h"

namespace freeformer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(SweepAxis, PartsValuesAtCommas) {
  const SweepAxis axis = parse_sweep_axis("latent.kappa_bits=1/64,1/8,1");
  EXPECT_EQ(axis.key, "latent.kappa_bits");
  EXPECT_THAT(axis.values, ElementsAre("1/64", "1/8", "1"));
}

TEST(SweepAxis, KeepsCommasInQuotesAndBrackets) {
  const SweepAxis axis = parse_sweep_axis(R"(data.paths=["a,b.txt", "c"],x.txt)");
  EXPECT_THAT(axis.values, ElementsAre(R"(["a,b.txt", "c"])", "x.txt"));
}

TEST(SweepAxis, QuotesAreNotPartOfAValue) {
  EXPECT_THAT(parse_sweep_axis(R"(run.precision="fp32",'bf16')").values,
              ElementsAre("fp32", "bf16"));
  EXPECT_THAT(parse_sweep_axis(R"(model.from="a,seed=1",b)").values, ElementsAre("a,seed=1", "b"));
}

TEST(SweepAxis, RefusesWhatIsNone) {
  for (const char* text :
       {"latent.bits", "=1,2", "latent.bits=", "latent.bits=4,,8", "latent.bits=4,8,4"}) {
    EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, text, parse_sweep_axis(text));
  }
}

class Plan : public testing::Test {
 protected:
  Plan() {
    request.config = folder.path() / "small.toml";
    write_file_atomically(request.config,
                          "[run]\nsteps = 10\nseed = 5\n[data]\nkind = \"letters\"\n"
                          "[model]\nhidden_size = 32\nnum_hidden_layers = 4\n"
                          "[latent]\nbits = 8\nkappa_bits = 0.5\n"
                          "[optimizer]\ntable_factor = 2.0\n");
    request.folder = folder.path() / "out";
  }
  TemporaryFolder folder;
  SweepRequest request;
};

TEST_F(Plan, IsEveryCombinationWithEverySeed) {
  request.axes = {parse_sweep_axis("latent.kappa_bits=1/8,1"),
                  parse_sweep_axis("optimizer.learning_rate=1e-3,2e-3")};
  request.seeds = 2;
  const SweepPlan plan = plan_sweep(request);
  ASSERT_EQ(plan.points.size(), 4U);
  EXPECT_EQ(plan.points[1].label, "latent.kappa_bits=1/8, optimizer.learning_rate=2e-3");
  ASSERT_EQ(plan.runs.size(), 8U);
  EXPECT_EQ(plan.runs[3].seed, 5);
  EXPECT_EQ(plan.runs[4].seed, 6) << "all points with one seed before the next";
  EXPECT_EQ(plan.runs[4].config.run.seed, 6);
  EXPECT_EQ(plan.runs[2].config.latent.kappa_bits, 1);
  EXPECT_EQ(plan.runs[1].config.optimizer.learning_rate, 2e-3);
  for (const SweepRun& run : plan.runs) {
    EXPECT_EQ(run.config.folder, request.folder / run.name);
    EXPECT_THAT(run.name, Not(HasSubstr("/")));
    EXPECT_THAT(run.name, Not(HasSubstr(" ")));
  }
}

TEST_F(Plan, WithoutAxesIsTheFileItself) {
  const SweepPlan plan = plan_sweep(request);
  ASSERT_EQ(plan.runs.size(), 1U);
  EXPECT_EQ(plan.points[0].label, "as configured");
  EXPECT_EQ(plan.runs[0].config.latent.kappa_bits, 0.5);
}

TEST_F(Plan, BaselinesHaveNoLatentAndTheSecondABlockMore) {
  request.axes = {parse_sweep_axis("latent.kappa_bits=1/8,1")};
  request.assignments = {"latent.init=bits", "optimizer.encoder_factor=3"};
  request.baselines = true;
  const SweepPlan plan = plan_sweep(request);
  ASSERT_EQ(plan.points.size(), 4U) << "the latent's keys do not part plain decoders";
  EXPECT_EQ(plan.points[2].label, "plain");
  EXPECT_EQ(plan.runs[2].config.latent.bits, 0);
  EXPECT_EQ(plan.runs[2].config.model.num_hidden_layers, 4);
  EXPECT_EQ(plan.points[3].label, "plain, one more layer");
  EXPECT_EQ(plan.runs[3].config.latent.bits, 0);
  EXPECT_EQ(plan.runs[3].config.model.num_hidden_layers, 5);
}

TEST_F(Plan, RefusesBadValuesBeforeAnythingRuns) {
  request.axes = {parse_sweep_axis("latent.kappa_bits=1/8,-1")};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "latent.kappa_bits", plan_sweep(request));
  request.axes = {parse_sweep_axis("latent.kapa_bits=1/8")};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "latent.kappa_bits", plan_sweep(request));
}

TEST_F(Plan, RefusesKeysThatTheSweepDecides) {
  request.axes = {parse_sweep_axis("run.seed=1,2")};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "--seeds", plan_sweep(request));
  request.axes = {parse_sweep_axis("run.folder=a,b")};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "--out", plan_sweep(request));
  request.axes = {parse_sweep_axis("latent.bits=4"), parse_sweep_axis("latent.bits=8")};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "twice", plan_sweep(request));
}

TEST_F(Plan, RefusesPointsThatAreOneAndTheSame) {
  request.axes = {parse_sweep_axis("latent.kappa_bits=1/8,0.125")};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "are the same settings",
                          plan_sweep(request));
  write_file_atomically(request.config, "[data]\nkind = \"text\"\n");
  request.axes = {parse_sweep_axis("data.paths=d/x.txt,d-x.txt")};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "are the same folder", plan_sweep(request));
}

TEST_F(Plan, RefusesWhatNoRunCouldDo) {
  request.assignments = {"run.folder=x"};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "--out", plan_sweep(request));
  request.assignments = {"run.seed=9223372036854775807"};
  EXPECT_EQ(plan_sweep(request).runs.size(), 1U);
  request.seeds = 2;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "run.seed is 9223372036854775807",
                          plan_sweep(request));
  write_file_atomically(request.config,
                        "[data]\nkind = \"text\"\npaths = [\"x.txt\"]\nheld_out = 0\n");
  request.assignments = {};
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "data.held_out is 0", plan_sweep(request));
}

TEST_F(Plan, WhatGoesWithALatentDoesNotGoWithAPlainDecoder) {
  write_file_atomically(request.config, read_text_file(request.config) +
                                            "[[when]]\nlatent.kappa_bits = 0.5\n"
                                            "set.run.steps = 77\n");
  request.baselines = true;
  const SweepPlan plan = plan_sweep(request);
  EXPECT_EQ(plan.runs[0].config.run.steps, 77);
  EXPECT_EQ(plan.runs[1].config.run.steps, 10) << plan.points[1].label;
}

TEST_F(Plan, TableHasMeansAndDeviationsOverSeeds) {
  request.axes = {parse_sweep_axis("latent.kappa_bits=1/8,1")};
  request.seeds = 2;
  request.baselines = true;
  const SweepPlan plan = plan_sweep(request);
  std::vector<SweepResult> results;
  for (const SweepRun& run : plan.runs) {
    if (run.point == 1) continue;  // not done yet
    SweepResult result;
    result.run = &run;
    result.study.has_latent = run.point < 2;
    result.study.elbo = result.study.ce = run.seed == 5 ? 0.25 : 0.75;
    result.study.kl_bits = 0.125;
    results.push_back(result);
  }
  const std::string table = sweep_table(plan, results);
  EXPECT_THAT(table, HasSubstr("| latent.kappa_bits=1/8 | 2 | 0 ± 0 | 0.5000 ± 0.3536 |"));
  EXPECT_THAT(table, HasSubstr("| latent.kappa_bits=1 | 0 | – |"));
  EXPECT_THAT(table, HasSubstr("| plain | 2 | 0 ± 0 | 0.5000 ± 0.3536 | – |"));
  EXPECT_THAT(table, HasSubstr("0.125 ± 0.000"));
  EXPECT_THAT(table, Not(HasSubstr("well formed"))) << "a column without a value";
}

TEST_F(Plan, ResultsThatAreNoResultsNameTheFile) {
  const SweepPlan plan = plan_sweep(request);
  std::filesystem::create_directories(plan.runs[0].config.folder);
  write_file_atomically(plan.runs[0].config.folder / "metrics.jsonl", "{\"step\":1}\n");
  write_file_atomically(plan.runs[0].config.folder / "study.json", "{\"step\":1}\n");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "study.json", read_sweep_result(plan.runs[0]));
  write_file_atomically(plan.runs[0].config.folder / "study.json", "{\"step\":");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "study.json", read_sweep_result(plan.runs[0]));
}

}  // namespace
}  // namespace freeformer
