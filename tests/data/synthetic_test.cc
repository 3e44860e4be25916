#include "data/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "expect_error.h"

namespace freeformer {
namespace {

constexpr uint64_t kFirstHeldOut = uint64_t{1} << 63;

// Count `n` of `trials` events of probability p is within five standard deviations.
void expect_rate(double p, int64_t n, int64_t trials) {
  EXPECT_NEAR(double(n), p * double(trials), 5 * std::sqrt(p * (1 - p) * double(trials)));
}

std::string text_of(const DataSource& source, const Row& row) {
  return source.tokenizer()->decode(row.tokens);
}

// Where the run of `letter` would begin to explain every letter of the text; -1: nowhere.
int place_of(const std::string& body, char letter) {
  const size_t first = body.find(letter), last = body.rfind(letter);
  if (first == body.npos || last - first >= size_t(kLettersRun)) return -1;
  return int(first);
}

TEST(Letters, AreWellFormed) {
  for (uint64_t index = 0; index < 2000; ++index) {
    const std::string text = letters_sequence(1, index);
    ASSERT_EQ(text.size(), 66u);
    ASSERT_TRUE(text[0] >= 'A' && text[0] <= 'Z') << text;
    ASSERT_EQ(text[1], '>');
    const std::string body = text.substr(2);
    ASSERT_EQ(body.find_first_not_of(std::string("_!") + text[0]), body.npos) << text;
    const auto letters = std::count(body.begin(), body.end(), text[0]);
    ASSERT_LE(letters, kLettersRun) << text;
    if (letters == 0) continue;  // all of it is noise
    const int place = place_of(body, text[0]);
    ASSERT_GE(place, 0) << text;
    const std::string run = body.substr(size_t(place), body.rfind(text[0]) + 1 - size_t(place));
    ASSERT_EQ(run.find('_'), run.npos) << text;
  }
}

TEST(Letters, HaveTheProbabilitiesOfThePaper) {
  constexpr int kRows = 20000;
  std::vector<int> letters(26), places(57);
  int64_t noise = 0, noise_in_run = 0, seen_runs = 0;
  std::vector<int> noise_at(kLettersLength);
  for (uint64_t index = 0; index < kRows; ++index) {
    const std::string text = letters_sequence(5, index), body = text.substr(2);
    ++letters[size_t(text[0] - 'A')];
    for (size_t i = 0; i < body.size(); ++i) noise_at[i] += body[i] == '!';
    noise += std::count(body.begin(), body.end(), '!');
    // The place is plain to see where the run has both its ends.
    const int place = place_of(body, text[0]);
    if (place < 0 || body.rfind(text[0]) != size_t(place + kLettersRun - 1)) continue;
    ++seen_runs;
    ++places[size_t(place)];
    noise_in_run += std::count(body.begin() + place, body.begin() + place + kLettersRun, '!');
  }
  for (const int n : letters) expect_rate(1.0 / 26, n, kRows);
  expect_rate(1.0 / 16, noise, int64_t{kRows} * kLettersLength);
  for (const int n : noise_at) expect_rate(1.0 / 16, n, kRows);
  expect_rate(15.0 / 16 * 15 / 16, seen_runs, kRows);
  for (const int n : places) expect_rate(1.0 / 57, n, seen_runs);
  expect_rate(1.0 / 16, noise_in_run, seen_runs * (kLettersRun - 2));
}

TEST(Letters, DependOnSeedAndIndexAlone) {
  EXPECT_EQ(letters_sequence(1, 2), letters_sequence(1, 2));
  std::set<std::string> texts;
  for (const uint64_t seed : {1, 2}) {
    for (const uint64_t index : {uint64_t{2}, uint64_t{3}, uint64_t{1} << 32 | 2}) {
      texts.insert(letters_sequence(seed, index));
    }
  }
  EXPECT_EQ(texts.size(), 6u);
}

TEST(Coin, IsFlippedAsOftenAsAsked) {
  constexpr int kRows = 4000, kLength = 65;
  for (const double flip : {0.1, 0.4}) {
    int64_t heads = 0, flips = 0;
    std::vector<int> flips_at(kLength);
    for (uint64_t index = 0; index < kRows; ++index) {
      const std::string text = coin_sequence(3, index, kLength, flip);
      ASSERT_EQ(text.size(), size_t(kLength));
      // The coin is what the same draws say without flips.
      const std::string coin = coin_sequence(3, index, kLength, 0);
      ASSERT_EQ(coin.find_first_not_of(coin[0]), coin.npos) << coin;
      heads += coin[0] == '1';
      for (size_t i = 0; i < text.size(); ++i) flips_at[i] += text[i] != coin[i];
    }
    for (const int n : flips_at) {
      expect_rate(flip, n, kRows);
      flips += n;
    }
    expect_rate(0.5, heads, kRows);
    expect_rate(flip, flips, int64_t{kRows} * kLength);
  }
}

TEST(Coin, TossesEachTokenByItself) {
  constexpr int kRows = 4000, kLength = 9;
  int64_t both = 0;
  for (uint64_t index = 0; index < kRows; ++index) {
    const std::string text = coin_sequence(3, index, kLength, 0.5);
    for (size_t i = 1; i < kLength; ++i) both += text[i] == text[i - 1];
  }
  expect_rate(0.5, both, int64_t{kRows} * (kLength - 1));
}

// A resumed run goes on with the rows of the program that began it.
TEST(Synthetic, KeepsItsRowsFromVersionToVersion) {
  EXPECT_EQ(letters_sequence(1, 2),
            "A>____!__________________________________________!_!_AAAAA!AA_____");
  EXPECT_EQ(coin_sequence(1, 2, 20, 0.25), "01011110011111111111");
}

TEST(MakeLetters, GivesTheSequencesAsRows) {
  const auto source = make_letters(4);
  EXPECT_EQ(source->vocab_size(), 29);
  EXPECT_EQ(source->context(), 65);
  EXPECT_EQ(source->rows_per_epoch(), 0u);
  for (const uint64_t index : {uint64_t{0}, uint64_t{77}, uint64_t{1} << 40}) {
    const Row row = source->train_row(index);
    EXPECT_TRUE(row.documents.empty());
    EXPECT_EQ(text_of(*source, row), letters_sequence(4, index));
  }
  // "A>" begins with tokens 0 and 26.
  EXPECT_EQ(source->tokenizer()->encode("A>_!Z"), (std::vector<int32_t>{0, 26, 27, 28, 25}));
}

TEST(MakeCoin, GivesTheSequencesAsRows) {
  const auto source = make_coin(4, 31, 0.2);
  EXPECT_EQ(source->vocab_size(), 2);
  EXPECT_EQ(source->context(), 31);
  EXPECT_EQ(source->rows_per_epoch(), 0u);
  const Row row = source->train_row(12);
  EXPECT_TRUE(row.documents.empty());
  EXPECT_EQ(text_of(*source, row), coin_sequence(4, 12, 32, 0.2));
}

TEST(Synthetic, HoldsOutDrawsThatTrainingNeverMakes) {
  const auto letters = make_letters(4), coin = make_coin(4, 99, 0.5);
  EXPECT_EQ(letters->held_out_count(), 1024u);
  EXPECT_EQ(coin->held_out_count(), 1024u);
  std::set<std::string> held_out, trained;
  for (uint64_t i = 0; i < 1024; ++i) {
    ASSERT_EQ(text_of(*letters, letters->held_out_row(i)), letters_sequence(4, kFirstHeldOut + i));
    // A hundred fair coins hardly ever fall twice alike.
    held_out.insert(text_of(*coin, coin->held_out_row(i)));
    trained.insert(text_of(*coin, coin->train_row(i)));
  }
  EXPECT_EQ(held_out.size(), 1024u);
  trained.merge(held_out);
  EXPECT_EQ(trained.size(), 2048u);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", letters->held_out_row(1024));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", letters->train_row(kFirstHeldOut));
}

}  // namespace
}  // namespace freeformer
