#include "lab/sweep.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file.h"

namespace freeformer {
namespace {

// A folder's name from any text: what is not a letter, a digit or one of =.+-_ becomes a dash.
std::string folder_name(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("=.+-_").find(c) != std::string_view::npos;
    if (plain || name.empty() || name.back() != '-') name += plain ? c : '-';
  }
  return name;
}

std::string joined(const std::vector<std::pair<std::string, std::string>>& values) {
  std::string text;
  for (const auto& [key, value] : values) text += (text.empty() ? "" : ", ") + key + "=" + value;
  return text;
}

// Every combination of the axes' values, the last axis fastest.
std::vector<SweepPoint> grid(const std::vector<SweepAxis>& axes) {
  std::vector<SweepPoint> points(1);
  for (const SweepAxis& axis : axes) {
    std::vector<SweepPoint> longer;
    for (const SweepPoint& point : points) {
      for (const std::string& value : axis.values) {
        longer.push_back(point);
        longer.back().values.emplace_back(axis.key, value);
      }
    }
    points = std::move(longer);
  }
  for (SweepPoint& point : points) {
    point.label = point.values.empty() ? "as configured" : joined(point.values);
  }
  return points;
}

bool is_of_latent(const std::string& key) {
  return key.starts_with("latent.") || key == "optimizer.encoder_factor" ||
         key == "optimizer.table_factor" || key == "evaluation.iwae_samples";
}

// Plain decoders have no latent: its keys do not part them.
std::vector<SweepPoint> baselines(const std::vector<SweepAxis>& axes) {
  std::vector<SweepAxis> others;
  for (const SweepAxis& axis : axes) {
    if (!is_of_latent(axis.key)) others.push_back(axis);
  }
  std::vector<SweepPoint> points;
  for (const auto kind : {SweepPoint::Kind::kPlain, SweepPoint::Kind::kDeeper}) {
    for (SweepPoint& point : grid(others)) {
      point.kind = kind;
      point.label = kind == SweepPoint::Kind::kPlain ? "plain" : "plain, one more layer";
      if (!point.values.empty()) point.label += ", " + joined(point.values);
      points.push_back(std::move(point));
    }
  }
  return points;
}

std::vector<std::string> assignments_of(const SweepRequest& request, const SweepPoint& point) {
  std::vector<std::string> assignments = request.assignments;
  for (const auto& [key, value] : point.values) assignments.push_back(key + "=" + value);
  if (point.kind != SweepPoint::Kind::kGrid) {
    std::erase_if(assignments,
                  [](const std::string& a) { return is_of_latent(a.substr(0, a.find('='))); });
    assignments.push_back("latent.bits=0");
  }
  if (point.kind == SweepPoint::Kind::kDeeper) {
    const TrainConfig plain = read_train_config(request.config, assignments);
    assignments.push_back(
        fmt::format("model.num_hidden_layers={}", plain.model.num_hidden_layers + 1));
  }
  return assignments;
}

struct SummaryColumn {
  std::string name;
  std::function<std::optional<double>(const RunStudy&)> value;
  const char* format;
};

std::optional<double> if_latent(const RunStudy& study, double value) {
  return study.has_latent ? std::optional(value) : std::nullopt;
}

std::vector<SummaryColumn> columns(const std::vector<SweepResult>& results) {
  std::vector<SummaryColumn> all = {
      {"steps", [](const RunStudy& s) { return std::optional(double(s.step)); }, "{:.0f}"},
      {"CE or ELBO", [](const RunStudy& s) { return std::optional(s.elbo); }, "{:.4f}"},
      {"IWAE", [](const RunStudy& s) { return if_latent(s, s.iwae); }, "{:.4f}"},
      {"posterior CE", [](const RunStudy& s) { return if_latent(s, s.posterior_ce); }, "{:.4f}"},
      {"prior CE", [](const RunStudy& s) { return if_latent(s, s.prior_ce); }, "{:.4f}"},
      {"KL, bits", [](const RunStudy& s) { return if_latent(s, s.kl_bits); }, "{:.3f}"},
      {"bits alive", [](const RunStudy& s) { return if_latent(s, double(s.bits_alive)); },
       "{:.1f}"}};
  const bool has_optimum = std::any_of(results.begin(), results.end(),
                                       [](const SweepResult& r) { return r.study.optimum; });
  if (has_optimum) {
    all.push_back({"best without Z", [](const RunStudy& s) { return s.optimum; }, "{:.4f}"});
  }
  const auto letters = [&](const char* name, const char* format, bool latent_only, auto value) {
    all.push_back({name,
                   [=](const RunStudy& s) -> std::optional<double> {
                     if (!s.letters || (latent_only && !s.has_latent)) return std::nullopt;
                     return value(*s.letters);
                   },
                   format});
  };
  const bool has_letters = std::any_of(results.begin(), results.end(), [](const SweepResult& r) {
    return r.study.letters.has_value();
  });
  if (has_letters) {
    using S = LettersStudy;
    letters("place, same Z", "{:.2f}", true, [](const S& s) { return s.same_z.place; });
    letters("place, own Z", "{:.2f}", false, [](const S& s) { return s.own_z.place; });
    letters("spread, same Z", "{:.1f}", true, [](const S& s) { return s.same_z.spread; });
    letters("spread, own Z", "{:.1f}", false, [](const S& s) { return s.own_z.spread; });
    letters("noise, same Z", "{:.3f}", true, [](const S& s) { return s.same_z.noise; });
    letters("noise, own Z", "{:.3f}", false, [](const S& s) { return s.own_z.noise; });
    letters("share of noise", "{:.3f}", true, [](const S& s) { return s.same_z.noise_rate; });
    letters("well formed, same Z", "{:.3f}", true, [](const S& s) { return s.same_z.well_formed; });
    letters("well formed, own Z", "{:.3f}", false, [](const S& s) { return s.own_z.well_formed; });
    letters("I(Z; place), bits", "{:.2f}", true,
            [](const S& s) { return s.place_information_bits; });
    letters("I(Z; noise), bits, sum over places", "{:.2f}", true,
            [](const S& s) { return s.noise_information_bits; });
  }
  return all;
}

// In a table's cell: a bar would end it.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

// "0.123 ± 0.004" over seeds.
std::string cell(const SummaryColumn& column, const std::vector<const RunStudy*>& studies) {
  std::vector<double> values;
  for (const RunStudy* study : studies) {
    if (const auto value = column.value(*study)) values.push_back(*value);
  }
  if (values.empty()) return "–";
  const OverSeeds over = over_seeds(values);
  std::string text = fmt::format(fmt::runtime(column.format), over.mean);
  if (over.deviation) text += " ± " + fmt::format(fmt::runtime(column.format), *over.deviation);
  return text;
}

}  // namespace

OverSeeds over_seeds(const std::vector<double>& values) {
  FF_CHECK(!values.empty());
  OverSeeds over;
  double squares = 0;
  for (const double value : values) over.mean += value / double(values.size());
  for (const double value : values) squares += (value - over.mean) * (value - over.mean);
  if (values.size() > 1) over.deviation = std::sqrt(squares / double(values.size() - 1));
  return over;
}

SweepAxis parse_sweep_axis(const std::string& text) {
  const auto refuse = [&] [[noreturn]] (const char* found) {
    fail(ErrorCode::kInvalidArgument,
         "--over {}: {}, expected a key and its values, like latent.kappa_bits=1/64,1/8,1", text,
         found);
  };
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) refuse("no key");
  SweepAxis axis{text.substr(0, equals), {}};
  int depth = 0;
  char quote = 0;
  std::string value;
  const auto end_value = [&] {
    if (value.size() > 1 && (value[0] == '"' || value[0] == '\'') &&
        value.find(value[0], 1) == value.size() - 1) {
      value = value.substr(1, value.size() - 2);
    }
    if (value.empty()) refuse("an empty value");
    if (std::find(axis.values.begin(), axis.values.end(), value) != axis.values.end()) {
      refuse("a value twice");
    }
    axis.values.push_back(std::move(value));
    value.clear();
  };
  for (const char c : text.substr(equals + 1)) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[') {
      ++depth;
    } else if (c == ']') {
      --depth;
    } else if (c == ',' && depth == 0) {
      end_value();
      continue;
    }
    value += c;
  }
  end_value();
  return axis;
}

SweepPlan plan_sweep(const SweepRequest& request) {
  std::set<std::string> keys;
  for (const SweepAxis& axis : request.axes) {
    if (!keys.insert(axis.key).second) {
      fail(ErrorCode::kInvalidArgument, "--over {}: given twice", axis.key);
    }
    if (axis.key == "run.seed" || axis.key == "run.folder") {
      fail(ErrorCode::kInvalidArgument, "--over {}: {}", axis.key,
           axis.key == "run.seed" ? "use --seeds N" : "the sweep decides it; use --out DIR");
    }
  }
  for (const std::string& assignment : request.assignments) {
    if (assignment.starts_with("run.folder=")) {
      fail(ErrorCode::kInvalidArgument, "--set {}: use --out DIR", assignment);
    }
  }
  SweepPlan plan;
  plan.points = grid(request.axes);
  if (request.baselines) {
    for (SweepPoint& point : baselines(request.axes)) plan.points.push_back(std::move(point));
  }
  std::map<std::string, size_t> settings_seen, names_seen;  // of which point
  const auto refuse_equal = [&](std::map<std::string, size_t>& seen, const std::string& what,
                                size_t point, const char* same) {
    const auto [other, is_new] = seen.emplace(what, point);
    if (is_new) return;
    fail(ErrorCode::kInvalidArgument, "{} and {} are the same {}; expected different ones",
         plan.points[other->second].label, plan.points[point].label, same);
  };
  for (int64_t i = 0; i < request.seeds; ++i) {
    for (size_t p = 0; p < plan.points.size(); ++p) {
      const SweepPoint& point = plan.points[p];
      SweepRun run;
      run.point = p;
      std::vector<std::string> assignments = assignments_of(request, point);
      const TrainConfig first = read_train_config(request.config, assignments);
      if (first.run.seed > std::numeric_limits<int64_t>::max() - i) {
        fail(ErrorCode::kInvalidArgument, "run.seed is {}: {} seeds from there on are too many",
             first.run.seed, request.seeds);
      }
      const DataSettings& data = first.data;
      if ((data.kind == "text" || data.kind == "tokens") && data.held_out == 0) {
        fail(ErrorCode::kInvalidArgument,
             "data.held_out is 0: a sweep asks each model about held-out text; expected more");
      }
      run.seed = first.run.seed + i;
      run.name = fmt::format("{},seed={}", folder_name(point.label), run.seed);
      if (i == 0) {
        refuse_equal(settings_seen, first.resolved, p, "settings");
        refuse_equal(names_seen, run.name, p, "folder");
      }
      assignments.push_back(fmt::format("run.seed={}", run.seed));
      assignments.push_back("run.folder=" + (request.folder / run.name).string());
      run.config = read_train_config(request.config, assignments);
      plan.runs.push_back(std::move(run));
    }
  }
  return plan;
}

OrderedJson to_json(const SweepPlan& plan, const SweepResult& result) {
  OrderedJson json = {{"run", result.run->name},
                      {"point", plan.points[result.run->point].label},
                      {"seed", result.run->seed}};
  json.update(to_json(result.study));
  return json;
}

SweepResult read_sweep_result(const SweepRun& run) {
  SweepResult result;
  result.run = &run;
  const std::filesystem::path metrics = run.config.folder / "metrics.jsonl";
  const std::string text = read_text_file(metrics, size_t{1} << 30);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    try {
      result.metrics.push_back(parse_json(std::string_view(text).substr(begin, end - begin),
                                          metrics.string(), ErrorCode::kBadCheckpoint));
    } catch (const Error& error) {
      fail(error.code(), "{}; remove {}, and the sweep trains it again", error.what(),
           run.config.folder.string());
    }
    begin = end + 1;
  }
  result.study = read_run_study(run.config.folder / "study.json");
  return result;
}

std::string sweep_table(const SweepPlan& plan, const std::vector<SweepResult>& results) {
  const std::vector<SummaryColumn> all = columns(results);
  std::string header = "| point | runs |", rule = "|---|---|", rows;
  std::vector<SummaryColumn> used;
  for (const SummaryColumn& column : all) {
    const bool any = std::any_of(results.begin(), results.end(), [&](const SweepResult& r) {
      return column.value(r.study).has_value();
    });
    if (!any) continue;
    used.push_back(column);
    header += " " + column.name + " |";
    rule += "---|";
  }
  for (size_t p = 0; p < plan.points.size(); ++p) {
    std::vector<const RunStudy*> studies;
    for (const SweepResult& result : results) {
      if (result.run->point == p) studies.push_back(&result.study);
    }
    rows += fmt::format("| {} | {} |", escaped(plan.points[p].label), studies.size());
    for (const SummaryColumn& column : used) rows += " " + cell(column, studies) + " |";
    rows += "\n";
  }
  return header + "\n" + rule + "\n" + rows;
}

}  // namespace freeformer
