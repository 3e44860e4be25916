#include "kernels/cpu.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "kernels/parallel.h"

namespace freeformer::kernels {
namespace {

TEST(Cpu, OffersScalarCodeEverywhere) { EXPECT_EQ(supported_isas().back(), "scalar"); }

TEST(Cpu, ForcingAnUnknownIsaNamesThoseOffered) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "scalar", force_isa("mmx"));
}

TEST(Cpu, TheForcedIsaIsTheActiveOne) {
  const std::string before = active_isa();
  for (const std::string& isa : supported_isas()) {
    force_isa(isa);
    EXPECT_EQ(active_isa(), isa);
  }
  force_isa(before);
}

TEST(Cpu, CountsAtLeastOneCore) { EXPECT_GE(physical_core_count(), 1); }

TEST(Parallel, CoversTheRangeOnceWithPiecesOfTheGrain) {
  const int before = thread_count();
  for (const int threads : {1, 2, 3, 8}) {
    set_thread_count(threads);
    for (const int64_t count : {0, 1, 7, 8, 9, 64, 1000}) {
      std::vector<int> visits(size_t(count), 0);
      parallel_for(count, 8, [&](int64_t begin, int64_t end) {
        EXPECT_EQ(begin % 8, 0);
        for (int64_t i = begin; i < end; ++i) ++visits[size_t(i)];
      });
      EXPECT_EQ(std::count(visits.begin(), visits.end(), 1), count);
    }
  }
  set_thread_count(before);
}

TEST(Parallel, AnExceptionInAPieceReachesTheCaller) {
  const int before = thread_count();
  set_thread_count(2);
  EXPECT_THROW(parallel_for(100, 1,
                            [](int64_t begin, int64_t) {
                              if (begin > 0) throw std::runtime_error("piece");
                            }),
               std::runtime_error);
  set_thread_count(before);
}

TEST(Parallel, RefusesAnAbsurdNumberOfThreads) {
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, "0 threads", set_thread_count(0));
}

}  // namespace
}  // namespace freeformer::kernels
