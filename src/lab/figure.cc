#include "lab/figure.h"

#include <fmt/format.h>

namespace freeformer {
namespace {

enum class Ink { kNone, kTarget, kNoise, kFaint };

Ink ink_of(char c) {
  if (c == '_') return Ink::kFaint;
  if (c == '!') return Ink::kNoise;
  return c == ' ' || c == '\n' ? Ink::kNone : Ink::kTarget;
}

const char* escape_of(Ink ink) {
  switch (ink) {
    case Ink::kTarget:
      return "\x1b[1;32m";
    case Ink::kNoise:
      return "\x1b[31m";
    case Ink::kFaint:
      return "\x1b[2m";
    default:
      return "";
  }
}

// Escapes only where the ink changes.
std::string coloured(const std::string& text) {
  std::string out;
  Ink now = Ink::kNone;
  for (const char c : text) {
    const Ink ink = ink_of(c);
    if (ink != now) out += std::string("\x1b[0m") + escape_of(ink);
    now = ink;
    out += c;
  }
  return out + "\x1b[0m";
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

}  // namespace

std::string figure_text(const LettersStudy& study, bool colour) {
  std::string out;
  for (size_t g = 0; g < study.figure.size(); ++g) {
    const LettersGroup& group = study.figure[g];
    const char* title = !study.has_latent ? "no Z: a plain decoder"
                        : g == 0          ? "a Z each: every sequence decides for itself"
                        : g == 1          ? "one Z for all eight"
                                          : "another Z for all eight";
    out += fmt::format("{}{}\n", g == 0 ? "" : "\n", title);
    for (const std::string& text : group.texts) {
      out += fmt::format("  {}> {}\n", group.letter, colour ? coloured(text) : text);
    }
  }
  return out;
}

std::string figure_sentence(const LettersStudy& study) {
  const std::string chance = percent(kPlaceChance);
  if (!study.has_latent) {
    return fmt::format(
        "{} of pairs of sequences start their target within 2 places of each other ({} by chance): "
        "a plain decoder decides as it goes.",
        percent(study.own_z.place), chance);
  }
  const std::string measured = fmt::format(
      "Under one Z, {} of pairs of sequences start their target within 2 places of each other; "
      "with "
      "a Z each it is {} ({} by chance)",
      percent(study.same_z.place), percent(study.own_z.place), chance);
  // Sequences that all end with their target agree without a word of Z.
  const double by_z = study.same_z.place - study.own_z.place;
  const bool decided = study.same_z.place >= 0.5 && by_z >= 0.25;
  const bool hinted = by_z >= kPlaceChance;
  return measured + (decided  ? ": the model had decided where before it wrote a letter."
                     : hinted ? ": Z leans towards a place, and the model is still learning."
                              : ": Z does not decide the place in this model.");
}

}  // namespace freeformer
