// The letters of tensor shapes, one meaning each in the whole project. A name carries its shape as
// a suffix: x_BTD, q_BTNH, logits_BTV. The paper's H (bits) is Z here.
//
//   B  sequences in the batch          N  query heads        (num_attention_heads)
//   T  positions computed now          K  key-value heads    (num_key_value_heads)
//   S  positions that can be attended  H  head dimension     (head_dim)
//   D  model dimension  (hidden_size)  V  vocabulary         (vocab_size)
//   F  feed-forward dimension          L  layers             (num_hidden_layers)
//      (intermediate_size)             Z  latent bits per token  (latent.bits)
//   M  tokens, B*T flattened           C  latent codes, C = 2^Z
#pragma once

#include <cstdint>

namespace freeformer {

// More bits than this and the table W of C rows stops being a table one trains: 2^20 rows of
// D = 4096 in fp32 are 16 GiB.
inline constexpr int kMaxLatentBits = 20;

inline constexpr int64_t code_count(int latent_bits) { return int64_t{1} << latent_bits; }

}  // namespace freeformer
