// train, generate, encode and likelihood through the command line, on a tiny model.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "core/json.h"
#include "program_run.h"
#include "text/token_file.h"

namespace freeformer {
namespace {

using testing::HasSubstr;

const std::string kTiny = std::string(R"(
[run]
steps = 3
)") + kTinyModel + R"(
[batch]
tokens_per_step = 130
[schedule]
warmup_steps = 1
[evaluation]
every = 3
rows = 2
[logging]
every = 1
gemm_share = false
)";

TEST(TrainCommand, ExplainsEveryKeyWithoutLibTorch) {
  const Outcome outcome = run("train --explain");
  EXPECT_EQ(outcome.status, 0);
  for (const char* key :
       {"kappa_bits", "tokens_per_step", "keep_every", "held_out", "warmup_steps"}) {
    EXPECT_THAT(outcome.out, HasSubstr(key));
  }
}

// Everything that is wrong with a run's settings is one line, before anything is made.
TEST(TrainCommand, MistakesAreOneLineEach) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "tiny.toml";
  write_file_atomically(file, kTiny);
  const auto train = [&](const std::string& more) { return run("train " + file + " " + more); };
  expect_one_line_error(run("train"), 2, "expected a settings file");
  expect_one_line_error(run("train /nowhere.toml"), 1, "/nowhere.toml: cannot open");
  expect_one_line_error(train("--set latent.kapa_bits=1"), 2, "did you mean \"latent.kappa_bits\"");
  expect_one_line_error(train("--set run.steps=many"), 2, "run.steps");
  expect_one_line_error(train("--set model.num_hidden_layers=3"), 1, "num_hidden_layers");
  expect_one_line_error(train("--set latent.bits=21"), 2, "latent.bits is 21, expected 0 to 20");
  expect_one_line_error(train("--set latent.bits=0 --set latent.kappa_bits=1"), 2, "no effect");
  write_file_atomically(folder.path() / "bad.toml", kTiny + "[optimiser]\nlearning_rate = 1\n");
  expect_one_line_error(run("train " + (folder.path() / "bad.toml").string()), 1, "bad.toml:");
  EXPECT_FALSE(std::filesystem::exists("runs/tiny"));
}

TEST(TrainCommand, PrintsTheSettingsItWouldUse) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "tiny.toml";
  write_file_atomically(file, kTiny);
  const Outcome outcome = run("train " + file + " --set latent.kappa_bits=1/8 --print-config");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("kappa_bits = 0.125"));
}

#if FREEFORMER_HAS_TORCH

// One model for all tests of this file, made by the program itself.
class ModelCommands : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    write_file_atomically(path("tiny.toml"), kTiny);
    free_ = train("free", "");
    write_file_atomically(path("plain.toml"),
                          std::string(kTiny).replace(kTiny.find("[latent]"), 18, ""));
    plain_ = train("plain", "");
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string path(const std::string& name) { return folder_->path() / name; }
  static std::string train(const std::string& name, const std::string& more) {
    const std::string settings = name == "plain" ? "plain.toml" : "tiny.toml";
    const Outcome outcome =
        run("train " + path(settings) + " --json --set run.folder=" + path(name) + " " + more);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(Json::parse(outcome.out)["finished"].get<bool>());
    return path(name) + "/checkpoints/latest";
  }

  static TemporaryFolder* folder_;
  static std::string free_, plain_;
};
TemporaryFolder* ModelCommands::folder_ = nullptr;
std::string ModelCommands::free_, ModelCommands::plain_;

TEST_F(ModelCommands, AFinishedRunHasNothingLeftToDo) {
  const Outcome again = run("train " + path("tiny.toml") + " --set run.folder=" + path("free"));
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("resuming from"));
  EXPECT_THAT(again.out, HasSubstr("step-3"));
  expect_one_line_error(
      run("train -q " + path("tiny.toml") + " --resume no --set run.folder=" + path("free")), 2,
      "holds a run that reached step 3");
}

TEST_F(ModelCommands, TextGoesToStdoutAndNothingElse) {
  const Outcome outcome = run("generate -m " + free_ + " -p 'K>' -n 20 --seed 3");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out.size(), 23u);  // prompt, twenty characters, a line break
  EXPECT_TRUE(outcome.out.starts_with("K>"));
  EXPECT_EQ(outcome.err, "");
}

TEST_F(ModelCommands, TheSameSeedGivesTheSameBytesWithOneAndTwoThreads) {
  const std::string command = "generate -m " + free_ + " -p 'K>' -n 60 --count 3 --json --seed 3";
  const Outcome first = run(command);
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(run(command).out, first.out);
  const std::string text = "generate -m " + free_ + " -p 'K>' -n 60 --count 3 --seed 3";
  EXPECT_EQ(run(text + " -t 1").out, run(text + " -t 2").out);
  EXPECT_EQ(run(text + " --no-cache").out, run(text).out);
  EXPECT_NE(run("generate -m " + free_ + " -p 'K>' -n 60 --count 3 --seed 4").out, run(text).out);
}

TEST_F(ModelCommands, SequencesOfOneSeedPolicyShareTheirCodes) {
  const auto codes = [&](const std::string& policy) {
    const Outcome outcome =
        run("generate -m " + free_ + " -p 'K>' -n 9 --count 2 --json --z " + policy);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const size_t line = outcome.out.find('\n');
    return std::pair(Json::parse(outcome.out.substr(0, line))["codes"],
                     Json::parse(outcome.out.substr(line + 1))["codes"]);
  };
  const auto shared = codes("seed:5"), own = codes("prior"), given = codes("code:3");
  EXPECT_EQ(shared.first, shared.second);
  EXPECT_NE(own.first, own.second);
  EXPECT_EQ(given.first, Json(std::vector<int>(9, 3)));
}

TEST_F(ModelCommands, ThePromptComesFromStdinAFileOrTokens) {
  write_file_atomically(path("prompt"), "K>");
  const std::string model = "generate -m " + free_ + " -n 8 ";
  const std::string expected = run(model + "-p 'K>'").out;
  EXPECT_EQ(run(model, "", path("prompt")).out, expected);
  EXPECT_EQ(run(model + "-f " + path("prompt")).out, expected);
  EXPECT_EQ(run(model + "-f /dev/stdin", "", path("prompt")).out, expected);
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  std::thread writer([pipe = path("pipe")] { std::ofstream(pipe) << "K>"; });
  EXPECT_EQ(run(model + "-f " + path("pipe")).out, expected);
  writer.join();
  EXPECT_EQ(run(model + "--tokens 10,26").out, expected);
  expect_one_line_error(run(model), 2, "the prompt is empty");  // stdin is /dev/null
  expect_one_line_error(run(model + "-p x"), 2, "which the vocabulary of 29 bytes lacks");
  expect_one_line_error(run(model + "-p A -f " + path("prompt")), 2, "expected one of them");
}

TEST_F(ModelCommands, GenerateRefusesWhatHasNoEffectOrNoMeaning) {
  expect_one_line_error(run("generate -m " + plain_ + " -p 'K>' --z prior"), 2, "plain decoder");
  expect_one_line_error(run("generate -m " + free_ + " -p 'K>' --z poster"), 2, "posterior");
  expect_one_line_error(run("generate -m " + free_ + " -p 'K>' --z code:99"), 2, "99");
  expect_one_line_error(run("generate -m " + free_ + " -p 'K>' --top-p 2"), 2, "--top-p");
  expect_one_line_error(run("generate -m " + free_ + " -p 'K>' --logprobs 3"), 2, "--json");
  expect_one_line_error(run("generate -m /nowhere -p A"), 1, "/nowhere: not a folder");
  expect_one_line_error(run("generate -p A"), 2, "--model");
  expect_one_line_error(run("generate -m " + free_ + " --tokens 10,26 -e"), 2, "no effect");
  for (const char* seed : {"-1", "18446744073709551616", "1x", "0.5"}) {
    expect_one_line_error(run("generate -m " + free_ + " -p 'K>' --seed=" + seed), 2, "2^64-1");
  }
  EXPECT_EQ(run("generate -m " + free_ + " -p 'K>' -n 1 -s 18446744073709551615").status, 0);
}

TEST_F(ModelCommands, WhatEncodePrintsGenerateTakes) {
  const Outcome encoded = run("encode -m " + free_ + " --json 'K>____KKKKKKKK'");
  ASSERT_EQ(encoded.status, 0) << encoded.err;
  const Json json = Json::parse(encoded.out);
  EXPECT_EQ(json["codes"].size(), 14u);
  EXPECT_EQ(json["probabilities"][0].size(), 4u);
  write_file_atomically(path("codes.json"), encoded.out);
  const Json generated = Json::parse(
      run("generate -m " + free_ + " -p 'K>' -n 3 --json --z file:" + path("codes.json")).out);
  EXPECT_EQ(generated["prompt_codes"][0], json["codes"][0]);
  EXPECT_EQ(generated["codes"][0], json["codes"][1]);  // told from the last prompt position
  EXPECT_THAT(run("encode -m " + free_ + " 'K>___'").out, HasSubstr("mean KL"));
  EXPECT_THAT(run("encode -m " + free_ + " --colour 'K>___'").out, HasSubstr("\033["));
  expect_one_line_error(run("encode -m " + plain_ + " A"), 2, "plain decoder");
  expect_one_line_error(run("encode -m " + free_ + " --json --colour A"), 2, "no effect");
}

TEST_F(ModelCommands, LikelihoodNamesEachBoundAndRefusesToCompareThePosteriors) {
  std::string text;
  for (int i = 0; i < 8; ++i)
    text += "K>____KKKKKKKK___!__________________________________________________";
  write_file_atomically(path("text"), text);
  const Outcome free = run("likelihood -q --json --iwae 3 -m " + free_ + " " + path("text"));
  ASSERT_EQ(free.status, 0) << free.err;
  const Json json = Json::parse(free.out);
  for (const char* key : {"posterior_ce", "elbo", "iwae", "prior_ce"}) {
    EXPECT_GT(json[key]["standard_error"].get<double>(), 0) << key;
  }
  EXPECT_FALSE(json.contains("ce"));
  EXPECT_EQ(json["tokens"], text.size() - 1);
  const Json plain = Json::parse(run("likelihood -q --json -m " + plain_ + " " + path("text")).out);
  EXPECT_TRUE(plain.contains("ce"));
  EXPECT_FALSE(plain.contains("elbo"));
  const std::string both = "likelihood -q -m " + plain_ + " -m " + free_ + " " + path("text");
  expect_one_line_error(run(both + " --compare posterior_ce"), 2,
                        "the encoder has read the answer");
  EXPECT_THAT(run(both + " --compare elbo").out, HasSubstr(" minus "));
  const std::string one = "likelihood -q " + path("text") + " -m ";
  expect_one_line_error(run(one + plain_ + " --iwae 3"), 2, "plain decoder");
  for (const char* option : {"--iwae", "--context", "--limit"}) {
    expect_one_line_error(run(one + free_ + " " + option + " 0"), 2, "is 0, expected 1 or more");
  }
}

TEST_F(ModelCommands, LikelihoodScoresACompletionAfterAPrompt) {
  write_file_atomically(path("completion"), "____KKKK");
  const std::string command = "likelihood -q --json -p 'K>' ";
  const auto score = [&](const std::string& more) {
    const Outcome outcome = run(command + more + " " + path("completion"));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return Json::parse(outcome.out);
  };
  const Json free = score("--z-samples 3 -m " + free_), plain = score("-m " + plain_);
  EXPECT_LT(free["log_likelihood"].get<double>(), 0);
  EXPECT_EQ(free["completion_tokens"], 8);
  EXPECT_EQ(free["z_samples"], 3);
  EXPECT_FALSE(plain.contains("z_samples"));
  EXPECT_EQ(score("--z-samples 3 -m " + free_), free);
  expect_one_line_error(run(command + "--iwae 3 -m " + free_ + " " + path("completion")), 2,
                        "--iwae has no effect with --prompt");
}

TEST_F(ModelCommands, DataThatDoesNotFitIsOneLineAndLeavesNoRun) {
  const auto train = [&](const std::string& data) {
    return run("train -q " + path("text.toml") + " --set run.folder=" + path("new") + " " + data);
  };
  std::string settings = kTiny;
  settings.replace(settings.find("kind = \"letters\""), 16, "kind = \"tokens\"\ncontext = 8");
  write_file_atomically(path("text.toml"), settings);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 500; ++i) tokens.push_back(i % 50);
  write_token_file(path("data.bin"), tokens, 50, "none", {0});
  expect_one_line_error(train("--set data.paths=/nowhere.bin"), 1, "/nowhere.");
  expect_one_line_error(train("--set model.vocab_size=40 --set data.paths=" + path("data.bin")), 1,
                        "model.vocab_size is 40");
  std::filesystem::resize_file(path("data.bin"), 600);
  expect_one_line_error(train("--set data.paths=" + path("data.bin")), 1, "data.bin");
  EXPECT_FALSE(std::filesystem::exists(path("new")));
}

#else

TEST(ModelCommands, WithoutLibTorchTheySayHowToGetIt) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "tiny.toml";
  write_file_atomically(file, kTiny);
  expect_one_line_error(run("train " + file), 1, "FREEFORMER_TRAIN=ON");
  expect_one_line_error(run("generate -m x -p y"), 1, "FREEFORMER_TRAIN=ON");
}

#endif

}  // namespace
}  // namespace freeformer
