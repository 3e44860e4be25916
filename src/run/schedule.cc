#include "run/schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numbers>
#include <sstream>

#include "core/error.h"

namespace freeformer {
namespace {

// At least the last step.
int64_t decay_steps_of_wsd(const ScheduleSettings& settings, int64_t steps) {
  return std::max<int64_t>(1, std::llround(settings.decay_share * double(steps)));
}

}  // namespace

void list_fields(Fields& fields, ScheduleSettings& settings) {
  fields.choice("kind", settings.kind, {"constant", "cosine", "linear", "wsd"},
                "how the learning rate goes on after the warm-up (wsd: stable, then a line down)");
  fields.add(
      "warmup_steps", &settings.warmup_steps,
      "steps in which the rate rises along a line to its full value; left out, it is at "
      "most a tenth of run.steps; as long for an encoder that wakes late (latent.wake_after)");
  fields.add("final_factor", &settings.final_factor, "share of the full rate at the last step");
  fields.add("decay_share", &settings.decay_share, "share of all steps in which wsd goes down");
}

void check(Fields& fields, const std::string& prefix, const ScheduleSettings& settings,
           int64_t steps) {
  const std::string reason = fmt::format("{}kind is \"{}\"", prefix, settings.kind);
  if (settings.kind == "constant") fields.no_effect(prefix + "final_factor", reason);
  if (settings.kind != "wsd") fields.no_effect(prefix + "decay_share", reason);
  if (settings.warmup_steps < 0 || settings.warmup_steps > steps) {
    fields.reject(prefix + "warmup_steps", fmt::format("0 to {}, the steps of the run", steps));
  }
  if (settings.final_factor < 0 || settings.final_factor > 1) {
    fields.reject(prefix + "final_factor", "0 to 1");
  }
  if (settings.decay_share <= 0 || settings.decay_share > 1) {
    fields.reject(prefix + "decay_share", "more than 0 and at most 1");
  }
}

double schedule_factor(const ScheduleSettings& settings, int64_t step, int64_t steps) {
  FF_CHECK(0 <= step && step < steps);
  const int64_t warmup = settings.warmup_steps;
  if (step < warmup) return double(step + 1) / double(warmup);
  if (settings.kind == "constant") return 1;

  const int64_t last = steps - 1;
  int64_t first = warmup;  // of the decay
  if (settings.kind == "wsd") {
    first = std::max(warmup, steps - decay_steps_of_wsd(settings, steps));
  }
  if (step < first) return 1;
  const double progress = first == last ? 1 : double(step - first) / double(last - first);
  if (settings.kind == "cosine") {
    // lerp and not 1 - …: it is exact at both ends.
    return std::lerp(1, settings.final_factor, (1 - std::cos(std::numbers::pi * progress)) / 2);
  }
  FF_CHECK(settings.kind == "linear" || settings.kind == "wsd");
  return std::lerp(1, settings.final_factor, progress);
}

std::optional<ValuePath> ValuePath::parse(std::string_view text) {
  std::istringstream stream{std::string(text)};
  const std::vector<std::string> words(std::istream_iterator<std::string>(stream), {});
  if (words.size() == 1) return std::nullopt;  // a step without a point before it
  ValuePath path;
  for (const std::string& word : words) {
    const size_t colon = word.find(':');
    const bool last = &word == &words.back();
    if (last != (colon == word.npos)) return std::nullopt;
    int64_t step = 0;
    const char* step_end = word.data() + std::min(colon, word.size());
    const auto [parsed, error] = std::from_chars(word.data(), step_end, step);
    if (error != std::errc() || parsed != step_end || step < path.end_) return std::nullopt;
    path.end_ = step;
    if (last) break;
    const auto value = parse_fraction(std::string_view(word).substr(colon + 1));
    if (!value || *value < 0) return std::nullopt;
    path.points_.push_back({step, *value});
  }
  return path;
}

double ValuePath::at(int64_t step, double value) const {
  if (step >= end_) return value;
  size_t next = 0;
  while (next < points_.size() && points_[next].step <= step) ++next;
  if (next == 0) return points_[0].value;
  const Point from = points_[next - 1];
  const Point to = next < points_.size() ? points_[next] : Point{end_, value};
  return std::lerp(from.value, to.value, double(step - from.step) / double(to.step - from.step));
}

}  // namespace freeformer
