// The settings of a run: where values come from, what is refused and how, and the model they mean.
#include "run/train_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/file.h"
#include "expect_error.h"
#include "temporary_folder.h"

namespace freeformer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using Assignments = std::vector<std::string>;

// Enough for a run: this data needs no file.
constexpr const char* kPlain = "[data]\nkind = \"letters\"\n";
constexpr const char* kFree = "[data]\nkind = \"letters\"\n[latent]\nbits = 4\n";

struct TrainConfigTest : testing::Test {
  TemporaryFolder folder;
  fs::path file = folder.path() / "trial.toml";

  TrainConfig read(const std::string& text, const Assignments& assignments = {}) const {
    write_file_atomically(file, text);
    return read_train_config(file, assignments);
  }

  fs::path write_model(bool with_latent, const fs::path& path) const {
    ModelConfig config;
    config.vocab_size = 61;
    config.hidden_size = 32;
    config.intermediate_size = 72;
    config.num_hidden_layers = 4;
    config.num_attention_heads = config.num_key_value_heads = 4;
    config.head_dim = 8;
    config.max_position_embeddings = 64;
    if (with_latent) config.latent = {LatentKind::kBinary, 6, 2.0};
    fs::create_directories(path.parent_path());
    write_file_atomically(path, write_model_config(config));
    return path;
  }

  void expect_no_effect(const std::string& text, Assignments assignments, const std::string& key,
                        const std::string& value, const std::string& reason) const {
    const std::string assignment = key + "=" + value;
    assignments.push_back(assignment);
    EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument,
                            "--set " + assignment + ": " + key + " has no effect: " + reason,
                            read(text, assignments));
  }
};

// A value that a key of --set takes: its default.
std::string some_value(const Fields::Field& field) {
  const std::string& text = field.default_text;
  return text.starts_with('"') ? text.substr(1, text.size() - 2) : text;
}

std::vector<Fields::Field> keys_of(const std::string& section) {
  TrainConfig config;
  const Fields fields = list_fields(config);
  std::vector<Fields::Field> keys;
  for (const Fields::Field& field : fields.all()) {
    if (field.key.starts_with(section + ".")) keys.push_back(field);
  }
  EXPECT_FALSE(keys.empty()) << section;
  return keys;
}

// --- Where values come from

TEST_F(TrainConfigTest, TakesDefaultsThenTheFileThenAssignments) {
  const TrainConfig config =
      read(std::string(kPlain) + "[run]\nsteps = 500\nseed = 7\n[optimizer]\nbeta1 = \"1/4\"\n",
           {"run.seed=8", "run.seed=9", "batch.tokens_per_step=640"});
  EXPECT_EQ(config.optimizer.beta2, 0.95) << "default";
  EXPECT_EQ(config.run.steps, 500) << "file";
  EXPECT_EQ(config.optimizer.beta1, 0.25) << "file";
  EXPECT_EQ(config.run.seed, 9) << "the last assignment";
  EXPECT_EQ(config.batch.tokens_per_step, 640);
  EXPECT_EQ(config.data.kind, "letters");
}

TEST_F(TrainConfigTest, NamesTheRunsFolderAfterTheFile) {
  EXPECT_EQ(read(kPlain).folder, "runs/trial");
  EXPECT_EQ(read(kPlain, {"run.folder=/elsewhere/a"}).folder, "/elsewhere/a");
}

TEST_F(TrainConfigTest, NamesTheNearestKeyOfAnUnknownOne) {
  const std::string where = file.string();
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kInvalidConfig,
      where + ":5: unknown key \"latent.kapa_bits\"; did you mean \"latent.kappa_bits\"?",
      read(std::string(kFree) + "kapa_bits = 1\n"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig,
                          "unknown key \"run.learning_rate\"; did you mean "
                          "\"optimizer.learning_rate\"?",
                          read("[run]\nlearning_rate = 1\n"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig,
                          ":1: unknown section \"optimiser\"; did you mean \"optimizer\"?",
                          read("[optimiser]\nbeta1 = 0.9\n"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument,
                          "--set run.step=3: unknown key \"run.step\"; did you mean \"run.steps\"?",
                          read(kPlain, {"run.step=3"}));
}

TEST_F(TrainConfigTest, RefusesAWrongTypeWithTheKeyAndTheLine) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig,
                          "trial.toml:2: run.steps is \"many\", expected a whole number",
                          read("[run]\nsteps = \"many\"\n"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "run.steps is 1.5, expected a whole number",
                          read("[run]\nsteps = 1.5\n"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "data.paths is \"a\", expected a list",
                          read("[data]\npaths = \"a\"\n"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument,
                          "--set run.recompute=1: run.recompute is 1, expected true or false",
                          read(kPlain, {"run.recompute=1"}));
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kInvalidArgument,
      "--set latent.init=zero: latent.init is \"zero\", expected one of: random, bits",
      read(kFree, {"latent.init=zero"}));
}

TEST_F(TrainConfigTest, RefusesAFileThatIsNotThereOrNotToml) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, file.string() + ": cannot open: No such file",
                          read_train_config(file, {}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "Is a directory", read_train_config(folder.path(), {}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig,
                          "trial.toml:2: ", read("[run]\nsteps = = 3\n"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kCapacity, "expected at most 1048576",
                          read(std::string((1 << 20) + 1, '\n')));
}

// --- Values out of range

TEST_F(TrainConfigTest, RefusesNumbersOutOfRangeByTheirKey) {
  for (const char* assignment : {"run.seed=-1",
                                 "run.steps=0",
                                 "run.steps=1000000001",
                                 "latent.bits=-1",
                                 "latent.bits=21",
                                 "latent.kappa_bits=-0.1",
                                 "latent.kappa_path=5",
                                 "latent.beta=-1",
                                 "latent.beta_path=5:-1 6",
                                 "latent.sharpen_by=0",
                                 "latent.sharpen_by=0.0009",
                                 "latent.sharpen_by=1001",
                                 "latent.sharpen_after=-1",
                                 "latent.wake_after=-1",
                                 "batch.tokens_per_step=0",
                                 "batch.tokens_per_step=9223372036854775807",
                                 "batch.micro_rows=-1",
                                 "optimizer.learning_rate=0",
                                 "optimizer.beta1=1",
                                 "optimizer.beta1=-0.1",
                                 "optimizer.beta2=1",
                                 "optimizer.epsilon=0",
                                 "optimizer.weight_decay=-1",
                                 "optimizer.clip_norm=-1",
                                 "optimizer.encoder_factor=-1",
                                 "optimizer.table_factor=-1",
                                 "evaluation.every=-1",
                                 "evaluation.rows=-1",
                                 "evaluation.iwae_samples=-1",
                                 "checkpoints.every=-1",
                                 "checkpoints.keep_last=0",
                                 "checkpoints.keep_every=-1",
                                 "logging.every=0",
                                 "model.hidden_size=0",
                                 "model.hidden_size=9223372036854775807",
                                 "schedule.warmup_steps=1001",
                                 "schedule.warmup_steps=-1",
                                 "schedule.final_factor=1.5"}) {
    const std::string text = assignment;
    const std::string key = text.substr(0, text.find('='));
    EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "--set " + text + ": " + key + " is ",
                            read(kFree, {text}));
  }
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig,
                          "trial.toml:2: latent.bits is 21, expected 0 to 20",
                          read("[latent]\nbits = 21\n[data]\nkind = \"letters\"\n"));
}

TEST_F(TrainConfigTest, TakesTheNumbersAtTheEdges) {
  for (const char* assignment :
       {"run.seed=0", "run.steps=1000000000", "latent.bits=20", "latent.kappa_bits=0",
        "latent.beta=0", "latent.sharpen_by=1000", "latent.sharpen_by=0.001",
        "batch.tokens_per_step=1", "batch.tokens_per_step=1000000000", "optimizer.beta1=0",
        "optimizer.clip_norm=0", "evaluation.rows=0", "checkpoints.every=0",
        "checkpoints.keep_last=1", "logging.every=1", "schedule.warmup_steps=1000"}) {
    EXPECT_NO_THROW(read(kFree, {assignment})) << assignment;
  }
}

TEST_F(TrainConfigTest, RefusesDataWithoutAFile) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "data.paths is [], expected a file or more",
                          read(""));
  EXPECT_EQ(read("", {"data.paths=a,b"}).data.paths, (std::vector<std::string>{"a", "b"}));
}

// --- Settings without effect

TEST_F(TrainConfigTest, RefusesTheLatentsSettingsOfAPlainModel) {
  for (const Fields::Field& field : keys_of("latent")) {
    if (field.key == "latent.bits") continue;
    expect_no_effect(kPlain, {}, field.key, some_value(field), "latent.bits is 0");
  }
  for (const char* key :
       {"optimizer.encoder_factor", "optimizer.table_factor", "evaluation.iwae_samples"}) {
    expect_no_effect(kPlain, {}, key, "1", "latent.bits is 0");
  }
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig,
                          "trial.toml:4: latent.kappa_bits has no effect: latent.bits is 0",
                          read(std::string(kPlain) + "[latent]\nkappa_bits = 1.0\n"));
}

TEST_F(TrainConfigTest, RefusesAShapeBesideModelFrom) {
  const fs::path free = write_model(true, folder.path() / "free.json");
  const std::string from = "model.from=" + free.string();
  for (const Fields::Field& field : keys_of("model")) {
    if (field.key == "model.from") continue;
    expect_no_effect(kPlain, {from}, field.key, some_value(field), "model.from gives the shape");
  }
  expect_no_effect(kPlain, {from}, "latent.bits", "6", "model.from gives the shape");
  for (const Fields::Field& field : keys_of("latent")) {
    if (field.key == "latent.bits") continue;
    // Sampled and sharpened, so that what belongs to that has an effect.
    EXPECT_NO_THROW(read(kPlain, {from, "latent.gradient=sampled", "latent.sharpen_by=2",
                                  field.key + "=" + some_value(field)}))
        << field.key;
  }
}

TEST_F(TrainConfigTest, RefusesAnInitialTableBesideWeights) {
  write_model(true, folder.path() / "checkpoint" / "config.json");
  const std::string from = "model.from=" + (folder.path() / "checkpoint").string();
  expect_no_effect(kPlain, {from}, "latent.init", "bits", "model.from gives the weights");
  expect_no_effect(kPlain, {from}, "latent.encoder_init", "ahead", "model.from gives the weights");
  expect_no_effect(kPlain, {from}, "latent.wake_after", "5", "model.from gives the weights");
  EXPECT_NO_THROW(read(kPlain, {from, "latent.kappa_bits=1"}));
}

TEST_F(TrainConfigTest, RefusesTheLatentsSettingsBesideAPlainModelFrom) {
  write_model(false, folder.path() / "checkpoint" / "config.json");
  for (const fs::path& path :
       {folder.path() / "checkpoint", folder.path() / "checkpoint" / "config.json"}) {
    const std::string from = "model.from=" + path.string();
    expect_no_effect(kPlain, {from}, "latent.kappa_bits", "1",
                     "the model of model.from has no latent");
    expect_no_effect(kPlain, {from}, "evaluation.iwae_samples", "1",
                     "the model of model.from has no latent");
    EXPECT_NO_THROW(read(kPlain, {from}));
  }
}

TEST_F(TrainConfigTest, SaysWhatAPathLooksLike) {
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kInvalidArgument,
      "--set latent.beta_path=300: latent.beta_path is \"300\", expected points STEP:VALUE with "
      "steps that do not fall and values of 0 or more, then a STEP alone, like 1000:0 1300",
      read(kFree, {"latent.beta_path=300"}));
}

TEST_F(TrainConfigTest, RefusesAPathThatTheRunDoesNotGoToItsEnd) {
  EXPECT_NO_THROW(read(kFree, {"run.steps=100", "latent.kappa_path=50:0 99"}));
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kInvalidArgument,
      "--set latent.kappa_path=50:0 100: latent.kappa_path is \"50:0 100\", expected a last step "
      "before run.steps = 100: else the run ends on the way",
      read(kFree, {"run.steps=100", "latent.kappa_path=50:0 100"}));
}

TEST_F(TrainConfigTest, RefusesToSharpenWhenTheRunIsOver) {
  EXPECT_NO_THROW(read(kFree, {"run.steps=100", "latent.sharpen_by=4", "latent.sharpen_after=99"}));
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kInvalidArgument,
      "--set latent.sharpen_after=100: latent.sharpen_after is 100, expected 0 to below "
      "run.steps = 100",
      read(kFree, {"run.steps=100", "latent.sharpen_by=4", "latent.sharpen_after=100"}));
}

TEST_F(TrainConfigTest, RefusesALatentThatNeverWakes) {
  EXPECT_NO_THROW(read(kFree, {"run.steps=100", "latent.wake_after=99"}));
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kInvalidArgument,
      "--set latent.wake_after=100: latent.wake_after is 100, expected 0 to below run.steps = 100",
      read(kFree, {"run.steps=100", "latent.wake_after=100"}));
}

TEST_F(TrainConfigTest, RefusesToSharpenALatentThatSleeps) {
  const std::vector<std::string> settings = {"latent.wake_after=50", "latent.sharpen_by=4"};
  const auto with = [&](const char* last) {
    std::vector<std::string> all = settings;
    all.push_back(last);
    return all;
  };
  EXPECT_NO_THROW(read(kFree, with("latent.sharpen_after=50")));
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kInvalidArgument,
      "--set latent.sharpen_after=49: latent.sharpen_after is 49, expected latent.wake_after = 50 "
      "or more: before that there is nothing to sharpen",
      read(kFree, with("latent.sharpen_after=49")));
}

TEST_F(TrainConfigTest, RefusesAStepWithoutASharpening) {
  expect_no_effect(kFree, {}, "latent.sharpen_after", "8", "latent.sharpen_by is 1");
}

TEST_F(TrainConfigTest, RefusesAGroupBesideTheExactGradient) {
  expect_no_effect(kFree, {}, "latent.gradient_group", "8", "latent.gradient is \"exact\"");
  EXPECT_EQ(
      read(kFree, {"latent.gradient=sampled", "latent.gradient_group=8"}).latent.gradient_group, 8);
}

TEST_F(TrainConfigTest, RefusesSettingsOfAnEvaluationThatNeverComes) {
  for (const char* key : {"evaluation.rows", "evaluation.iwae_samples"}) {
    expect_no_effect(kFree, {"evaluation.every=0"}, key, "8", "evaluation.every is 0");
    EXPECT_NO_THROW(read(kFree, {std::string(key) + "=8"}));
  }
}

TEST_F(TrainConfigTest, RefusesToKeepCheckpointsThatAreNeverMade) {
  expect_no_effect(kPlain, {"checkpoints.every=0"}, "checkpoints.keep_every", "8",
                   "checkpoints.every is 0");
  EXPECT_NO_THROW(read(kPlain, {"checkpoints.keep_every=8"}));
}

TEST_F(TrainConfigTest, AShortRunHasAShortWarmUpUnlessToldOtherwise) {
  EXPECT_EQ(read(kPlain, {"run.steps=40"}).schedule.warmup_steps, 4);
  EXPECT_EQ(read(kPlain, {"run.steps=4000"}).schedule.warmup_steps, 100);
  EXPECT_EQ(read(kPlain, {"run.steps=40", "schedule.warmup_steps=40"}).schedule.warmup_steps, 40);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "schedule.warmup_steps is 41",
                          read(kPlain, {"run.steps=40", "schedule.warmup_steps=41"}));
}

TEST_F(TrainConfigTest, RefusesSettingsOfAnotherSchedule) {
  for (const char* kind : {"constant", "cosine", "linear"}) {
    expect_no_effect(kPlain, {std::string("schedule.kind=") + kind}, "schedule.decay_share", "0.2",
                     std::string("schedule.kind is \"") + kind + "\"");
  }
  expect_no_effect(kPlain, {"schedule.kind=constant"}, "schedule.final_factor", "0.2",
                   "schedule.kind is \"constant\"");
  EXPECT_NO_THROW(read(kPlain, {"schedule.kind=wsd", "schedule.decay_share=0.2"}));
}

TEST_F(TrainConfigTest, RefusesSettingsOfOtherData) {
  const auto expect_idle = [&](const std::string& kind, const std::vector<std::string>& keys) {
    for (const Fields::Field& field : keys_of("data")) {
      if (field.key == "data.kind") continue;
      const bool idle = std::find(keys.begin(), keys.end(), field.key.substr(5)) != keys.end();
      const std::string value = field.key == "data.paths" ? "a" : some_value(field);
      Assignments assignments{"data.kind=" + kind};
      if (kind == "text" || kind == "tokens") assignments.push_back("data.paths=a");
      if (idle) {
        expect_no_effect("", assignments, field.key, value, "data.kind is \"" + kind + "\"");
      } else {
        assignments.push_back(field.key + "=" + value);
        EXPECT_NO_THROW(read("", assignments)) << kind << ", " << field.key;
      }
    }
  };
  expect_idle("letters", {"paths", "context", "held_out", "documents", "separator", "coin_flip"});
  expect_idle("coin", {"paths", "held_out", "documents", "separator"});
  expect_idle("tokens", {"separator", "coin_flip"});
  expect_idle("text", {"coin_flip"});
}

// --- The resolved settings

TEST_F(TrainConfigTest, ResolvedSettingsReadBackAsThemselves) {
  const std::string from = "model.from=" + write_model(true, folder.path() / "free.json").string();
  write_model(false, folder.path() / "checkpoint" / "config.json");
  const std::string checkpoint = "model.from=" + (folder.path() / "checkpoint").string();
  for (const Assignments& assignments : std::vector<Assignments>{
           {"data.kind=letters"},
           {"data.kind=coin", "latent.bits=4"},
           {"data.kind=coin", "data.context=17", "model.vocab_size=300", "evaluation.every=0"},
           {"data.paths=a \"b\".txt,c\\d", "data.separator=\n\t\x01é", "run.folder=x y"},
           {"data.kind=tokens", "data.paths=a.bin", "latent.bits=20", "latent.kappa_bits=1/3",
            "latent.kappa_path=2:1e-7 3", "latent.beta_path=4:1/8 4:0 9", "latent.sharpen_by=5",
            "latent.sharpen_after=4", "schedule.kind=wsd", "run.recompute=true",
            "optimizer.learning_rate=3e-4", "evaluation.iwae_samples=8"},
           {"data.kind=letters", "schedule.kind=constant", from, "latent.kappa_bits=2"},
           {"data.kind=letters", checkpoint}}) {
    const std::string resolved = read("", assignments).resolved;
    EXPECT_EQ(read(resolved).resolved, resolved);
  }
}

TEST_F(TrainConfigTest, ResolvedSettingsHoldWhatHasAnEffectAndNoMore) {
  const std::string plain = read(kPlain, {"optimizer.beta1=1/4"}).resolved;
  EXPECT_THAT(plain, HasSubstr("beta1 = 0.25\n"));
  EXPECT_THAT(plain, HasSubstr("hidden_size = 256\n")) << "a default";
  EXPECT_THAT(plain, HasSubstr("[latent]\nbits = 0\n"));
  for (const char* idle :
       {"kappa_bits", "coin_flip", "iwae_samples", "decay_share", "table_factor"}) {
    EXPECT_THAT(plain, Not(HasSubstr(idle)));
  }
  const std::string free = read(kFree).resolved;
  EXPECT_THAT(free, HasSubstr("kappa_bits = 0.5\n"));
  EXPECT_THAT(free, HasSubstr("table_factor = 1.0\n"));
  EXPECT_THAT(free, HasSubstr("kappa_path = \"\"\n"));
}

TEST(ExplainTrainConfig, NamesEveryKeyUnderItsSection) {
  const std::string text = explain_train_config();
  TrainConfig config;
  const Fields fields = list_fields(config);
  for (const Fields::Field& field : fields.all()) {
    const size_t dot = field.key.find('.');
    const size_t section = text.find("[" + field.key.substr(0, dot) + "]\n");
    ASSERT_NE(section, text.npos) << field.key;
    const size_t end = std::min(text.find("\n[", section), text.size());
    const std::string lines = text.substr(section, end - section);
    EXPECT_THAT(lines, testing::ContainsRegex("\n  " + field.key.substr(dot + 1) + " += "));
    EXPECT_THAT(lines, HasSubstr(field.default_text));
    EXPECT_FALSE(field.help.empty()) << field.key;
  }
  EXPECT_GT(fields.all().size(), 50u);
}

// --- Batches

TEST(BatchSettings, RoundTokensToWholeRows) {
  const auto rows = [](int64_t tokens, int64_t T) {
    return BatchSettings{tokens, 0}.rows_per_step(T);
  };
  EXPECT_EQ(rows(16384, 256), 64);
  EXPECT_EQ(rows(100, 30), 3);
  EXPECT_EQ(rows(100, 40), 3) << "two and a half";
  EXPECT_EQ(rows(99, 40), 2);
  EXPECT_EQ(rows(4, 3), 1);
  EXPECT_EQ(rows(5, 3), 2);
  EXPECT_EQ(rows(100, 1), 100);
  EXPECT_EQ(rows(1, 256), 1) << "never none";
  EXPECT_EQ(rows(1'000'000'000, 1 << 24), 60);
}

TEST(BatchSettings, PassNoMoreRowsAtOnceThanAStepHas) {
  const auto rows = [](int64_t micro_rows) {
    return BatchSettings{640, micro_rows}.rows_per_pass(64);
  };
  EXPECT_EQ(rows(0), 10) << "all";
  EXPECT_EQ(rows(1), 1);
  EXPECT_EQ(rows(4), 4);
  EXPECT_EQ(rows(10), 10);
  EXPECT_EQ(rows(1'000'000), 10);
}

// --- The model

TEST_F(TrainConfigTest, DerivesTheSizesThatWereLeftOut) {
  const ModelConfig config = model_config(read(kPlain), 300, 128);
  EXPECT_EQ(config.vocab_size, 300) << "the data's";
  EXPECT_EQ(config.max_position_embeddings, 128) << "the data's";
  EXPECT_EQ(config.hidden_size, 256);
  EXPECT_EQ(config.intermediate_size, 704) << "682.7, rounded up to 32";
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_FALSE(config.latent.present());
  const auto intermediate = [&](const char* hidden_size) {
    return model_config(read(kPlain, {std::string("model.hidden_size=") + hidden_size}), 9, 9)
        .intermediate_size;
  };
  EXPECT_EQ(intermediate("96"), 256) << "nothing to round";
  EXPECT_EQ(intermediate("104"), 288);
  EXPECT_EQ(intermediate("8"), 32);
}

TEST_F(TrainConfigTest, TakesTheSizesThatWereGiven) {
  const ModelConfig config = model_config(
      read(kFree, {"model.vocab_size=512", "model.hidden_size=48", "model.intermediate_size=100",
                   "model.num_hidden_layers=2", "model.num_attention_heads=6",
                   "model.num_key_value_heads=3", "model.head_dim=10",
                   "model.max_position_embeddings=1000", "model.rms_norm_eps=1e-6",
                   "model.rope_theta=5e5", "model.initializer_range=0.1",
                   "model.tie_word_embeddings=false", "latent.kappa_bits=1/8"}),
      300, 128);
  ModelConfig expected;
  expected.vocab_size = 512;
  expected.hidden_size = 48;
  expected.intermediate_size = 100;
  expected.num_hidden_layers = 2;
  expected.num_attention_heads = 6;
  expected.num_key_value_heads = 3;
  expected.head_dim = 10;
  expected.max_position_embeddings = 1000;
  expected.rms_norm_eps = 1e-6;
  expected.rope_theta = 5e5;
  expected.initializer_range = 0.1;
  expected.tie_word_embeddings = false;
  expected.latent = {LatentKind::kBinary, 4, 0.125};
  EXPECT_EQ(config, expected);
}

TEST_F(TrainConfigTest, TakesTheShapeOfModelFromWithTheRunsKappa) {
  const fs::path free = write_model(true, folder.path() / "checkpoint" / "config.json");
  for (const fs::path& from : {free, free.parent_path()}) {
    ModelConfig expected = read_model_config(free);
    expected.latent.kappa_bits = 0.75;
    EXPECT_EQ(model_config(read(kPlain, {"model.from=" + from.string(), "latent.kappa_bits=0.75"}),
                           61, 64),
              expected);
  }
  const fs::path plain = write_model(false, folder.path() / "plain.json");
  EXPECT_EQ(model_config(read(kPlain, {"model.from=" + plain.string()}), 61, 64),
            read_model_config(plain));
}

TEST_F(TrainConfigTest, RefusesShapesThatDoNotFit) {
  const auto expect_refused = [&](const Assignments& assignments, const std::string& words) {
    EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, words, read(kFree, assignments));
  };
  expect_refused({"model.num_hidden_layers=3"},
                 "\"num_hidden_layers\" is 3, expected an even number");
  expect_refused({"model.num_attention_heads=3"},
                 "model.hidden_size 256 does not divide by model.num_attention_heads 3: give "
                 "model.head_dim");
  expect_refused({"model.num_key_value_heads=3"},
                 "\"num_attention_heads\" 4 does not divide by \"num_key_value_heads\" 3");
  expect_refused({"model.head_dim=7"}, "\"head_dim\" is 7, expected an even number");
  expect_refused({"model.num_attention_heads=0"}, "\"num_attention_heads\" is 0, expected 1 to");
  expect_refused({"model.vocab_size=-1"}, "\"vocab_size\" is -1, expected 1 to");
  expect_refused({"model.intermediate_size=-1"}, "\"intermediate_size\" is -1, expected 1 to");
  expect_refused({"model.rope_theta=0"}, "\"rope_theta\" is 0, expected a positive number");
  EXPECT_NO_THROW(read(kFree, {"model.num_attention_heads=3", "model.head_dim=64"}));
  EXPECT_NO_THROW(read(kPlain, {"model.num_hidden_layers=3"})) << "no latent, no middle";
}

TEST_F(TrainConfigTest, RefusesAVocabularySmallerThanTheDatas) {
  const TrainConfig config = read(kPlain, {"model.vocab_size=300"});
  EXPECT_EQ(model_config(config, 256, 8).vocab_size, 300);
  EXPECT_EQ(model_config(config, 300, 8).vocab_size, 300);
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kInvalidConfig,
      "model.vocab_size is 300, but the data has tokens up to 300: expected 301 or more",
      model_config(config, 301, 8));
  const fs::path plain = write_model(false, folder.path() / "plain.json");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig,
                          plain.string() + ": vocab_size is 61, but the data has tokens up to 61",
                          model_config(read(kPlain, {"model.from=" + plain.string()}), 62, 8));
}

TEST_F(TrainConfigTest, RefusesFewerPositionsThanTheDatasContext) {
  const TrainConfig config = read(kPlain, {"model.max_position_embeddings=65"});
  EXPECT_EQ(model_config(config, 9, 65).max_position_embeddings, 65);
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kInvalidConfig,
      "model.max_position_embeddings is 65, expected at least the data's context 66",
      model_config(config, 9, 66));
  const fs::path plain = write_model(false, folder.path() / "plain.json");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig,
                          plain.string() + ": max_position_embeddings is 64, expected at least",
                          model_config(read(kPlain, {"model.from=" + plain.string()}), 9, 65));
}

TEST_F(TrainConfigTest, NamesEverySettingThatChanged) {
  const std::string before = read(kPlain, {"run.steps=100"}).resolved;
  EXPECT_TRUE(changed_settings(before, before).empty());
  const auto changes = changed_settings(before, read(kPlain, {"run.steps=200"}).resolved);
  EXPECT_THAT(changes, testing::Contains("run.steps: 100 -> 200"));
}

TEST_F(TrainConfigTest, RefusesAModelFromThatIsNone) {
  const fs::path none = folder.path() / "none";
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, none.string() + ": cannot open: No such file",
                          read(kPlain, {"model.from=" + none.string()}));
  fs::create_directory(none);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "none/config.json: cannot open: No such file",
                          read(kPlain, {"model.from=" + none.string()}));
  write_file_atomically(none / "config.json", "{}");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, "none/config.json: \"model_type\" is",
                          read(kPlain, {"model.from=" + none.string()}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "File name too long",
                          read(kPlain, {"model.from=" + std::string(300, 'x')}));
}

}  // namespace
}  // namespace freeformer
