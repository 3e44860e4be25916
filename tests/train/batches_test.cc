#include "train/batches.h"

#include <gtest/gtest.h>

namespace freeformer {
namespace {

std::vector<int64_t> values(const Tensor& tensor) {
  const Tensor flat = tensor.contiguous().view(-1);
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

TEST(Batches, ARowOfOneDocumentIsShiftedByOne) {
  const TrainingBatch batch = make_batch({{{5, 6, 7, 8}, {}}, {{1, 2, 3, 4}, {}}}, at::kCPU);
  EXPECT_EQ(values(batch.batch.tokens_BT), (std::vector<int64_t>{5, 6, 7, 1, 2, 3}));
  EXPECT_EQ(values(batch.targets_BT), (std::vector<int64_t>{6, 7, 8, 2, 3, 4}));
  EXPECT_EQ(batch.target_count, 6);
  EXPECT_FALSE(batch.batch.documents_BT.defined());
}

TEST(Batches, NothingIsPredictedAcrossDocumentsOrFromPadding) {
  const TrainingBatch batch = make_batch(
      {{{5, 6, 7, 8, 9}, {0, 0, 1, 1, 1}}, {{1, 2, 0, 0, 0}, {0, 0, -1, -1, -1}}}, at::kCPU);
  constexpr int64_t no = ops::kIgnoredTarget;
  EXPECT_EQ(values(batch.targets_BT), (std::vector<int64_t>{6, no, 8, 9, 2, no, no, no}));
  EXPECT_EQ(values(batch.batch.documents_BT), (std::vector<int64_t>{0, -1, 1, 1, 0, -1, -1, -1}));
  EXPECT_EQ(batch.target_count, 4);
}

}  // namespace
}  // namespace freeformer
