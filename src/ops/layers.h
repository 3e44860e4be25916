// The operations a transformer block is made of. Each picks an implementation by device, dtype and
// shape; the model that calls them does not know which. Norms, softmax and losses are computed in
// fp32 (fp64 for fp64 inputs) whatever the dtype of the weights.
#pragma once

#include "ops/torch.h"

namespace freeformer::ops {

// Whether our own CPU kernels are used where there are any; at first they are. For comparisons.
void use_kernels(bool on);
// Whether they are used for such tensors: on the CPU, all fp32 or all bf16.
bool has_kernels_for(std::initializer_list<Tensor> tensors);

// x · weightᵀ
Tensor linear(const Tensor& x, const Tensor& weight);

// Rows of the table: [B, T, D].
Tensor embedding(const Tensor& index_BT, const Tensor& table);

// x · weight / sqrt(mean(x²) + eps) over the last dimension.
Tensor rms_norm(const Tensor& x, const Tensor& weight_D, double eps);

// Cosines and sines for rotary position embedding, made once for a forward pass.
struct RotaryTable {
  Tensor cos_BTH2, sin_BTH2;  // [B or 1, T, H/2]
};
RotaryTable rotary_table(const Tensor& positions_BT, int64_t head_dim, double theta,
                         at::ScalarType dtype);

// Rotates the pairs (x_i, x_{i+H/2}) of every head: the rotate-half convention of Hugging Face.
Tensor rope(const Tensor& x_BTNH, const RotaryTable& table);

// Who may look at whom. Without documents everybody is in the same one.
struct AttentionScope {
  bool causal = true;
  Tensor documents_BT;  // int64, or undefined: positions see only positions of their own document
};

// softmax(q·k / sqrt(H)) v; query head n reads key-value head n·K/N. Returns [B, T, N, H].
Tensor attention(const Tensor& q_BTNH, const Tensor& k_BSKH, const Tensor& v_BSKH,
                 const AttentionScope& scope);

// silu(gate) · up
Tensor swiglu(const Tensor& gate, const Tensor& up);

// A target that does not count (PyTorch's value).
inline constexpr int64_t kIgnoredTarget = -100;

// -log softmax(x · weightᵀ)[target] for every row, in nats; 0 where the target is ignored. [M].
Tensor linear_cross_entropy(const Tensor& x_MD, const Tensor& weight_VD, const Tensor& targets_M);

// Documents packed in the rows of a batch: each run of equal ids is one, also where an id returns.
struct DocumentLayout {
  Tensor positions_BT;  // 0, 1, 2, … from the start of each document
  Tensor runs_BT;       // the number of the document in its row
};
DocumentLayout document_layout(const Tensor& documents_BT);

}  // namespace freeformer::ops
