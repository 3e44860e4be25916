#include "train/trainer.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <cmath>

#include "core/checkpoint.h"
#include "core/json.h"
#include "core/log.h"
#include "core/tensor_manifest.h"
#include "expect_error.h"
#include "model/weights.h"
#include "run/run_folder.h"
#include "text/token_file.h"
#include "training_run.h"

namespace freeformer {
namespace {

std::vector<OrderedJson> metrics(const std::filesystem::path& folder) {
  std::vector<OrderedJson> lines;
  const std::string text = read_text_file(folder / "metrics.jsonl");
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(OrderedJson::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return lines;
}

Tensor weight(const std::filesystem::path& checkpoint, const std::string& name) {
  const Checkpoint opened(checkpoint);
  const auto [info, data] = opened.tensor(name);
  return to_tensor(*info, data);
}

TEST(Trainer, LearnsTheCoin) {
  const TemporaryFolder folder;
  const TrainConfig config = tiny_run(
      folder.path() / "run",
      {"run.steps=150", "batch.tokens_per_step=768", "evaluation.rows=64", "evaluation.every=150",
       "data.coin_flip=0.05", "checkpoints.every=0", "batch.micro_rows=0"});
  const TrainOutcome outcome = run_quietly(config);
  EXPECT_EQ(outcome.step, 150);
  // A coin that comes up the same 19 times of 20 has little more than h(0.05) = 0.199 nats a toss.
  EXPECT_LT(outcome.best_bound, 0.30);
  EXPECT_GT(outcome.best_bound, 0.15) << "better than possible";
}

TEST(Trainer, LogsOneObjectPerLoggedStepWithTheHonestNames) {
  const TemporaryFolder folder;
  run_quietly(tiny_run(folder.path() / "free",
                       {"latent.bits=3", "logging.every=3", "evaluation.iwae_samples=2"}));
  const auto free = metrics(folder.path() / "free");
  std::vector<int64_t> steps;
  for (const OrderedJson& line : free) steps.push_back(line["step"].get<int64_t>());
  EXPECT_EQ(steps, (std::vector<int64_t>{3, 4, 6, 8, 9, 12}));  // every 3, and every evaluation
  for (const OrderedJson& line : free) {
    for (const char* key : {"loss", "posterior_ce", "kl_bits", "hinged_kl_bits", "learning_rate",
                            "gradient_norm", "tokens"}) {
      EXPECT_TRUE(line.contains(key)) << key;
    }
    EXPECT_FALSE(line.contains("ce")) << "posterior CE must not go by a plain decoder's name";
  }
  const OrderedJson& evaluation = free[1]["evaluation"];
  const auto mean = [&](const char* key) {
    return evaluation[key]["nats_per_token"].get<double>();
  };
  EXPECT_NEAR(mean("elbo"), mean("posterior_ce") + mean("kl"), 1e-12);
  EXPECT_LE(mean("iwae"), mean("elbo") + 0.2);
  EXPECT_TRUE(evaluation.contains("prior_ce"));
  EXPECT_EQ(evaluation["latent"]["kl_bits_by_bit"].size(), 3u);

  run_quietly(tiny_run(folder.path() / "plain"));
  const auto plain = metrics(folder.path() / "plain");
  EXPECT_EQ(plain.size(), 12u);
  EXPECT_TRUE(plain[0].contains("ce"));
  EXPECT_FALSE(plain[0].contains("kl_bits"));
  EXPECT_TRUE(plain[3]["evaluation"].contains("ce"));
}

TEST(Trainer, ManyPassesEqualOne) {
  // Documents of odd lengths, so that passes have different numbers of targets: a mean of means
  // would be another number.
  const TemporaryFolder folder;
  std::vector<int32_t> tokens;
  std::vector<uint64_t> documents;
  for (int i = 0; i < 60; ++i) {
    documents.push_back(tokens.size());
    for (int t = 0; t < 2 + i * 7 % 11; ++t) tokens.push_back((i * 5 + t * t) % 20);
  }
  const auto data = folder.path() / "data.bin";
  write_token_file(data, tokens, 20, "none", documents);
  for (const char* latent : {"latent.bits=0", "latent.bits=4"}) {
    const std::vector<std::string> common = {
        "data.kind=tokens", "data.paths=" + data.string(), "data.documents=cut",
        "data.context=8",   "batch.tokens_per_step=72",    latent,
        "run.steps=4",      "optimizer.clip_norm=0.5",     "schedule.warmup_steps=1"};
    const auto run = [&](const char* name, const char* micro_rows) {
      auto assignments = common;
      assignments.push_back(std::string("batch.micro_rows=") + micro_rows);
      run_quietly(tiny_run(folder.path() / latent / name, assignments));
      return folder.path() / latent / name;
    };
    std::filesystem::create_directories(folder.path() / latent);
    const auto one = run("one", "0"), many = run("many", "2"), single = run("single", "1");
    const auto a = metrics(one), b = metrics(many);
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_NEAR(a[i]["loss"].get<double>(), b[i]["loss"].get<double>(), 1e-6) << i;
      EXPECT_NEAR(a[i]["gradient_norm"].get<double>(), b[i]["gradient_norm"].get<double>(), 1e-6);
    }
    for (const auto& other : {many, single}) {
      for (const char* name : {"model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"}) {
        const Tensor x = weight(one / "checkpoints/latest", name);
        const Tensor y = weight(other / "checkpoints/latest", name);
        EXPECT_LT(((x - y).norm() / x.norm()).item<double>(), 1e-6) << name << " " << latent;
      }
    }
  }
}

TEST(Trainer, KappaAndBetaGoTheirOwnWays) {
  const TemporaryFolder folder;
  const TrainConfig config =
      tiny_run(folder.path() / "run",
               {"run.steps=8", "latent.bits=3", "latent.kappa_bits=1", "latent.beta=3",
                "latent.kappa_path=2:0 6", "latent.beta_path=3:0.5 4:2 5", "logging.every=1",
                "evaluation.every=1"});
  run_quietly(config);
  std::vector<double> kappa, beta;
  for (const OrderedJson& line : metrics(config.folder)) {
    kappa.push_back(line["kappa_bits"]);
    beta.push_back(line["beta"]);
  }
  // Of the first to the eighth step: what 0 to 7 steps done ask for.
  EXPECT_EQ(kappa, (std::vector<double>{0, 0, 0, 0.25, 0.5, 0.75, 1, 1}));
  EXPECT_EQ(beta, (std::vector<double>{0.5, 0.5, 0.5, 0.5, 2, 3, 3, 3}));
}

// With an encoder that does not learn, the factor is all that happens to it.
TEST(Trainer, SharpeningMultipliesTheReadoutAndNothingElseOfTheEncoder) {
  const TemporaryFolder folder;
  const auto run = [&](const char* name, const std::vector<std::string>& sharpening) {
    std::vector<std::string> assignments = {"run.steps=6", "latent.bits=3",
                                            "optimizer.encoder_factor=0"};
    assignments.insert(assignments.end(), sharpening.begin(), sharpening.end());
    run_quietly(tiny_run(folder.path() / name, assignments));
    return folder.path() / name / "checkpoints/latest";
  };
  const auto plain = run("plain", {});
  const auto at_start = run("start", {"latent.sharpen_by=3"});
  const auto later = run("later", {"latent.sharpen_by=3", "latent.sharpen_after=5"});
  for (const auto& sharpened : {at_start, later}) {
    int compared = 0;
    for (const TensorSpec& spec : tensor_manifest(Checkpoint(plain).config())) {
      if (!spec.name.starts_with("model.latent.") || spec.part == ModelPart::kPostSampler) continue;
      const double factor = spec.name.ends_with("readout.weight") ? 3 : 1;
      const Tensor ratio = weight(sharpened, spec.name) / weight(plain, spec.name);
      EXPECT_LT((ratio - factor).abs().max().item<double>(), 1e-6) << spec.name;
      ++compared;
    }
    EXPECT_GE(compared, 12);
  }
}

TEST(Trainer, SharpensBeforeTheStepThatFollowsAndOnce) {
  const TemporaryFolder folder;
  const auto kl = [&](const std::string& name, std::vector<std::string> assignments) {
    assignments.insert(assignments.end(), {"run.steps=4", "latent.bits=3", "logging.every=1",
                                           "optimizer.learning_rate=1e-9"});
    const TrainConfig config = tiny_run(folder.path() / name, assignments);
    run_quietly(config);
    std::vector<double> found;
    for (const OrderedJson& line : metrics(config.folder)) found.push_back(line["kl_bits"]);
    return found;
  };
  for (const std::string precision : {"run.precision=fp32", "run.precision=bf16"}) {
    const auto soft = kl("soft" + precision, {precision});
    const auto firm = kl("firm" + precision, {precision, "latent.sharpen_by=10"});
    const auto both =
        kl("both" + precision, {precision, "latent.sharpen_by=10", "latent.sharpen_after=2"});
    ASSERT_EQ(both.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(both[i], i < 2 ? soft[i] : firm[i], 1e-2 * both[i]) << i;
      EXPECT_GT(firm[i], 2 * soft[i]) << i;
    }
  }
}

TEST(Trainer, ARunBehindItsSharpeningIsNotSharpenedAgain) {
  const TemporaryFolder folder;
  const auto readout = [&](const char* name) {
    return weight(folder.path() / name / "checkpoints/latest", "model.latent.readout.weight");
  };
  const std::vector<std::string> still = {"latent.bits=3", "optimizer.encoder_factor=0",
                                          "latent.sharpen_by=3", "latent.sharpen_after=2"};
  const auto run = [&](const char* name, std::vector<std::string> more) {
    more.insert(more.end(), still.begin(), still.end());
    run_quietly(tiny_run(folder.path() / name, more));
  };
  run("run", {"run.steps=3"});
  const Tensor once = readout("run").clone();
  run("run", {"run.steps=6"});
  EXPECT_TRUE(at::equal(readout("run"), once)) << "resumed";
  const std::string from = "model.from=" + (folder.path() / "run/checkpoints/latest").string();
  run_quietly(tiny_run(folder.path() / "next",
                       {from, "run.steps=3", "optimizer.encoder_factor=0", "latent.sharpen_by=2"}));
  EXPECT_LT((readout("next") / once - 2).abs().max().item<double>(), 1e-6) << "a run of its own";
}

// Asleep, the model is its decoder: no bit leans, no code moves anything, nothing of it learns.
TEST(Trainer, ALatentSleepsUntilItsStepAndThenWakes) {
  const TemporaryFolder folder;
  for (const std::string precision : {"run.precision=fp32", "run.precision=bf16"}) {
    const TrainConfig config =
        tiny_run(folder.path() / precision,
                 {precision, "run.steps=9", "latent.bits=3", "latent.wake_after=6",
                  "latent.encoder_init=ahead", "logging.every=1", "evaluation.every=3"});
    run_quietly(config);
    const auto lines = metrics(config.folder);
    ASSERT_EQ(lines.size(), 9u);
    for (size_t i = 0; i < lines.size(); ++i) {
      if (i < 6) {
        EXPECT_EQ(lines[i]["kl_bits"], 0.0) << i;
        EXPECT_EQ(lines[i]["loss"], lines[i]["posterior_ce"]) << i;
      } else {
        EXPECT_GT(lines[i]["kl_bits"].get<double>(), 0.1) << i;
      }
    }
    const auto evaluation = lines[5]["evaluation"];
    EXPECT_EQ(evaluation["elbo"]["nats_per_token"], evaluation["prior_ce"]["nats_per_token"]);
    const auto at = [&](int step) {
      return config.folder / "checkpoints" / ("step-" + std::to_string(step));
    };
    for (const char* name : {"model.latent.readout.weight", "model.latent.post_sampler.weight"}) {
      for (const int step : {3, 6}) {
        EXPECT_EQ(weight(at(step), name).abs().max().item<double>(), 0) << name << step;
      }
      EXPECT_GT(weight(at(9), name).abs().max().item<double>(), 0.01) << name;
    }
    const char* query = "model.latent.encoder.self_attn.q_proj.weight";
    EXPECT_TRUE(at::equal(weight(at(3), query), weight(at(6), query)));
    EXPECT_FALSE(at::equal(weight(at(6), query), weight(at(9), query)));
  }
}

TEST(Trainer, ALatentWithRandomWeightsWakesWithThoseItWouldHaveBegunWith) {
  const TemporaryFolder folder;
  const auto run = [&](const char* name, std::vector<std::string> assignments) {
    assignments.insert(assignments.end(), {"run.steps=4", "latent.bits=3", "checkpoints.every=1",
                                           "optimizer.learning_rate=1e-12"});
    run_quietly(tiny_run(folder.path() / name, assignments));
    return folder.path() / name / "checkpoints/latest";
  };
  const auto awake = run("awake", {}), woken = run("woken", {"latent.wake_after=2"});
  for (const TensorSpec& spec : tensor_manifest(Checkpoint(awake).config())) {
    EXPECT_LT((weight(awake, spec.name) - weight(woken, spec.name)).abs().max().item<double>(),
              1e-9)
        << spec.name;
  }
}

// Adam's first step is as long as the rate, whatever the gradient.
TEST(Trainer, AnEncoderThatWakesLateHasAWarmUpOfItsOwn) {
  const TemporaryFolder folder;
  const TrainConfig config =
      tiny_run(folder.path() / "run",
               {"run.steps=8", "latent.bits=3", "latent.wake_after=5", "checkpoints.every=1",
                "schedule.kind=constant", "schedule.warmup_steps=4", "optimizer.weight_decay=0"});
  run_quietly(config);
  const auto moved = [&](int step, const char* name) {
    const auto at = [&](int s) {
      return weight(config.folder / "checkpoints" / ("step-" + std::to_string(s)), name);
    };
    return (at(step) - at(step - 1)).abs().max().item<double>();
  };
  EXPECT_NEAR(moved(6, "model.latent.encoder.mlp.up_proj.weight"), 0.01 / 4, 1e-4);
  EXPECT_NEAR(moved(6, "model.latent.encoder.mlp.up_proj.weight") * 2,
              moved(7, "model.latent.encoder.mlp.up_proj.weight"), 1e-3);
}

// What a checkpoint is counts, not what the settings would have made of it.
TEST(Trainer, AResumedRunWakesIfItSleepsAndNeverASecondTime) {
  const TemporaryFolder folder;
  const auto run = [&](const char* name, std::vector<std::string> assignments) {
    assignments.insert(assignments.end(),
                       {"latent.bits=3", "latent.encoder_init=ahead", "logging.every=1"});
    const TrainConfig config = tiny_run(folder.path() / name, assignments);
    run_quietly(config);
    return config.folder;
  };
  run("early", {"run.steps=4", "latent.wake_after=2", "optimizer.learning_rate=1e-9"});
  // Its step is past, but it sleeps: it wakes now.
  const auto late = run("asleep", {"run.steps=4", "latent.wake_after=3"});
  std::filesystem::remove_all(late / "checkpoints/step-4");
  std::filesystem::remove(late / "checkpoints/latest");
  std::filesystem::create_symlink("step-3", late / "checkpoints/latest");
  run("asleep", {"run.steps=6", "latent.wake_after=1"});
  EXPECT_GT(metrics(late)[3]["kl_bits"].get<double>(), 0.1);
  // It is awake: a later step does not put it to sleep, nor wake it again.
  const auto early =
      run("early", {"run.steps=8", "latent.wake_after=7", "optimizer.learning_rate=1e-9"});
  for (size_t i = 2; i < 8; ++i) EXPECT_GT(metrics(early)[i]["kl_bits"].get<double>(), 0) << i;
  for (const char* name : {"model.latent.post_sampler.weight", "model.latent.readout.weight"}) {
    const Tensor before = weight(early / "checkpoints/step-6", name);
    const Tensor after = weight(early / "checkpoints/latest", name);
    EXPECT_LT((after - before).abs().max().item<double>(), 1e-6) << name;
  }
}

TEST(Trainer, ANewRunDoesNotBeginFromALatentAsleep) {
  const TemporaryFolder folder;
  run_quietly(tiny_run(folder.path() / "run", {"run.steps=3", "latent.bits=3",
                                               "latent.wake_after=2", "checkpoints.every=1"}));
  const auto from = [&](int step) {
    return "model.from=" +
           (folder.path() / "run/checkpoints" / ("step-" + std::to_string(step))).string();
  };
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "its latent is asleep",
                          run_quietly(tiny_run(folder.path() / "next", {from(1), "run.steps=3"})));
  EXPECT_NO_THROW(run_quietly(tiny_run(folder.path() / "after", {from(3), "run.steps=3"})));
}

TEST(Trainer, ARunThatBeginsFromWeightsIsAwakeWhateverItsFileSays) {
  const TemporaryFolder folder;
  run_quietly(tiny_run(folder.path() / "run", {"run.steps=3", "latent.bits=3"}));
  const auto from = folder.path() / "run/checkpoints/step-3";
  const auto file = folder.path() / "next.toml";
  tiny_run(folder.path() / "next", {"model.from=" + from.string()});
  write_file_atomically(file, read_text_file(file) + "[latent]\nwake_after = 6\n");
  const TrainConfig config = read_train_config(
      file, {"model.from=" + from.string(), "run.folder=" + (folder.path() / "next").string()});
  EXPECT_NO_THROW(run_quietly(config));
  for (const OrderedJson& line : metrics(config.folder)) EXPECT_GT(line["kl_bits"], 0);
}

TEST(Trainer, NoCheckpointIsTheBestBeforeTheLatentIsAwake) {
  const TemporaryFolder folder;
  const TrainConfig config =
      tiny_run(folder.path() / "run", {"run.steps=4", "latent.bits=4", "latent.wake_after=3",
                                       "evaluation.every=1", "latent.encoder_init=ahead"});
  EXPECT_EQ(run_quietly(config).best_step, 4);
}

// A sweep's plain baselines get the file's settings.
TEST(Trainer, APlainModelHasNothingToSharpen) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "run.toml";
  tiny_run(folder.path() / "free", {"latent.bits=3"});
  write_file_atomically(
      file, read_text_file(folder.path() / "free.toml") + "[latent]\nbits = 3\nsharpen_by = 3.0\n");
  const std::string to = "run.folder=" + (folder.path() / "run").string();
  EXPECT_NO_THROW(run_quietly(read_train_config(file, {"latent.bits=0", "run.steps=3", to})));
}

// A bound of a lower κ is another objective's: the lowest of all is where Z is silent.
TEST(Trainer, NoCheckpointIsTheBestBeforeKappaAndBetaAreThere) {
  const TemporaryFolder folder;
  for (const char* path : {"latent.kappa_path=2:0 3", "latent.beta_path=2:9 3"}) {
    const TrainConfig config =
        tiny_run(folder.path() / path, {"run.steps=4", "latent.bits=4", "latent.kappa_bits=4", path,
                                        "optimizer.learning_rate=0.05", "evaluation.every=1"});
    const TrainOutcome outcome = run_quietly(config);
    EXPECT_EQ(outcome.best_step, 4) << path;
    const OrderedJson first = metrics(config.folder)[0]["evaluation"];
    EXPECT_LT(first["elbo"]["nats_per_token"].get<double>(), outcome.best_bound)
        << path << ": the bound was lower before";
  }
}

TEST(Trainer, RecomputedBlocksChangeNothing) {
  const TemporaryFolder folder;
  for (const char* latent : {"latent.bits=0", "latent.bits=4"}) {
    const auto a = folder.path() / fmt::format("kept-{}", latent);
    const auto b = folder.path() / fmt::format("recomputed-{}", latent);
    run_quietly(tiny_run(a, {latent}));
    run_quietly(tiny_run(b, {latent, "run.recompute=true"}));
    // Gradients are summed in another order, no more.
    const auto kept = metrics(a), recomputed = metrics(b);
    ASSERT_EQ(kept.size(), recomputed.size());
    EXPECT_EQ(kept[0]["loss"], recomputed[0]["loss"]);
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_NEAR(kept[i]["loss"].get<double>(), recomputed[i]["loss"].get<double>(), 1e-5);
    }
  }
}

TEST(Trainer, TheBestCheckpointIsTheOneOfTheLowestBound) {
  const TemporaryFolder folder;
  const TrainConfig config =
      tiny_run(folder.path() / "run",
               {"latent.bits=4", "evaluation.every=1", "run.steps=10",
                "optimizer.learning_rate=0.05", "checkpoints.every=0", "checkpoints.keep_last=1"});
  const TrainOutcome outcome = run_quietly(config);
  double best = 1e9;
  int64_t step = 0;
  for (const OrderedJson& line : metrics(config.folder)) {
    const double elbo = line["evaluation"]["elbo"]["nats_per_token"].get<double>();
    if (elbo < best) {
      best = elbo;
      step = line["step"].get<int64_t>();
    }
  }
  EXPECT_EQ(outcome.best_step, step);
  EXPECT_EQ(outcome.best_bound, best);
  EXPECT_EQ(std::filesystem::read_symlink(config.folder / "checkpoints/best"),
            fmt::format("step-{}", step));
  EXPECT_TRUE(std::filesystem::exists(config.folder / "checkpoints/best/config.json"));
}

TEST(Trainer, ALossThatIsNotANumberStopsAndNamesStepRowsAndCheckpoint) {
  const TemporaryFolder folder;
  const TrainConfig config =
      tiny_run(folder.path() / "run",
               {"optimizer.learning_rate=1e30", "checkpoints.every=1", "schedule.kind=constant",
                "schedule.warmup_steps=0", "optimizer.clip_norm=0"});
  EXPECT_FREEFORMER_ERROR(ErrorCode::kDiverged, "last good checkpoint: ", run_quietly(config));
  try {
    run_quietly(config);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("rows "));
    EXPECT_THAT(error.what(), testing::HasSubstr("checkpoints/step-"));
  }
}

TEST(Trainer, WarnsOfALatentThatIsHardlyUsed) {
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel level, std::string_view, std::string_view text) {
    if (level == LogLevel::kWarn) warnings.emplace_back(text);
  });
  const TemporaryFolder folder;
  // An encoder that starts flat and may not move says nothing.
  run_quietly(tiny_run(folder.path() / "idle",
                       {"latent.bits=4", "latent.kappa_bits=2", "run.steps=16",
                        "optimizer.encoder_factor=0", "model.initializer_range=0.001"}));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], testing::HasSubstr("hardly used"));
  warnings.clear();
  run_quietly(tiny_run(folder.path() / "awake",
                       {"latent.bits=4", "latent.kappa_bits=0.001", "run.steps=16"}));
  EXPECT_TRUE(warnings.empty());
  set_log_sink({});
}

TEST(Trainer, AFullDiskKeepsThePreviousCheckpointWhole) {
  const TemporaryFolder folder;
  const TrainConfig config = tiny_run(folder.path() / "run", {"latent.bits=4"});
  ASSERT_EQ(wait_for(start_child([&] { run_quietly(config); })), 0);
  const auto before = lasting_files(config.folder);
  const TrainConfig longer = tiny_run(config.folder, {"latent.bits=4", "run.steps=30"});
  const pid_t child = start_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{20000, 20000};  // the optimiser's file is larger
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(3);
    try {
      run_quietly(longer);
    } catch (const Error& error) {
      _exit(error.code() == ErrorCode::kIo ? 42 : 4);
    }
  });
  ASSERT_EQ(wait_for(child), 42);
  for (const auto& [name, content] : before) {
    if (!name.starts_with("checkpoints/")) continue;
    EXPECT_TRUE(lasting_files(config.folder).at(name) == content) << name;
  }
  EXPECT_NO_THROW(verify_checksums(config.folder / "checkpoints/latest"));
  for (const auto& entry : std::filesystem::directory_iterator(config.folder / "checkpoints")) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp")) << entry.path();
  }
  // With room again it goes on.
  EXPECT_EQ(wait_for(start_child([&] { run_quietly(longer); })), 0);
}

TEST(Trainer, RefusesToResumeWhatDoesNotFit) {
  const TemporaryFolder folder;
  const TrainConfig config =
      tiny_run(folder.path() / "run", {"run.steps=2", "schedule.warmup_steps=1"});
  run_quietly(config);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "holds a run that reached step 2",
                          run_quietly(config, "no"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "expected auto, no or a checkpoint",
                          run_quietly(config, "/nowhere"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint,
                          "another shape: \"head_dim\" is 8, the settings say 16",
                          run_quietly(tiny_run(config.folder, {"model.hidden_size=32"})));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "another shape",
                          run_quietly(tiny_run(config.folder, {"latent.bits=3"})));
  // Damage.
  const auto weights = config.folder / "checkpoints/step-2/model.safetensors";
  std::string bytes = read_text_file(weights);
  bytes[bytes.size() - 3] ^= 1;
  write_file_atomically(weights, bytes);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "model.safetensors: its checksum is",
                          run_quietly(tiny_run(config.folder, {"run.steps=4"})));
}

TEST(Trainer, GoesOnFromANamedCheckpointAndWithMoreSteps) {
  const TemporaryFolder folder;
  const TrainConfig config = tiny_run(folder.path() / "run");
  run_quietly(config);
  const auto before = lasting_files(config.folder);
  const TrainOutcome again = run_quietly(config, (config.folder / "checkpoints/step-6").string());
  EXPECT_EQ(again.step, 12);
  const auto after = lasting_files(config.folder);
  EXPECT_EQ(after.at("metrics.jsonl"), before.at("metrics.jsonl"));
  EXPECT_TRUE(after.at("checkpoints/step-12/model.safetensors") ==
              before.at("checkpoints/step-12/model.safetensors"));
  EXPECT_EQ(run_quietly(tiny_run(config.folder, {"run.steps=15"})).step, 15);
}

// Rows go on where they stopped, whatever the size of a step before and after.
TEST(Trainer, GoesOnWithTheNextRowAfterAChangeOfTheBatch) {
  const TemporaryFolder folder;
  const TrainConfig config = tiny_run(folder.path() / "run");  // 8 rows a step
  run_quietly(config);
  run_quietly(tiny_run(config.folder, {"run.steps=15", "batch.tokens_per_step=24"}));
  const auto state = config.folder / "checkpoints/step-15/trainer_state.json";
  EXPECT_EQ(Json::parse(read_text_file(state))["next_row"], 12 * 8 + 3 * 2);
}

TEST(Trainer, SaysThatTheDataHasChangedSinceACheckpoint) {
  const TemporaryFolder folder;
  const TrainConfig config = tiny_run(folder.path() / "run");
  run_quietly(config);
  const auto messages = [&](const std::vector<std::string>& more) {
    testing::internal::CaptureStderr();
    train({tiny_run(config.folder, more), "auto", /*quiet=*/false});
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(messages({}), testing::Not(testing::HasSubstr("changed since")));
  EXPECT_THAT(messages({"data.coin_flip=0.3"}), testing::HasSubstr("changed since: the data: "));
}

TEST(Trainer, TheBestLinkIsSetAgainWhenAKillCameBeforeIt) {
  const TemporaryFolder folder;
  const TrainConfig config = tiny_run(folder.path() / "run");
  const TrainOutcome outcome = run_quietly(config);
  const auto best = config.folder / "checkpoints/best";
  const auto expected = fmt::format("step-{}", outcome.best_step);
  ASSERT_EQ(std::filesystem::read_symlink(best), expected);
  std::filesystem::remove(best);
  std::filesystem::create_symlink("step-3", best);
  EXPECT_EQ(run_quietly(config).best_step, outcome.best_step);
  EXPECT_EQ(std::filesystem::read_symlink(best), expected);
}

TEST(Trainer, GoingBackSetsLaterCheckpointsAside) {
  const TemporaryFolder folder;
  const TrainConfig config = tiny_run(folder.path() / "run");
  run_quietly(config);
  const auto checkpoints = config.folder / "checkpoints";
  const TrainConfig shorter = tiny_run(config.folder, {"run.steps=7"});
  EXPECT_EQ(run_quietly(shorter, (checkpoints / "step-6").string()).step, 7);
  EXPECT_FALSE(std::filesystem::exists(checkpoints / "step-9"));
  EXPECT_TRUE(std::filesystem::exists(checkpoints / "aside-9/model.safetensors"));
  EXPECT_EQ(std::filesystem::read_symlink(checkpoints / "latest"), "step-7");
  EXPECT_TRUE(std::filesystem::exists(checkpoints / "best/model.safetensors"));
}

TEST(Trainer, StartsFromTheWeightsOfACheckpoint) {
  const TemporaryFolder folder;
  run_quietly(tiny_run(folder.path() / "first", {"latent.bits=3"}));
  const auto from = folder.path() / "first/checkpoints/latest";
  const auto file = folder.path() / "second.toml";
  write_file_atomically(file, fmt::format(R"(
[run]
steps = 1
folder = "{}"
[data]
kind = "coin"
context = 12
[model]
from = "{}"
[schedule]
warmup_steps = 0
[optimizer]
learning_rate = 1e-9
[batch]
tokens_per_step = 24
[evaluation]
every = 0
)",
                                          (folder.path() / "second").string(), from.string()));
  run_quietly(read_train_config(file, {}));
  const Tensor a = weight(from, "model.embed_tokens.weight");
  const Tensor b = weight(folder.path() / "second/checkpoints/latest", "model.embed_tokens.weight");
  EXPECT_LT((a - b).abs().max().item<double>(), 1e-6);
}

TEST(Trainer, ARunsCheckpointOpensAsAHuggingFaceFolder) {
  const TemporaryFolder folder;
  run_quietly(tiny_run(folder.path() / "run", {"run.precision=bf16"}));
  const Checkpoint checkpoint(folder.path() / "run/checkpoints/latest");
  EXPECT_EQ(checkpoint.config().torch_dtype, "float32");
  EXPECT_TRUE(std::filesystem::exists(checkpoint.folder() / "tokenizer.json"));
}

}  // namespace
}  // namespace freeformer
