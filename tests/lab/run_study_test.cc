#include "lab/run_study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "data/synthetic.h"
#include "lab/coin.h"
#include "lab/letters_engine.h"

namespace freeformer {
namespace {

StudySettings small() {
  StudySettings settings;
  settings.rows = 16;
  settings.iwae_samples = 2;
  settings.letters.groups = 4;
  settings.letters.information_groups = 2;
  return settings;
}

DataSettings letters_data() {
  DataSettings data;
  data.kind = "letters";
  return data;
}

TEST(StudyRun, MapsTheKlOfEveryPositionAndBit) {
  LettersEngine engine(4, {.place = true});
  const auto data = make_letters(1);
  const auto study = study_run(engine, data->tokenizer(), *data, letters_data(), small());
  ASSERT_TRUE(study.has_value());
  ASSERT_EQ(study->kl_map.size(), 65U);
  ASSERT_EQ(study->kl_map[0].size(), 4U);
  EXPECT_NEAR(study->kl_map[0][0], 1, 1e-9) << "the one bit that is sure";
  EXPECT_NEAR(study->kl_map[0][1], 0, 1e-9);
  EXPECT_NEAR(study->kl_map[1][0], 0, 1e-9);
  EXPECT_NEAR(study->kl_bits, 1.0 / 65, 1e-9);
  EXPECT_NEAR(study->posterior_ce, 0.25, 1e-6);
  EXPECT_NEAR(*study->optimum, letters_entropy(), 1e-12);
  EXPECT_TRUE(study->letters.has_value());
}

// Two rows: a document, a single token and padding; and two documents.
class DocumentRows : public DataSource {
 public:
  const Tokenizer* tokenizer() const override { return nullptr; }
  int64_t vocab_size() const override { return 29; }
  int64_t context() const override { return 5; }
  Row train_row(uint64_t) const override { return {}; }
  uint64_t rows_per_epoch() const override { return 0; }
  uint64_t held_out_count() const override { return 2; }
  Row held_out_row(uint64_t index) const override {
    if (index == 0) return {{1, 2, 3, 4, 0, 0}, {0, 0, 0, 1, -1, -1}};
    return {{5, 6, 7, 8, 9, 10}, {0, 0, 1, 1, 1, 1}};
  }
};

class SeenTexts : public LettersEngine {
 public:
  using LettersEngine::LettersEngine;
  std::vector<std::vector<float>> score(std::span<const Score> requests) override {
    for (const Score& request : requests) {
      scored.insert({request.tokens.begin(), request.tokens.end()});
    }
    return LettersEngine::score(requests);
  }
  std::set<std::vector<int32_t>> scored;
};

TEST(StudyRun, AsksAboutDocumentsAndNotAboutPadding) {
  SeenTexts engine(4, {});
  const auto study = study_run(engine, nullptr, DocumentRows(), DataSettings{}, small());
  ASSERT_TRUE(study.has_value());
  EXPECT_THAT(engine.scored, testing::ElementsAre(std::vector{1, 2, 3}, std::vector{5, 6},
                                                  std::vector{7, 8, 9, 10}));
  ASSERT_EQ(study->kl_map.size(), 3U) << "of the longest";
  EXPECT_NEAR(study->kl_map[0][0], 1, 1e-9);
  EXPECT_NEAR(study->kl_map[2][0], 0, 1e-9);
}

TEST(StudyRun, OfACoinKnowsTheBestPredictorOnTheSameRows) {
  LettersEngine engine(0, {});
  DataSettings settings;
  settings.kind = "coin";
  settings.context = 20;
  settings.coin_flip = 0.2;
  const auto data = make_coin(1, 20, 0.2);
  StudySettings all = small();
  all.rows = 0;
  const auto study = study_run(engine, data->tokenizer(), *data, settings, all);
  ASSERT_TRUE(study.has_value());
  EXPECT_FALSE(study->letters.has_value());
  EXPECT_NEAR(*study->optimum, coin_entropy(20, 0.2), 0.02) << "1,024 rows";
  EXPECT_NE(*study->optimum, coin_entropy(20, 0.2)) << "of these rows, not of all";
}

TEST(StudyRun, SurvivesItsFile) {
  for (const int bits : {0, 4}) {
    LettersEngine engine(bits, {.place = bits > 0});
    const auto data = make_letters(1);
    auto study = study_run(engine, data->tokenizer(), *data, letters_data(), small());
    ASSERT_TRUE(study.has_value());
    study->step = 7;
    const std::string text = to_text(to_json(*study));
    const RunStudy again =
        run_study_from_json(parse_json(text, "study", ErrorCode::kBadCheckpoint));
    EXPECT_EQ(to_text(to_json(again)), text);
    EXPECT_EQ(again.elbo, study->elbo);
  }
}

TEST(StudyRun, StopsWhenAsked) {
  LettersEngine engine(4, {.place = true});
  const auto data = make_letters(1);
  for (int calls_left = 0; calls_left < 6; ++calls_left) {
    int left = calls_left;
    const auto study = study_run(engine, data->tokenizer(), *data, letters_data(), small(),
                                 [&](double) { return left-- > 0; });
    EXPECT_FALSE(study.has_value()) << calls_left;
  }
}

TEST(StudyRun, ProgressRisesToOne) {
  LettersEngine engine(4, {.place = true});
  const auto data = make_letters(1);
  double last = 0;
  study_run(engine, data->tokenizer(), *data, letters_data(), small(), [&](double share) {
    EXPECT_GE(share, last);
    EXPECT_LE(share, 1);
    last = share;
    return true;
  });
  EXPECT_EQ(last, 1);
}

}  // namespace
}  // namespace freeformer
