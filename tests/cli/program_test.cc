// The program through its command line: output, exit status, one-line errors, start-up time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/file.h"
#include "core/json.h"
#include "program_run.h"
#include "temporary_folder.h"

namespace freeformer {
namespace {

using testing::HasSubstr;

std::string golden(const std::string& name) {
  return std::string(FREEFORMER_GOLDEN_DIR) + "/" + name;
}

TEST(Program, HelpListsTheCommands) {
  const Outcome outcome = run("--help");
  EXPECT_EQ(outcome.status, 0);
  for (const char* command :
       {"train", "generate", "encode", "likelihood", "info", "selftest", "bench"}) {
    EXPECT_THAT(outcome.out, HasSubstr(command));
    const Outcome help = run(std::string(command) + " --help");
    EXPECT_EQ(help.status, 0) << command;
    EXPECT_THAT(help.out, HasSubstr("freeformer " + std::string(command))) << "no example";
  }
}

TEST(Program, MisuseIsStatusTwoAndOneLine) {
  EXPECT_EQ(run("").status, 2);
  expect_one_line_error(run("selftst"), 2, "did you mean \"selftest\"?");
  expect_one_line_error(run("info --jsn"), 2, "--jsn");
  expect_one_line_error(run("bench"), 2, "mapper");
  expect_one_line_error(run("bench gemm"), 2, "gemm");
  expect_one_line_error(run("bench mapper --bits 40"), 2, "bits");
  expect_one_line_error(run("info", "FREEFORMER_CPU_ISA=mmx"), 2, "this processor offers");
}

TEST(Program, FailureIsStatusOneAndOneLine) {
  expect_one_line_error(run("info /nowhere"), 1, "/nowhere: not a folder");
  const TemporaryFolder folder;
  std::filesystem::copy(golden("free-h6-tied"), folder.path() / "case");
  std::filesystem::resize_file(folder.path() / "case/model.safetensors", 5000);
  expect_one_line_error(run("info " + (folder.path() / "case").string()), 1, "truncated");
}

TEST(Program, AFullOrClosedStreamIsAFailureAndNeverACrash) {
  const auto status = [](const std::string& words) {
    const int code = std::system((std::string(FREEFORMER_PROGRAM) + " " + words).c_str());
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
  };
  for (const char* command : {"info", "--help", "--version"}) {
    EXPECT_EQ(status(std::string(command) + " >/dev/full 2>/dev/null"), 1) << command;
  }
  EXPECT_EQ(status("nonsense 2>&-"), 2);
  EXPECT_EQ(status("nonsense 2>/dev/full"), 2);
  EXPECT_EQ(status("info /nowhere 2>&-"), 1);
}

TEST(Program, OddWordsStillGetOneLine) {
  expect_one_line_error(run("\"$(printf 'a\\nb\\033[31m')\""), 2, "no command 'a?b?[31m'");
  expect_one_line_error(run("info ''"), 2, "the path is empty");
  expect_one_line_error(run("info " + std::string(5000, 'A')), 1, "not a folder");
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "caf\xe9").string();  // Latin-1, not UTF-8
  std::filesystem::copy(golden("free-h6-tied"), path);
  const Outcome outcome = run("info --json " + path);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(Json::parse(outcome.out)["model"]["config"]["latent"]["bits"], 6);
}

TEST(Program, BenchRefusesWhatTheMachineCannotHold) {
  expect_one_line_error(run("bench mapper --bits 20 --dim 65536 --tokens 1000000"), 1,
                        "fewer --tokens");
}

TEST(Program, InfoDescribesMachineAndCheckpoint) {
  const Outcome text = run("info " + golden("free-h6-tied"));
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.out, HasSubstr("Free Transformer"));
  EXPECT_THAT(text.out, HasSubstr("6 bits a token (64 codes)"));
  const Json json = Json::parse(run("info --json " + golden("free-h6-tied")).out);
  EXPECT_EQ(json["model"]["config"]["latent"]["bits"], 6);
  int64_t sum = 0;
  for (const auto& [part, count] : json["model"]["parameters_by_part"].items()) {
    sum += count.get<int64_t>();
  }
  EXPECT_EQ(json["model"]["parameters"], sum);
  EXPECT_EQ(json["model"]["weight_bytes"], 4 * sum);
  EXPECT_FALSE(json["machine"]["isa"].get<std::string>().empty());
}

TEST(Program, InfoSizesTheShippedConfigurations) {
  const auto parameters = [](const std::string& name) {
    const std::string path = FREEFORMER_SOURCE_DIR "/configs/models/" + name;
    return Json::parse(run("info --json " + path).out)["model"]["parameters"].get<int64_t>();
  };
  for (const char* size : {"1.5b", "8b"}) {
    const int64_t layers = size[0] == '8' ? 32 : 28, D = size[0] == '8' ? 4096 : 1536;
    const int64_t free = parameters(fmt::format("free-{}.json", size));
    const int64_t plain = parameters(fmt::format("plain-{}.json", size));
    // What the paper promises on top: one block in L, plus the read-out and the table of codes.
    const int64_t embeddings = (size[0] == '8' ? 2 : 1) * 131072 * D;
    const int64_t block = (plain - embeddings - D) / layers;
    EXPECT_EQ(free - plain, block + D + D + 16 * D + 65536 * D) << size;
  }
}

TEST(Program, AForcedIsaIsUsed) {
  const Json json = Json::parse(run("info --json", "FREEFORMER_CPU_ISA=scalar").out);
  EXPECT_EQ(json["machine"]["isa"], "scalar");
}

#ifndef __SANITIZE_ADDRESS__  // whose own start takes that long

// Processor time of all children so far: unlike the clock it does not see what else is running.
double children_seconds() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(Program, StartsInMillisecondsWithoutLibTorch) {
  // Loading LibTorch would take ten times the limit.
  for (const char* command : {"--help", "info"}) {
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const double before = children_seconds();
      EXPECT_EQ(run(command).status, 0);
      best = std::min(best, children_seconds() - before);
    }
    EXPECT_GT(best, 0);
    EXPECT_LT(best, 0.050) << command;
  }
}

#endif

TEST(Program, LinksNoLibTorch) {
  const TemporaryFolder folder;
  const std::string out = folder.path() / "out";
  ASSERT_EQ(std::system(("ldd " FREEFORMER_PROGRAM " >" + out).c_str()), 0);
  const std::string libraries = read_text_file(out);
  EXPECT_THAT(libraries, HasSubstr("libc.so"));
  EXPECT_EQ(libraries.find("torch"), std::string::npos) << libraries;
}

TEST(Program, BenchMapperPrintsOneLinePerSize) {
  const Outcome outcome =
      run("bench mapper --bits 4 6 --dim 16 --tokens 64 --repeats 1 --dtype fp32 --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 2);
  const Json line = Json::parse(outcome.out.substr(0, outcome.out.find('\n')));
  EXPECT_EQ(line["bits"], 4);
  EXPECT_GT(line["ratio_to_gemm"].get<double>(), 0);
}

#if FREEFORMER_HAS_TORCH

TEST(Program, SelftestPassesTheShippedCases) {
  const Outcome outcome = run("selftest --json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3);
  const Json first = Json::parse(outcome.out.substr(0, outcome.out.find('\n')));
  EXPECT_TRUE(first["passed"].get<bool>());
  EXPECT_LT(first["errors"]["logits"]["error"].get<double>(), 1e-5);
}

TEST(Program, SelftestFailsOnAChangedExpectationAndNamesIt) {
  const TemporaryFolder folder;
  std::filesystem::copy(golden("free-h6-tied"), folder.path() / "case");
  // The golden file's last bytes belong to a gradient; turn one float into a large one.
  std::fstream file(folder.path() / "case/expected.safetensors",
                    std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-1, std::ios::end);
  file.put('\x7e');
  file.close();
  const Outcome outcome = run("selftest --golden " + (folder.path() / "case").string());
  expect_one_line_error(outcome, 1, "off, first: grad.");
  EXPECT_THAT(outcome.out, HasSubstr("OFF"));
}

TEST(Program, SelftestOnSomethingElseIsOneLine) {
  expect_one_line_error(run("selftest --golden /nowhere"), 1, "/nowhere");
}

#else

TEST(Program, WithoutLibTorchSelftestSaysHowToGetIt) {
  expect_one_line_error(run("selftest"), 1, "FREEFORMER_TRAIN=ON");
}

#endif

}  // namespace
}  // namespace freeformer
