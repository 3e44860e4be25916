// What Z decides in the letters task (data/synthetic.h), measured on what a model writes. Groups
// of sequences share a prompt; in one kind of group they share Z too, in the other each sequence
// has its own. What Z has decided is the same within a group of the first kind and differs in the
// second; everything else differs in both.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace freeformer {

// The 64 characters after a prompt of `letter` and '>'.
struct LettersText {
  // The letter eight times in one run, '!' allowed anywhere, underscores elsewhere.
  bool well_formed = false;
  // Where the run starts: the place of eight that explains most characters (the middle one of
  // equals: noise at the ends of a run hides them). -1 where the letter does not occur.
  int place = -1;
};
LettersText read_letters(char letter, std::string_view text);

struct LettersGroup {
  char letter = 'A';
  std::vector<std::string> texts;
};

// The mean over groups of sequences that are compared within their group.
struct LettersAgreement {
  double place = 0;       // share of pairs that start within 2 places of each other
  double spread = 0;      // standard deviation of the place, in characters
  double noise = 0;       // share of '!' that another sequence of the group has at the same place
  double noise_rate = 0;  // share of '!' among all characters: what chance makes of `noise`
  double well_formed = 0;
  double place_entropy_bits = 0;  // of the place within a group
  double noise_entropy_bits = 0;  // of '!' or not within a group, summed over the 64 places
};
LettersAgreement measure_agreement(std::span<const LettersGroup> groups);

inline constexpr double kPlaceChance = 279.0 / (57 * 57);  // `place` of independent targets
// Nats per predicted character without Z: log 57 for the place, 64 h(1/16) for the noise, in 65.
double letters_entropy();

struct LettersSettings {
  int groups = 64;     // of each kind
  int group_size = 8;  // sequences of one
  // Groups with a shared Z for the information, and their size: entropies of small groups are
  // bounded by the logarithm of their size.
  int information_groups = 24, information_group_size = 32;
  uint64_t seed = 1;
};

struct LettersStudy {
  bool has_latent = false;
  LettersAgreement same_z, own_z;  // same_z only of a model with a latent
  // Mutual information between Z and the place: how much smaller the entropy within a group is
  // where Z is shared. Both entropies are estimated from groups of the same size, so that the bias
  // of small samples cancels where Z says nothing. An estimate from below where it says much: it
  // cannot exceed the logarithm of the group's size.
  double place_information_bits = 0;
  // The same of each of the 64 places' "! or not", summed: more than the information on the noise
  // as a whole where places say the same.
  double noise_information_bits = 0;
  // The paper's figure 4: one prompt; a group with a Z each, two groups with a shared Z.
  std::vector<LettersGroup> figure;
};

// Called between batches with the share done; false stops, and an empty study comes back.
using StudyProgress = std::function<bool(double share)>;

// Codes come from the prior everywhere, tokens from the model's own distribution.
LettersStudy study_letters(Engine& engine, const Tokenizer& tokenizer,
                           const LettersSettings& settings, const StudyProgress& progress = {});

OrderedJson to_json(const LettersStudy& study);
LettersStudy letters_study_from_json(const Json& json);

}  // namespace freeformer
