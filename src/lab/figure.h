// The paper's figure 4 in a terminal.
#pragma once

#include <string>

#include "lab/letters.h"

namespace freeformer {

// The groups, each under a line that says what it is; colour by escape sequences.
std::string figure_text(const LettersStudy& study, bool colour);

// What the groups show, with the measured agreement: one sentence, true whatever was measured.
std::string figure_sentence(const LettersStudy& study);

}  // namespace freeformer
