// Rows of data as tensors.
#pragma once

#include <vector>

#include "data/data_source.h"
#include "model/free_transformer.h"

namespace freeformer {

struct TrainingBatch {
  Batch batch;
  Tensor targets_BT;
  int64_t target_count = 0;  // that count
};

// Rows of equal length T+1. A target does not count where it is of another document than the token
// before it, or padding.
TrainingBatch make_batch(const std::vector<Row>& rows, torch::Device device);

}  // namespace freeformer
