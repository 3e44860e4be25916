// The operations of layers.h through our own CPU kernels, with their gradients: what layers.h picks
// where it can. Inputs are dense CPU tensors of one dtype, fp32 or bf16.
#pragma once

#include "ops/layers.h"
#include "ops/torch.h"

namespace freeformer::ops::fused {

// Attention has one run of keys for each query.
bool takes(const AttentionScope& scope, int64_t queries, int64_t keys);

Tensor linear(const Tensor& x, const Tensor& weight);
Tensor embedding(const Tensor& index_BT, const Tensor& table);
Tensor rms_norm(const Tensor& x, const Tensor& weight_D, double eps);
Tensor rope(const Tensor& x_BTNH, const RotaryTable& table);
Tensor attention(const Tensor& q_BTNH, const Tensor& k_BSKH, const Tensor& v_BSKH,
                 const AttentionScope& scope);
Tensor swiglu(const Tensor& gate, const Tensor& up);
Tensor linear_cross_entropy(const Tensor& x_MD, const Tensor& weight_VD, const Tensor& targets_M);

}  // namespace freeformer::ops::fused
