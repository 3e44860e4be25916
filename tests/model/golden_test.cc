#include "model/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "core/safetensors.h"
#include "expect_error.h"
#include "temporary_folder.h"

namespace freeformer {
namespace {

std::vector<std::string> cases() { return {"baseline-untied", "free-h10-untied", "free-h6-tied"}; }

std::filesystem::path case_folder(const std::string& name) {
  return std::filesystem::path(FREEFORMER_GOLDEN_DIR) / name;
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, AgreesInFp32) {
  const GoldenReport report = run_golden({.folder = case_folder(GetParam())});
  EXPECT_GT(report.errors.size(), 25u);
  for (const GoldenError& error : report.errors) {
    EXPECT_TRUE(error.passed()) << error.quantity << " is off by " << error.error;
  }
}

TEST_P(Golden, AgreesInBf16) {
  const GoldenReport report = run_golden({.folder = case_folder(GetParam()), .bf16 = true});
  for (const GoldenError& error : report.errors) {
    EXPECT_TRUE(error.passed()) << error.quantity << " is off by " << error.error;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, testing::ValuesIn(cases()), [](const auto& which) {
  std::string name = which.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// A copy of a case whose one weight, tensor[index], is changed.
void copy_with_change(const std::string& name, const std::string& tensor, size_t index,
                      const std::filesystem::path& to) {
  std::filesystem::copy(case_folder(name), to, std::filesystem::copy_options::recursive);
  size_t offset = 0;
  {
    const SafetensorsFile file(to / "model.safetensors");
    const TensorInfo* info = file.find(tensor);
    ASSERT_NE(info, nullptr);
    std::ifstream stream(to / "model.safetensors", std::ios::binary);
    uint64_t header = 0;
    stream.read(reinterpret_cast<char*>(&header), 8);
    offset = 8 + header + info->begin + 4 * index;
  }
  std::fstream stream(to / "model.safetensors", std::ios::binary | std::ios::in | std::ios::out);
  float value = 0;
  stream.seekg(std::streamoff(offset));
  stream.read(reinterpret_cast<char*>(&value), 4);
  value += 0.05f;
  stream.seekp(std::streamoff(offset));
  stream.write(reinterpret_cast<const char*>(&value), 4);
}

TEST(Golden, OneChangedWeightIsFoundAndNamed) {
  const TemporaryFolder folder;
  copy_with_change("free-h6-tied", "model.layers.3.mlp.up_proj.weight", 5, folder.path() / "case");
  const GoldenReport report = run_golden({.folder = folder.path() / "case"});
  EXPECT_FALSE(report.passed());
  for (const GoldenError& error : report.errors) {
    // The last block comes after the latent: the codes are as they were, the logits are not.
    if (error.quantity == "codes" || error.quantity == "bit_logits" || error.quantity == "kl") {
      EXPECT_TRUE(error.passed()) << error.quantity;
    }
    if (error.quantity == "logits") {
      EXPECT_FALSE(error.passed());
    }
  }
}

TEST(Golden, AMissingExpectationIsNamed) {
  const TemporaryFolder folder;
  std::filesystem::copy(case_folder("free-h6-tied"), folder.path() / "case");
  write_safetensors(folder.path() / "case/expected.safetensors", {});
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "expected.safetensors: has no tensor",
                          run_golden({.folder = folder.path() / "case"}));
}

TEST(Golden, AnUnknownDeviceIsOneLine) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "device \"abacus\"",
                          run_golden({.folder = case_folder("free-h6-tied"), .device = "abacus"}));
}

}  // namespace
}  // namespace freeformer
