// An encoder that looks ahead from its first step.
//
// With random weights the bits are a hash of all that the encoder sees, most of which the decoder
// knows already; so the decoder learns to ignore them, and when Z wakes, and where the encoder
// looks then, is luck. These weights are made from a batch instead, in three steps:
//
//   where it looks   u solves u·x ≈ 1 for all tokens by least squares (x: X behind the encoder's
//                    norm). Every key is a_i u·x in the first half of rotary pair i, every query
//                    a_i turned by one step, so that the score of the token r places on is
//                        Σ_i a_i² cos((r-1) θ_i) / sqrt(H),   a_i² = λ θ_i,
//                    greatest at r = 1: the next token. λ sets how far its neighbours are behind.
//                    (Far ones can be near it again where the slowest pair turns more than once.)
//   what it says     y, what the read-out reads, less the best linear guess of it from x at the
//                    same token: news, that which the decoder cannot know there. Bit h is the
//                    direction of y with the h-th most news beside what is known, with mean 0;
//                    where there is no more news, bits stay as they were drawn.
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
