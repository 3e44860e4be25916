// One HTML page that shows a study: no network, no script, light and dark, readable on a phone and
// on paper.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lab/sweep.h"

namespace freeformer {

struct ReportPage {
  std::string title;
  std::string summary;                                       // a sentence or two, plain text
  std::string commands;                                      // what to run to get it again
  std::vector<std::pair<std::string, std::string>> machine;  // name, value
};

// The table of points, agreement tables for letters, losses and KL over the steps, the paper's
// figure and the map of bits for every point (of its first seed), the settings. What no run has
// (a latent, letters, evaluations) has no section. The page is well-formed XML, too, and the same
// results give the same text.
std::string report_html(const ReportPage& page, const SweepPlan& plan,
                        const std::vector<SweepResult>& results);

}  // namespace freeformer
