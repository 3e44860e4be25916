// Runs a test once per instruction set that this machine offers.
#pragma once

#include <gtest/gtest.h>

#include "kernels/cpu.h"

namespace freeformer::kernels {

class IsaTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    before_ = active_isa();
    force_isa(GetParam());
  }
  void TearDown() override { force_isa(before_); }

 private:
  std::string before_;
};

inline std::string isa_name(const testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace freeformer::kernels
