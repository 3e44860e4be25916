// An encoder that looks ahead from its first step.
//
// With random weights the bits are a hash of all that the encoder sees, most of which the decoder
// knows already; so the decoder learns to ignore them, and when Z wakes, and where the encoder
// looks then, is luck. These weights are made from a batch instead, in three steps:
//
//   where it looks   u·x ≈ 1 for all tokens, by ridge regression, a little short of 1 (x: X behind
//                    the encoder's norm; a large u would be wrong as soon as training moves x).
//                    Every key is a_i u·x in the first half of rotary pair i, every query a_i
//                    turned by one step, so that the score of the token r places on is
//                        Σ_i a_i² cos((r-1) θ_i) / sqrt(H),   a_i² = λ θ_i,
//                    greatest at r = 1: the next token. λ sets how far its neighbours are behind.
//                    (Far ones can be near it again where the slowest pair turns more than once.)
//   what it says     what surprises the decoder. y is what the read-out reads (v: y less its mean,
//   at
//                    right angles to it, in units of S + τ: its covariance and mean variance), and
//                    p_t is in proportion to s_t², s_t the nats at which the decoder alone takes
//                    the token after t. Principal axis k of v under p parts what is surprising in
//                    two, with means m₊ and m₋. Four bits for each axis: two for that there is
//                    news, r·m₊ = r·m₋ = 2 (the same for all axes but for where they split), and
//                    two for which, r·m₊ = 2 = -r·m₋; of such r the smallest, so that other
//                    tokens' logits are near 0, and quieter where much is news. Codes that mean
//                    something then have bits in common, by which codes that mean nothing keep away
//                    from all of them at once. Bits beyond the last axis stay as they were drawn.
//   that it is heard the table's rows are scaled until R is as large as X.
//
// The model stays the paper's: these are values of its weights, and training moves them as any
// others.
#pragma once

#include <map>
#include <span>
#include <string>

#include "model/free_transformer.h"

namespace freeformer {

// Gives the model's latent such weights, and returns them in fp32 by name, for who keeps masters.
// Takes as many of the batches as it needs. The latent must have its initial weights.
std::map<std::string, Tensor> look_ahead(FreeTransformer& model, std::span<const Batch> batches);

}  // namespace freeformer
