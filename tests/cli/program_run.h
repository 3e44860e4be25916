// Running the program itself, as a user does.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "core/file.h"
#include "temporary_folder.h"

namespace freeformer {

// Sections of a settings file: a model that trains in no time.
inline constexpr const char* kTinyModel = R"(
[data]
kind = "letters"
[model]
hidden_size = 16
num_hidden_layers = 2
num_attention_heads = 2
[latent]
bits = 4
)";

struct Outcome {
  int status;
  std::string out, err;
};

inline Outcome run(const std::string& arguments, const std::string& environment = "",
                   const std::string& input = "/dev/null") {
  const TemporaryFolder folder;
  const std::string out = folder.path() / "out", err = folder.path() / "err";
  const int code = std::system((environment + " " + FREEFORMER_PROGRAM + " " + arguments + " >" +
                                out + " 2>" + err + " <" + input)
                                   .c_str());
  return {WIFEXITED(code) ? WEXITSTATUS(code) : -1, read_text_file(out), read_text_file(err)};
}

inline void expect_one_line_error(const Outcome& outcome, int status, const std::string& words) {
  EXPECT_EQ(outcome.status, status) << outcome.err;
  EXPECT_THAT(outcome.err, testing::StartsWith("freeformer"));
  EXPECT_THAT(outcome.err, testing::HasSubstr(words));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

}  // namespace freeformer
