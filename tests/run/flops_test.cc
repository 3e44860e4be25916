// Counted by hand for the small model: D = 8, F = 10, L = 2, N·H = 12, K·H = 6, V = 11.
#include "run/flops.h"

#include <gtest/gtest.h>

#include "../core/small_config.h"

namespace freeformer {
namespace {

constexpr double kBlock = 96 + 48 + 48 + 96  // q, k, v, o
                          + 3 * 80;          // gate, up, down
constexpr double kReadOut = 11 * 8;

TEST(TrainingFlops, AreSixPerWeightAndTheAttentionOfAPlainModel) {
  constexpr double kCausal = 6 * 2 * 12;  // per token of context: two blocks
  EXPECT_EQ(training_flops_per_token(small_config(0), 5),
            6 * (2 * kBlock + kReadOut) + kCausal * 5);
  EXPECT_EQ(training_flops_per_token(small_config(0), 5), 7584);
  EXPECT_EQ(
      training_flops_per_token(small_config(0), 64) - training_flops_per_token(small_config(0), 63),
      kCausal);
}

TEST(TrainingFlops, OfALatentAddTheEncoderAndTheLogitsGradient) {
  const auto extra = [](int bits, int64_t T) {
    return training_flops_per_token(small_config(bits), T) -
           training_flops_per_token(small_config(0), T);
  };
  // The encoder's block and read-out, its attention to the whole context, and 2 D C.
  EXPECT_EQ(extra(3, 5), 6 * (kBlock + 3 * 8) + 12 * 12 * 5 + 2 * 8 * 8);
  EXPECT_EQ(extra(3, 5), 4160);
  EXPECT_EQ(extra(10, 5), 6 * (kBlock + 10 * 8) + 12 * 12 * 5 + 2 * 8 * 1024);
}

TEST(TrainingFlops, AreTheSameForATiedReadOut) {
  for (const int bits : {0, 3}) {
    ModelConfig tied = small_config(bits);
    tied.tie_word_embeddings = true;
    EXPECT_EQ(training_flops_per_token(tied, 5), training_flops_per_token(small_config(bits), 5));
  }
}

TEST(TrainingFlops, OfALargeModelDoNotOverflow) {
  ModelConfig config = small_config(0);
  config.num_attention_heads = config.num_key_value_heads = 65536;
  config.head_dim = 256;
  config.hidden_size = 1 << 20;
  config.intermediate_size = config.vocab_size = 1 << 24;
  EXPECT_GT(training_flops_per_token(config, 1 << 24), 1e15);
}

}  // namespace
}  // namespace freeformer
