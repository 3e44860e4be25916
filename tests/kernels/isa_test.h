// Runs a test once per instruction set that this machine offers.
#pragma once

#include <gtest/gtest.h>

#include "kernels/cpu.h"
#include "kernels/parallel.h"

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

// Kernels run on the calling thread alone while it lives.
class OneThread {
 public:
  OneThread() { set_thread_count(1); }
  ~OneThread() { set_thread_count(before_); }

 private:
  int before_ = thread_count();
};

inline std::string isa_name(const testing::TestParamInfo<std::string>& info) { return info.param; }

}  // namespace freeformer::kernels
