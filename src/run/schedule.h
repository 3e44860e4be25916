// How a quantity changes over a run: a pure function of the step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/settings.h"

namespace freeformer {

// The learning rate's factor. Warm-up is linear: 1/warmup_steps at step 0, 1 at its last step; then
//   constant  1
//   cosine    from 1 to `final_factor` by half a cosine over the remaining steps
//   linear    the same along a line
//   wsd       1, then over the last `decay_share` of all steps a line to `final_factor`
//             (warm-up, stable, decay); the decay never starts before the warm-up is over
// A decay has factor 1 at its first step and final_factor at its last; a decay of a single step has
// final_factor. A warm-up as long as the run leaves no step for anything else.
struct ScheduleSettings {
  std::string kind = "cosine";
  int64_t warmup_steps = 100;
  double final_factor = 0.1;
  double decay_share = 0.2;
};
void list_fields(Fields& fields, ScheduleSettings& settings);
// Refuses values out of range and settings without effect. `prefix` is the section with its dot.
void check(Fields& fields, const std::string& prefix, const ScheduleSettings& settings,
           int64_t steps);

// `step` counts from 0 to steps-1.
double schedule_factor(const ScheduleSettings& settings, int64_t step, int64_t steps);

// How a value gets to where it belongs: "1000:0 1300" is 0 until 1000 steps are done, then along a
// line, and after 1300 the value itself. Any number of points STEP:VALUE may come before the last
// step; two of one step are a jump. Nothing: the value itself from the start.
class ValuePath {
 public:
  // Nothing if the text is no path: steps that fall, a value below 0, no step at the end.
  static std::optional<ValuePath> parse(std::string_view text);

  // `step` counts from 0, like that of schedule_factor.
  double at(int64_t step, double value) const;
  // The first step that has the value itself.
  int64_t end() const { return end_; }

 private:
  struct Point {
    int64_t step = 0;
    double value = 0;
  };
  std::vector<Point> points_;
  int64_t end_ = 0;
};

}  // namespace freeformer
