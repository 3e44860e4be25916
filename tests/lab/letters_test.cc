#include "lab/letters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/synthetic.h"
#include "lab/figure.h"
#include "lab/letters_engine.h"

namespace freeformer {
namespace {

std::string with_run(int place, char letter = 'K') {
  std::string text(kLettersLength, '_');
  return text.replace(size_t(place), kLettersRun, kLettersRun, letter);
}

TEST(ReadLetters, EverySequenceOfTheTaskIsWellFormed) {
  for (uint64_t i = 0; i < 2000; ++i) {
    const std::string sequence = letters_sequence(3, i);
    const LettersText read = read_letters(sequence[0], std::string_view(sequence).substr(2));
    EXPECT_TRUE(read.well_formed) << sequence;
  }
}

TEST(ReadLetters, FindsThePlaceUnderNoise) {
  for (int place = 0; place <= 56; ++place) {
    std::string text = with_run(place);
    EXPECT_EQ(read_letters('K', text).place, place);
    text[size_t(place + 3)] = '!';
    text[size_t((place + 20) % 64)] = '!';
    EXPECT_NEAR(read_letters('K', text).place, place, 1);
  }
}

TEST(ReadLetters, RefusesWhatIsNotTheTask) {
  EXPECT_FALSE(read_letters('K', std::string(64, '_')).well_formed);
  EXPECT_EQ(read_letters('K', std::string(64, '_')).place, -1);
  EXPECT_FALSE(read_letters('A', with_run(5)).well_formed) << "another letter";
  std::string nine = with_run(5);
  nine[13] = 'K';
  EXPECT_FALSE(read_letters('K', nine).well_formed);
  std::string seven = with_run(5);
  seven[12] = '_';
  EXPECT_FALSE(read_letters('K', seven).well_formed);
  std::string hole = with_run(5);
  hole[8] = '_';
  EXPECT_FALSE(read_letters('K', hole).well_formed);
  std::string far = with_run(5);
  far[40] = 'K';
  EXPECT_FALSE(read_letters('K', far).well_formed);
  EXPECT_EQ(read_letters('K', far).place, 5);
}

TEST(MeasureAgreement, CountsPairsWithinTwoPlaces) {
  const LettersGroup group{'K', {with_run(10), with_run(12), with_run(13), with_run(40)}};
  const LettersAgreement a = measure_agreement(std::vector{group});
  EXPECT_NEAR(a.place, 2.0 / 6, 1e-12);  // 10-12, 12-13
  EXPECT_EQ(a.well_formed, 1);
  EXPECT_NEAR(a.place_entropy_bits, 2, 1e-12);
  EXPECT_EQ(a.noise, 0);
}

TEST(MeasureAgreement, NoiseIsComparedPlaceByPlace) {
  LettersGroup group{'K', {with_run(10), with_run(10), with_run(10)}};
  for (const int at : {1, 2}) group.texts[0][size_t(at)] = '!';
  for (const int at : {1, 3}) group.texts[1][size_t(at)] = '!';
  // Place 1 is shared by two of three: 2 of its 4 questions say yes; 2 and 3 have 2 questions each.
  const LettersAgreement a = measure_agreement(std::vector{group});
  EXPECT_NEAR(a.noise, 2.0 / 8, 1e-12);
  EXPECT_NEAR(a.noise_rate, 4.0 / (3 * 64), 1e-12);
  EXPECT_NEAR(a.noise_entropy_bits, 3 * 0.9182958340544896, 1e-9);
}

TEST(MeasureAgreement, TextsWithoutATargetAgreeWithNobody) {
  const std::string nothing(64, '_');
  const LettersAgreement a = measure_agreement(std::vector{LettersGroup{'K', {nothing, nothing}}});
  EXPECT_EQ(a.place, 0);
  EXPECT_EQ(a.well_formed, 0);
}

TEST(MeasureAgreement, IndependentTargetsAgreeByChance) {
  std::vector<LettersGroup> groups;
  for (uint64_t g = 0; g < 400; ++g) {
    groups.push_back({'K', {}});
    for (uint64_t i = 0; i < 8; ++i) {
      std::string text = letters_sequence(5, 8 * g + i);
      std::replace(text.begin(), text.end(), char(text[0]), 'K');
      groups.back().texts.push_back(text.substr(2));
    }
  }
  const LettersAgreement a = measure_agreement(groups);
  EXPECT_NEAR(a.place, kPlaceChance, 0.01);
  EXPECT_NEAR(a.noise, kLettersNoise, 0.005);
  EXPECT_NEAR(a.noise_rate, kLettersNoise, 0.002);
}

TEST(LettersEntropy, IsTheDesigns) { EXPECT_NEAR(letters_entropy(), 0.292, 5e-4); }

LettersSettings small(int64_t groups = 50) {
  LettersSettings settings;
  settings.groups = groups;
  return settings;
}

TEST(StudyLetters, FindsThatZDecidesThePlaceAndNotTheNoise) {
  LettersEngine engine(8, {.place = true});
  const ByteTokenizer tokenizer(kLettersAlphabet);
  const LettersStudy study = study_letters(engine, tokenizer, small());
  EXPECT_GT(study.same_z.place, 0.99);
  EXPECT_NEAR(study.own_z.place, kPlaceChance, 0.03);
  EXPECT_NEAR(study.same_z.noise, study.same_z.noise_rate, 0.02);
  EXPECT_GT(study.own_z.well_formed, 0.97);
  EXPECT_LT(study.same_z.spread, 1);
  EXPECT_GT(study.own_z.spread, 10);
  EXPECT_GT(study.place_information_bits, 4) << "log2 of the group's size is 5";
  EXPECT_LT(std::abs(study.noise_information_bits), 1);
  ASSERT_EQ(study.figure.size(), 3U);
  EXPECT_EQ(study.figure[0].texts.size(), 8U);
  EXPECT_THAT(figure_sentence(study), testing::HasSubstr("had decided"));
}

TEST(FigureSentence, AgreementWithoutASharedZIsNotADecisionOfZ) {
  LettersStudy study;
  study.has_latent = true;
  study.same_z.place = study.own_z.place = 1;  // every target comes last
  EXPECT_THAT(figure_sentence(study), testing::HasSubstr("does not decide"));
  study.own_z.place = 0.1;
  EXPECT_THAT(figure_sentence(study), testing::HasSubstr("had decided"));
}

TEST(StudyLetters, FindsThatZDecidesTheNoiseAndNotThePlace) {
  LettersEngine engine(8, {.noise = true});
  const LettersStudy study = study_letters(engine, ByteTokenizer(kLettersAlphabet), small());
  EXPECT_EQ(study.same_z.noise, 1);
  EXPECT_LT(study.own_z.noise, 0.1);
  EXPECT_NEAR(study.same_z.place, kPlaceChance, 0.03);
  EXPECT_LT(std::abs(study.place_information_bits), 0.3);
  EXPECT_GT(study.noise_information_bits, 15) << "64 h(1/16) is 21.6 bits";
}

TEST(StudyLetters, FindsNothingWhereZSaysNothing) {
  LettersEngine engine(8, {});
  const LettersStudy study = study_letters(engine, ByteTokenizer(kLettersAlphabet), small());
  EXPECT_NEAR(study.same_z.place, kPlaceChance, 0.03);
  EXPECT_NEAR(study.same_z.noise, study.same_z.noise_rate, 0.02);
  EXPECT_LT(std::abs(study.place_information_bits), 0.3);
  EXPECT_THAT(figure_sentence(study), testing::HasSubstr("does not decide"));
}

TEST(StudyLetters, SeesBrokenSequences) {
  LettersEngine engine(8, {.place = true});
  engine.broken = true;
  const LettersStudy study = study_letters(engine, ByteTokenizer(kLettersAlphabet), small(2));
  EXPECT_EQ(study.own_z.well_formed, 0);
}

TEST(StudyLetters, OfAPlainDecoderHasOneGroupAndNoInformation) {
  LettersEngine engine(0, {});
  const LettersStudy study = study_letters(engine, ByteTokenizer(kLettersAlphabet), small());
  EXPECT_FALSE(study.has_latent);
  EXPECT_EQ(study.figure.size(), 1U);
  EXPECT_NEAR(study.own_z.place, kPlaceChance, 0.03);
  EXPECT_FALSE(to_json(study).contains("same_z"));
}

TEST(StudyLetters, SurvivesItsFile) {
  LettersEngine engine(8, {.place = true});
  const LettersStudy study = study_letters(engine, ByteTokenizer(kLettersAlphabet), small(2));
  const std::string text = to_text(to_json(study));
  const LettersStudy again =
      letters_study_from_json(parse_json(text, "study", ErrorCode::kBadCheckpoint));
  EXPECT_EQ(to_text(to_json(again)), text);
}

TEST(StudyLetters, StopsWhenAsked) {
  LettersEngine engine(8, {.place = true});
  int calls = 0;
  const LettersStudy study = study_letters(engine, ByteTokenizer(kLettersAlphabet), small(),
                                           [&](double) { return ++calls < 3; });
  EXPECT_TRUE(study.figure.empty());
  EXPECT_LT(calls, 8) << "it went on";
}

TEST(Figure, ColoursOnlyWhenAsked) {
  LettersEngine engine(8, {.place = true});
  const LettersStudy study = study_letters(engine, ByteTokenizer(kLettersAlphabet), small(2));
  EXPECT_EQ(figure_text(study, false).find('\x1b'), std::string::npos);
  const std::string coloured = figure_text(study, true);
  EXPECT_NE(coloured.find("\x1b[1;32mK"), std::string::npos);
  EXPECT_THAT(coloured, testing::HasSubstr("one Z for all eight"));
}

}  // namespace
}  // namespace freeformer
