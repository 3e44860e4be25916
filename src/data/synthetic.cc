#include "data/synthetic.h"

#include <functional>
#include <utility>

#include "core/error.h"
#include "core/philox.h"
#include "data/shuffle.h"

namespace freeformer {
namespace {

constexpr uint32_t kLetterCount = 26;
constexpr uint32_t kPlaceCount = kLettersLength - kLettersRun + 1;

constexpr uint64_t kHeldOutCount = 1024;
// Training would need 2^63 rows to meet these.
constexpr uint64_t kFirstHeldOut = uint64_t{1} << 63;

// A sequence's numbers, in blocks of four.
class Numbers {
 public:
  Numbers(uint64_t seed, DataUse use, uint64_t sequence)
      : random_(seed, RandomStream::kData), use_(use), sequence_(sequence) {}

  uint32_t operator[](size_t i) const {
    return random_.block(sequence_, uint32_t(i / 4), data_index(use_, 0))[i % 4];
  }

 private:
  RandomSource random_;
  DataUse use_;
  uint64_t sequence_;
};

// Rows whose every token is computed by `sequence_of(index)`.
class SyntheticSource : public DataSource {
 public:
  SyntheticSource(const char* alphabet, int64_t context,
                  std::function<std::string(uint64_t)> sequence_of)
      : tokenizer_(alphabet), context_(context), sequence_of_(std::move(sequence_of)) {}

  const Tokenizer* tokenizer() const override { return &tokenizer_; }
  int64_t vocab_size() const override { return tokenizer_.vocab_size(); }
  int64_t context() const override { return context_; }

  Row train_row(uint64_t index) const override {
    FF_CHECK(index < kFirstHeldOut);
    return row(index);
  }
  uint64_t rows_per_epoch() const override { return 0; }

  uint64_t held_out_count() const override { return kHeldOutCount; }
  Row held_out_row(uint64_t index) const override {
    FF_CHECK(index < kHeldOutCount);
    return row(kFirstHeldOut + index);
  }

 private:
  Row row(uint64_t index) const { return {tokenizer_.encode(sequence_of_(index)), {}}; }

  ByteTokenizer tokenizer_;
  int64_t context_;
  std::function<std::string(uint64_t)> sequence_of_;
};

}  // namespace

std::string letters_sequence(uint64_t seed, uint64_t index) {
  const Numbers numbers(seed, DataUse::kLetters, index);
  const auto letter = char('A' + scale_bits(numbers[0], kLetterCount));
  const uint32_t place = scale_bits(numbers[1], kPlaceCount);
  std::string text(kLettersLength, '_');
  text.replace(place, kLettersRun, kLettersRun, letter);
  for (size_t i = 0; i < text.size(); ++i) {
    if (unit_float(numbers[2 + i]) < kLettersNoise) text[i] = '!';
  }
  return std::string{letter, '>'} + text;
}

std::string coin_sequence(uint64_t seed, uint64_t index, int64_t length, double flip) {
  const Numbers numbers(seed, DataUse::kCoin, index);
  const bool coin = unit_float(numbers[0]) < 0.5;
  std::string text(size_t(length), '0');
  for (size_t i = 0; i < text.size(); ++i) {
    const bool flipped = unit_float(numbers[1 + i]) < flip;
    if (coin != flipped) text[i] = '1';
  }
  return text;
}

std::unique_ptr<DataSource> make_letters(uint64_t seed) {
  const int64_t context = 2 + kLettersLength - 1;  // the prompt and all but the last character
  return std::make_unique<SyntheticSource>(
      kLettersAlphabet, context, [=](uint64_t index) { return letters_sequence(seed, index); });
}

std::unique_ptr<DataSource> make_coin(uint64_t seed, int64_t context, double flip) {
  return std::make_unique<SyntheticSource>(kCoinAlphabet, context, [=](uint64_t index) {
    return coin_sequence(seed, index, context + 1, flip);
  });
}

}  // namespace freeformer
