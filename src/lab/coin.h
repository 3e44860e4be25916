// The coin of the paper's § 2: Z ~ B(1/2), each X_t is Z flipped with probability ε. Without Z the
// best predictor has a closed form (equation 2), so the NLL that any model can reach is known.
#pragma once

#include <cstdint>
#include <span>

namespace freeformer {

// Equation 2: P(X_{t+1} = 1 | `ones` of the first t are 1).
double coin_probability(int64_t t, int64_t ones, double flip);

// -log P(x_2 … x_n | x_1), nats: what the best predictor pays for a sequence of tokens 0 and 1.
double coin_nll(std::span<const int32_t> tokens, double flip);

// Its expectation per predicted token, over sequences of T+1 tokens: (H(X_1…X_{T+1}) - log 2) / T.
double coin_entropy(int64_t T, double flip);

}  // namespace freeformer
