#include "train/batches.h"

#include "core/error.h"

namespace freeformer {

TrainingBatch make_batch(const std::vector<Row>& rows, torch::Device device) {
  const auto B = int64_t(rows.size()), T = int64_t(rows[0].tokens.size()) - 1;
  Tensor tokens_BT = at::empty({B, T}, at::kLong), targets_BT = at::empty({B, T}, at::kLong);
  Tensor documents_BT;
  for (const Row& row : rows) {
    if (!row.documents.empty()) documents_BT = at::zeros({B, T}, at::kLong);
  }
  TrainingBatch result;
  for (int64_t b = 0; b < B; ++b) {
    const Row& row = rows[size_t(b)];
    FF_CHECK(int64_t(row.tokens.size()) == T + 1);
    int64_t* tokens = tokens_BT.data_ptr<int64_t>() + b * T;
    int64_t* targets = targets_BT.data_ptr<int64_t>() + b * T;
    for (int64_t t = 0; t < T; ++t) {
      tokens[t] = row.tokens[size_t(t)];
      bool counts = true;
      if (!row.documents.empty()) {
        const int32_t here = row.documents[size_t(t)], next = row.documents[size_t(t + 1)];
        counts = here == next && here >= 0;
        // A document's last token predicts nothing, so nobody reads it: the encoder sees what the
        // decoder sees, and every code that is paid for is followed by a prediction.
        documents_BT.data_ptr<int64_t>()[b * T + t] = counts ? here : -1;
      }
      targets[t] = counts ? row.tokens[size_t(t + 1)] : ops::kIgnoredTarget;
      result.target_count += counts;
    }
  }
  result.batch.tokens_BT = tokens_BT.to(device);
  result.targets_BT = targets_BT.to(device);
  if (documents_BT.defined()) result.batch.documents_BT = documents_BT.to(device);
  return result;
}

}  // namespace freeformer
