// The two tasks with known answers.
//
// letters (the paper's § 4.1): a letter and '>', then 64 underscores of which 8 in a row at a
// random place are that letter, then each of the 64 becomes '!' with probability 1/16. 66
// characters.
//
// coin (the paper's § 2): Z ~ B(1/2), each X_t is Z flipped with probability ε.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/data_source.h"

namespace freeformer {

inline constexpr int kLettersLength = 64;  // characters after the prompt
inline constexpr int kLettersRun = 8;      // of them the letter
inline constexpr double kLettersNoise = 1.0 / 16;
// Token ids in this order: the alphabet of the task's tokenizer.
inline constexpr const char* kLettersAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ>_!";
inline constexpr const char* kCoinAlphabet = "01";

// One sequence of the letters task; `index` and `seed` decide everything.
std::string letters_sequence(uint64_t seed, uint64_t index);
std::string coin_sequence(uint64_t seed, uint64_t index, int64_t length, double flip);

// Training draws sequence `index` for row `index`. The 1,024 held-out rows have indices from 2^63
// up, which training never reaches.
std::unique_ptr<DataSource> make_letters(uint64_t seed);
std::unique_ptr<DataSource> make_coin(uint64_t seed, int64_t context, double flip);

}  // namespace freeformer
