#include "lab/letters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "core/error.h"
#include "core/philox.h"
#include "data/shuffle.h"
#include "data/synthetic.h"
#include "engine/generate.h"

namespace freeformer {
namespace {

constexpr int kPlaces = kLettersLength - kLettersRun + 1;
constexpr int kNear = 2;  // places within which two targets count as the same

double entropy_bits(double p) {
  return p <= 0 || p >= 1 ? 0 : -(p * std::log2(p) + (1 - p) * std::log2(1 - p));
}

// Of the values that occur, by their counts.
double entropy_bits(const std::map<int, int>& counts) {
  double total = 0, bits = 0;
  for (const auto& [value, count] : counts) total += count;
  for (const auto& [value, count] : counts) bits -= count / total * std::log2(count / total);
  return bits;
}

// Sums over groups and pairs; the means come at the end.
struct Sums {
  int64_t pairs = 0, near = 0;
  int64_t shared_noise = 0, noise_pairs = 0;  // (noise, other sequence)
  int64_t noise = 0, characters = 0;
  int64_t texts = 0, well_formed = 0;
  double spread = 0, place_entropy = 0, noise_entropy = 0;
  int64_t groups = 0, groups_with_places = 0;
};

void add(Sums& sums, const LettersGroup& group) {
  const size_t n = group.texts.size();
  std::vector<int> places;
  std::map<int, int> place_counts;
  std::array<int, kLettersLength> noise{};  // sequences with '!' there
  for (const std::string& text : group.texts) {
    const LettersText read = read_letters(group.letter, text);
    sums.well_formed += read.well_formed ? 1 : 0;
    places.push_back(read.place);
    ++place_counts[read.place];
    for (size_t i = 0; i < noise.size(); ++i) noise[i] += text[i] == '!' ? 1 : 0;
  }
  sums.texts += int64_t(n);
  sums.characters += int64_t(n) * kLettersLength;
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = a + 1; b < n; ++b) {
      ++sums.pairs;
      const bool both = places[a] >= 0 && places[b] >= 0;
      sums.near += both && std::abs(places[a] - places[b]) <= kNear ? 1 : 0;
    }
  }
  for (const int count : noise) {  // each of `count` sequences asks the n-1 others
    sums.noise += count;
    sums.shared_noise += int64_t(count) * (count - 1);
    sums.noise_pairs += int64_t(count) * (int64_t(n) - 1);
    sums.noise_entropy += entropy_bits(double(count) / double(n));
  }
  std::vector<double> seen;
  for (const int place : places) {
    if (place >= 0) seen.push_back(place);
  }
  if (seen.size() >= 2) {
    const double mean = std::accumulate(seen.begin(), seen.end(), 0.0) / double(seen.size());
    double squares = 0;
    for (const double place : seen) squares += (place - mean) * (place - mean);
    sums.spread += std::sqrt(squares / double(seen.size() - 1));
    ++sums.groups_with_places;
  }
  sums.place_entropy += entropy_bits(place_counts);
  ++sums.groups;
}

double share(double part, double whole) { return whole == 0 ? 0 : part / whole; }

class Writer {
 public:
  Writer(Engine& engine, const Tokenizer& tokenizer, uint64_t seed, StudyProgress progress,
         int64_t sequences_to_come)
      : engine_(engine),
        tokenizer_(tokenizer),
        seed_(seed),
        progress_(std::move(progress)),
        to_come_(sequences_to_come) {}

  // Empty if the progress said stop.
  std::vector<LettersGroup> groups(int count, int size, bool shares_z) {
    std::vector<GenerateRequest> requests;
    std::vector<LettersGroup> result;
    const RandomSource random(seed_, RandomStream::kData);
    for (int g = 0; g < count; ++g) {
      const uint64_t group = next_group_++;
      const uint32_t bits = random.block(group, 0, data_index(DataUse::kLetters, 1))[0];
      result.push_back({char('A' + scale_bits(bits, 26)), {}});
      add_requests(result.back().letter, size, shares_z, group, requests);
    }
    if (!write(requests, size, result)) result.clear();
    return result;
  }

  // The same prompt for all of them.
  std::vector<LettersGroup> figure(int size, bool has_latent) {
    std::vector<GenerateRequest> requests;
    std::vector<LettersGroup> result;
    for (int g = 0; g < (has_latent ? 3 : 1); ++g) {
      result.push_back({'K', {}});
      add_requests('K', size, g > 0, next_group_++, requests);
    }
    if (!write(requests, size, result)) result.clear();
    return result;
  }

 private:
  void add_requests(char letter, int size, bool shares_z, uint64_t group,
                    std::vector<GenerateRequest>& requests) {
    GenerateRequest request;
    request.prompt = tokenizer_.encode(std::string{letter, '>'});
    request.max_tokens = kLettersLength;
    request.sampling.seed = seed_;
    request.sampling.temperature = 1;
    request.sampling.top_k = 0;
    request.sampling.top_p = 1;
    request.sampling.min_p = 0;
    if (engine_.config().latent.present()) {
      request.z.kind = shares_z ? LatentPolicy::Kind::kSeed : LatentPolicy::Kind::kPrior;
      request.z.seed = shares_z ? seed_ + group : 0;
    }
    for (int i = 0; i < size; ++i) {
      request.sequence = next_sequence_++;
      requests.push_back(request);
    }
  }

  bool write(std::span<const GenerateRequest> requests, int size,
             std::vector<LettersGroup>& groups) {
    constexpr size_t kBatch = 256;
    for (size_t begin = 0; begin < requests.size(); begin += kBatch) {
      if (progress_ && !progress_(double(written_) / double(to_come_))) return false;
      const auto batch = requests.subspan(begin, std::min(kBatch, requests.size() - begin));
      const std::vector<GenerateResult> results = generate(engine_, &tokenizer_, batch);
      for (size_t i = 0; i < results.size(); ++i) {
        groups[(begin + i) / size_t(size)].texts.push_back(results[i].text);
      }
      written_ += int64_t(batch.size());
    }
    return true;
  }

  Engine& engine_;
  const Tokenizer& tokenizer_;
  uint64_t seed_;
  StudyProgress progress_;
  int64_t to_come_, written_ = 0;
  uint64_t next_group_ = 1, next_sequence_ = 0;
};

OrderedJson to_json(const LettersAgreement& a) {
  return {{"place_agreement", a.place},
          {"place_spread", a.spread},
          {"noise_agreement", a.noise},
          {"noise_rate", a.noise_rate},
          {"well_formed", a.well_formed},
          {"place_entropy_bits", a.place_entropy_bits},
          {"noise_entropy_bits", a.noise_entropy_bits}};
}

LettersAgreement agreement_from_json(const Json& json) {
  LettersAgreement a;
  a.place = json.at("place_agreement");
  a.spread = json.at("place_spread");
  a.noise = json.at("noise_agreement");
  a.noise_rate = json.at("noise_rate");
  a.well_formed = json.at("well_formed");
  a.place_entropy_bits = json.at("place_entropy_bits");
  a.noise_entropy_bits = json.at("noise_entropy_bits");
  return a;
}

}  // namespace

LettersText read_letters(char letter, std::string_view text) {
  FF_CHECK(text.size() == kLettersLength);
  LettersText read;
  if (text.find(letter) == std::string_view::npos) return read;
  // A run that starts at `place` makes `wrong` characters: those no '!' explains.
  int fewest = kLettersLength + 1;
  std::vector<int> best;
  for (int place = 0; place < kPlaces; ++place) {
    int wrong = 0;
    for (int i = 0; i < kLettersLength; ++i) {
      const char expected = i >= place && i < place + kLettersRun ? letter : '_';
      wrong += text[size_t(i)] != expected && text[size_t(i)] != '!' ? 1 : 0;
    }
    if (wrong < fewest) {
      fewest = wrong;
      best.clear();
    }
    if (wrong == fewest) best.push_back(place);
  }
  read.place = best[best.size() / 2];
  read.well_formed = fewest == 0;
  return read;
}

LettersAgreement measure_agreement(std::span<const LettersGroup> groups) {
  Sums sums;
  for (const LettersGroup& group : groups) add(sums, group);
  LettersAgreement a;
  a.place = share(double(sums.near), double(sums.pairs));
  a.spread = share(sums.spread, double(sums.groups_with_places));
  a.noise = share(double(sums.shared_noise), double(sums.noise_pairs));
  a.noise_rate = share(double(sums.noise), double(sums.characters));
  a.well_formed = share(double(sums.well_formed), double(sums.texts));
  a.place_entropy_bits = share(sums.place_entropy, double(sums.groups));
  a.noise_entropy_bits = share(sums.noise_entropy, double(sums.groups));
  return a;
}

double letters_entropy() {
  const double noise = entropy_bits(kLettersNoise) * std::log(2.0);
  return (std::log(double(kPlaces)) + kLettersLength * noise) / (kLettersLength + 1);
}

LettersStudy study_letters(Engine& engine, const Tokenizer& tokenizer,
                           const LettersSettings& settings, const StudyProgress& progress) {
  LettersStudy study;
  study.has_latent = engine.config().latent.present();
  const int kinds = study.has_latent ? 2 : 1;
  const int64_t sequences = kinds * (int64_t(settings.groups) * settings.group_size +
                                     (study.has_latent ? int64_t(settings.information_groups) *
                                                             settings.information_group_size
                                                       : 0)) +
                            8 * (study.has_latent ? 3 : 1);
  Writer writer(engine, tokenizer, settings.seed, progress, sequences);
  const auto agreement = [&](int groups, int size, bool shares_z) -> LettersAgreement {
    return measure_agreement(writer.groups(groups, size, shares_z));
  };
  study.figure = writer.figure(8, study.has_latent);
  study.own_z = agreement(settings.groups, settings.group_size, false);
  if (study.has_latent) {
    study.same_z = agreement(settings.groups, settings.group_size, true);
    const int groups = settings.information_groups, size = settings.information_group_size;
    const LettersAgreement own = agreement(groups, size, false),
                           same = agreement(groups, size, true);
    study.place_information_bits = own.place_entropy_bits - same.place_entropy_bits;
    study.noise_information_bits = own.noise_entropy_bits - same.noise_entropy_bits;
  }
  if (progress && !progress(1)) return {};
  return study;
}

OrderedJson to_json(const LettersStudy& study) {
  OrderedJson json = {{"place_chance", kPlaceChance},
                      {"entropy", letters_entropy()},
                      {"own_z", to_json(study.own_z)}};
  if (study.has_latent) {
    json["same_z"] = to_json(study.same_z);
    json["place_information_bits"] = study.place_information_bits;
    json["noise_information_bits"] = study.noise_information_bits;
  }
  for (const LettersGroup& group : study.figure) {
    json["figure"].push_back({{"letter", std::string(1, group.letter)}, {"texts", group.texts}});
  }
  return json;
}

LettersStudy letters_study_from_json(const Json& json) {
  LettersStudy study;
  study.own_z = agreement_from_json(json.at("own_z"));
  study.has_latent = json.contains("same_z");
  if (study.has_latent) {
    study.same_z = agreement_from_json(json.at("same_z"));
    study.place_information_bits = json.at("place_information_bits");
    study.noise_information_bits = json.at("noise_information_bits");
  }
  for (const Json& group : json.at("figure")) {
    study.figure.push_back({group.at("letter").get<std::string>().at(0),
                            group.at("texts").get<std::vector<std::string>>()});
  }
  return study;
}

}  // namespace freeformer
