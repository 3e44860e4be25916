// Where Z comes from: one small grammar for the command line (--z), the HTTP API ("z") and the
// library.
//
//   posterior         prompt: the encoder's, sampled;      generated: prior   (the default)
//   map               prompt: the encoder's most likely;   generated: prior
//   prior             prior everywhere
//   seed:N            prior from seed N everywhere; sequences that share N share Z
//   code:V[,V2,…]     these codes from the first token on, the last one repeated
//   from:TEXT         the codes that the encoder finds most likely in another text, then prior
//   file:PATH         the codes of a file (JSON: an array of codes, or {"codes": […]}, as
//                     `freeformer encode --json` prints), then prior
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace freeformer {

struct LatentPolicy {
  enum class Kind { kPosterior, kMap, kPrior, kSeed, kCodes, kFrom, kFile };

  Kind kind = Kind::kPosterior;
  uint64_t seed = 0;           // of kSeed
  std::vector<int32_t> codes;  // of kCodes; of kFrom and kFile once resolved
  std::string text;            // of kFrom: the text; of kFile: the path

  bool operator==(const LatentPolicy&) const = default;
};

// Throws kInvalidArgument: what was expected, what was found, the nearest policy.
LatentPolicy parse_latent_policy(std::string_view text);

// The inverse: parse(to_text(p)) == p for every policy that is not resolved.
std::string to_text(const LatentPolicy& policy);

// The codes of a file for kFile, at least one. Throws kIo, kInvalidArgument, kCapacity (over 64
// MiB).
std::vector<int32_t> read_codes(const std::string& path);

// What a policy means for one sequence of a model with `bits` bits: pure functions of position.
class CodePlan {
 public:
  // `seed` and `sequence` are the request's. kFrom and kFile must be resolved: their codes filled
  // in. Throws kInvalidArgument for a code that is not below 2^bits.
  CodePlan(const LatentPolicy& policy, int bits, uint64_t seed, uint64_t sequence);

  // Whether the prompt's codes are the encoder's. A model without bits has none.
  bool encodes_prompt() const { return encodes_prompt_; }
  // For them: the uniforms that decide the bits of positions first.., [count * bits]; 0.5 for the
  // most likely. Bit h is 1 where uniform < p.
  std::vector<float> uniforms(int64_t first, int64_t count) const;

  // The code of any other position: given, or drawn from the prior.
  int32_t code(int64_t position) const;
  std::vector<int32_t> codes(int64_t first, int64_t count) const;

 private:
  LatentPolicy policy_;
  int bits_;
  uint64_t seed_, sequence_;  // of the draws
  bool encodes_prompt_;
};

}  // namespace freeformer
