#include "lab/report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include "lab/plot.h"
#include "lab/report_style.h"

namespace freeformer {
namespace {

// What the page is made of: every point with its results, the first seed first.
struct Point {
  std::string label;
  int colour = 0;
  std::vector<const SweepResult*> results;
};

// "latent.kappa_bits=1/8" is κ = 1/8; other keys go without their section.
std::string readable_label(const SweepPoint& point) {
  const std::string space = "\u00a0";  // where no line may end
  std::string label = point.label;
  for (const auto& [key, value] : point.values) {
    const std::string written = key + "=" + value;
    const size_t at = label.find(written);
    if (at == std::string::npos) continue;
    const std::string name =
        key == "latent.kappa_bits" ? "κ" : key.substr(key.find_last_of('.') + 1);
    label.replace(at, written.size(), name + space + "=" + space + value);
  }
  return label;
}

std::vector<Point> points_of(const SweepPlan& plan, const std::vector<SweepResult>& results) {
  constexpr int kHues = 6;  // the style sheet's colours 0 to 5; then the two of plain decoders
  std::vector<Point> points;
  int hue = 0;
  for (const SweepPoint& point : plan.points) {
    const int colour = point.kind == SweepPoint::Kind::kGrid    ? hue++ % kHues
                       : point.kind == SweepPoint::Kind::kPlain ? kHues
                                                                : kHues + 1;
    points.push_back({readable_label(point), colour, {}});
  }
  for (const SweepResult& result : results) {
    points.at(result.run->point).results.push_back(&result);
  }
  return points;
}

bool any_study(const std::vector<Point>& points, const std::function<bool(const RunStudy&)>& is) {
  return std::any_of(points.begin(), points.end(), [&](const Point& point) {
    return std::any_of(point.results.begin(), point.results.end(),
                       [&](const SweepResult* result) { return is(result->study); });
  });
}

// --- pieces of the page ---

// What is wider than the page scrolls in its own box, with keys, too.
std::string scroll_box(const std::string& name, const std::string& content) {
  return "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"" + escaped(name) +
         "\">" + content + "</div>\n";
}

std::string figure(const std::string& css, const std::string& caption, const std::string& content) {
  return "<figure class=\"" + css + "\"><figcaption>" + caption + "</figcaption>\n" + content +
         "</figure>\n";
}

std::string section(const std::string& title, const std::string& sentence,
                    const std::string& content) {
  return "<section><h2>" + title + "</h2>\n<p>" + sentence + "</p>\n" + content + "</section>\n";
}

// A dot of the point's colour, and its name.
std::string named(const Point& point) {
  return fmt::format(R"(<span class="key series-{}"></span>{})", point.colour,
                     escaped(point.label));
}

// --- tables ---

using Value = std::function<std::optional<double>(const RunStudy&)>;

struct Column {
  std::string group;  // neighbours of the same group share a heading; empty: none
  std::string name, unit;
  int decimals;
  Value value;
  bool known = false;  // not measured: equal values have no deviation
};

struct Table {
  std::string name, caption, note;  // caption and note: HTML
  std::vector<Column> columns;
};

// With a true minus, and without one where it rounds to nothing.
std::string fixed(double value, int decimals) {
  const std::string text = fmt::format("{:.{}f}", std::abs(value), decimals);
  const bool nothing = text.find_first_not_of("0.") == std::string::npos;
  return value < 0 && !nothing ? "−" + text : text;
}

// "0.2931 ± 0.0012" over seeds.
std::string cell(const Column& column, const Point& point) {
  std::vector<double> values;
  for (const SweepResult* result : point.results) {
    const auto value = column.value(result->study);
    if (value && std::isfinite(*value)) values.push_back(*value);
  }
  if (values.empty()) return "–";
  const OverSeeds over = over_seeds(values);
  std::string text = fixed(over.mean, column.decimals);
  if (over.deviation && !(column.known && *over.deviation < 1e-12)) {
    text +=
        fmt::format(R"(<span class="sd"> ± {}</span>)", fixed(*over.deviation, column.decimals));
  }
  return text;
}

std::string heading(const Column& column) {
  const std::string unit =
      column.unit.empty() ? "" : fmt::format(R"(<span class="unit">{}</span>)", column.unit);
  return fmt::format(R"(<th scope="col">{}{}</th>)", column.name, unit);
}

// One row of headings; where columns have groups, a row for these above it.
std::string headings(const std::vector<Column>& columns) {
  std::string groups = "<td></td>", names = R"(<th scope="col">point</th>)";
  bool grouped = false;
  for (size_t i = 0; i < columns.size();) {
    const std::string& group = columns[i].group;
    size_t end = i + 1;
    while (!group.empty() && end < columns.size() && columns[end].group == group) ++end;
    grouped |= !group.empty();
    groups += group.empty()
                  ? "<td></td>"
                  : fmt::format(R"(<th scope="colgroup" colspan="{}"><span>{}</span></th>)",
                                end - i, group);
    for (; i < end; ++i) names += heading(columns[i]);
  }
  return "<thead>" + (grouped ? "<tr>" + groups + "</tr>" : "") + "<tr>" + names +
         "</tr></thead>\n";
}

std::string html(const Table& table, const std::vector<Point>& points) {
  std::string rows;
  for (const Point& point : points) {
    rows += "<tr><th scope=\"row\">" + named(point) + "</th>";
    for (const Column& column : table.columns) rows += "<td>" + cell(column, point) + "</td>";
    rows += "</tr>\n";
  }
  const std::string body =
      "<table>" + headings(table.columns) + "<tbody>\n" + rows + "</tbody></table>";
  return figure("table", table.caption,
                scroll_box(table.name, body) + "<p class=\"note\">" + table.note + "</p>");
}

Value of_all(double RunStudy::*member) {
  return [member](const RunStudy& s) { return s.*member; };
}

Value of_latent(double RunStudy::*member) {
  return [member](const RunStudy& s) {
    return s.has_latent ? std::optional(s.*member) : std::nullopt;
  };
}

std::string likelihood_section(const std::vector<Point>& points, const RunStudy& asked) {
  Table table;
  table.name = "Held-out likelihood by point";
  table.caption = fmt::format(
      "Held-out figures after training ({} rows, IWAE with K = {}): mean ± standard deviation over "
      "seeds; of nats, fewer are better.",
      asked.rows, asked.iwae_samples);
  table.note =
      "<b>CE</b>: cross-entropy where Z comes from the encoder, which has read the answer; of a "
      "plain decoder, its only cross-entropy. <b>Prior CE</b>: where Z is drawn blindly, as in "
      "generation. <b>ELBO</b> (CE + KL) and the tighter <b>IWAE</b>: upper bounds on the negative "
      "log-likelihood, to be compared with a plain decoder’s, which is exact. <b>KL</b>: how much "
      "Z tells about the text. <b>Bits alive</b>: bits of Z with a mean KL of at least 0.01 bits.";
  table.columns = {{"", "CE", "nats/token", 4,
                    [](const RunStudy& s) { return s.has_latent ? s.posterior_ce : s.ce; }},
                   {"", "prior CE", "nats/token", 4, of_latent(&RunStudy::prior_ce)},
                   {"", "ELBO", "nats/token", 4, of_all(&RunStudy::elbo)},
                   {"", "IWAE", "nats/token", 4, of_all(&RunStudy::iwae)},
                   {"", "KL", "bits/token", 3, of_latent(&RunStudy::kl_bits)},
                   {"", "bits alive", "", 1, [](const RunStudy& s) {
                      return s.has_latent ? std::optional(double(s.bits_alive)) : std::nullopt;
                    }}};
  if (any_study(points, [](const RunStudy& s) { return s.optimum.has_value(); })) {
    table.columns.push_back(
        {"", "best without Z", "nats/token", 4, [](const RunStudy& s) { return s.optimum; }, true});
    table.note +=
        " <b>Best without Z</b>: the negative log-likelihood of a perfect model of this task; but "
        "for chance, no ELBO or IWAE is below it, while a CE that is given Z can be.";
  }
  return section("How well the models predict",
                 "Each point is one setting, scored on text that its models have not seen: how "
                 "many nats does a token cost, and how much of that has moved into the latent code "
                 "Z?",
                 html(table, points));
}

Value of_letters(bool latent_only, const std::function<double(const LettersStudy&)>& value) {
  return [=](const RunStudy& s) {
    const bool has = s.letters && (s.letters->has_latent || !latent_only);
    return has ? std::optional(value(*s.letters)) : std::nullopt;
  };
}

std::string agreement_section(const std::vector<Point>& points) {
  if (!any_study(points, [](const RunStudy& s) { return s.letters.has_value(); })) return "";
  using S = LettersStudy;
  const std::string place = fmt::format("same place (chance {:.2f})", kPlaceChance);
  const std::string spread = "spread of place", noise = "same noise", well_formed = "well-formed";
  const std::string information = "information in Z, bits";
  Table table;
  table.name = "Agreement between sequences by point";
  table.caption =
      "Agreement within groups of generated sequences, Z drawn from the prior: mean ± standard "
      "deviation over seeds.";
  table.note =
      "<b>Same place</b>: share of pairs whose runs of letters start within 2 characters of each "
      "other. <b>Spread</b>: standard deviation of that start, in characters. <b>Same noise</b>: "
      "share of exclamation marks that another sequence of the group has, too. "
      "<b>Well-formed</b>: share of sequences that the task could have made. "
      "<b>Information</b>: how much smaller the entropy is under one Z; on place an estimate from "
      "below, on noise a sum over places.";
  table.columns = {
      {place, "one Z", "", 2, of_letters(true, [](const S& s) { return s.same_z.place; })},
      {place, "a Z each", "", 2, of_letters(false, [](const S& s) { return s.own_z.place; })},
      {spread, "one Z", "", 1, of_letters(true, [](const S& s) { return s.same_z.spread; })},
      {spread, "a Z each", "", 1, of_letters(false, [](const S& s) { return s.own_z.spread; })},
      {noise, "one Z", "", 3, of_letters(true, [](const S& s) { return s.same_z.noise; })},
      {noise, "a Z each", "", 3, of_letters(false, [](const S& s) { return s.own_z.noise; })},
      {well_formed, "one Z", "", 3,
       of_letters(true, [](const S& s) { return s.same_z.well_formed; })},
      {well_formed, "a Z each", "", 3,
       of_letters(false, [](const S& s) { return s.own_z.well_formed; })},
      {information, "on place", "", 2,
       of_letters(true, [](const S& s) { return s.place_information_bits; })},
      {information, "on noise", "", 2,
       of_letters(true, [](const S& s) { return s.noise_information_bits; })}};
  return section(
      "What Z decides",
      "A model writes sequences for the same prompt, once with one Z for all and once "
      "with a Z each: whatever is the same under one Z and differs otherwise was decided "
      "by Z, before the first character was written.",
      html(table, points));
}

// --- curves ---

std::optional<double> number_at(const Json& line, const Json::json_pointer& key) {
  if (!line.contains(key) || !line.at(key).is_number()) return std::nullopt;
  return line.at(key).get<double>();
}

// A line a run; the first of the keys that a line of metrics has is its value.
std::vector<PlotSeries> curves(const std::vector<Point>& points,
                               const std::vector<Json::json_pointer>& keys) {
  const Json::json_pointer step_key("/step");
  std::vector<PlotSeries> all;
  for (const Point& point : points) {
    std::string label = point.label;
    for (const SweepResult* result : point.results) {
      PlotSeries series{label, point.colour, {}};
      for (const Json& line : result->metrics) {
        const auto step = number_at(line, step_key);
        std::optional<double> value;
        for (size_t i = 0; i < keys.size() && !value; ++i) value = number_at(line, keys[i]);
        if (step && value) series.points.emplace_back(*step, *value);
      }
      if (series.points.empty()) continue;
      label.clear();  // the other seeds belong to the first
      all.push_back(std::move(series));
    }
  }
  return all;
}

// The optimum that all runs share, if they do: a line where each has its own would be none's.
std::optional<double> common_optimum(const std::vector<Point>& points) {
  std::optional<double> common;
  for (const Point& point : points) {
    for (const SweepResult* result : point.results) {
      const auto& optimum = result->study.optimum;
      if (!optimum || (common && std::abs(*common - *optimum) > 1e-3)) return std::nullopt;
      if (!common) common = optimum;
    }
  }
  return common;
}

std::string curves_section(const std::vector<Point>& points) {
  using Key = Json::json_pointer;
  const auto optimum = common_optimum(points);
  std::string figures;
  const auto add = [&](LinePlot plot, const std::string& caption) {
    if (plot.series.empty()) return;
    plot.x_label = "step";
    plot.log_y = true;  // κ and what it makes of the losses span decades
    figures += figure("drawn", caption, scroll_box(plot.title, svg(plot)));
  };
  const auto reference =
      optimum ? std::optional(std::pair(*optimum, std::string("best without Z"))) : std::nullopt;
  const std::string below =
      optimum
          ? " Below the dashed line no model can be without Z: there, Z tells it about the text."
          : "";
  const std::string not_below =
      optimum
          ? " What Z tells is paid for here: but for chance, no model gets below the dashed line."
          : "";
  LinePlot loss;
  loss.title = "Cross-entropy over training steps";
  loss.y_label = "cross-entropy, nats per token (log scale)";
  loss.series = curves(points, {Key("/posterior_ce"), Key("/ce")});
  loss.reference = reference;
  add(loss, "<b>Cross-entropy on training text</b>, given the encoder’s Z where a model has one." +
                below);
  LinePlot bound;
  bound.title = "Held-out bound over training steps";
  bound.y_label = "ELBO or cross-entropy, nats per token (log scale)";
  bound.series = curves(
      points, {Key("/evaluation/elbo/nats_per_token"), Key("/evaluation/ce/nats_per_token")});
  bound.reference = reference;
  add(bound,
      "<b>Bound on held-out text</b>: cross-entropy plus KL, or a plain decoder’s cross-entropy." +
          not_below);
  LinePlot kl;
  kl.title = "KL over training steps";
  kl.y_label = "KL, bits per token (log scale)";
  kl.series = curves(points, {Key("/kl_bits")});
  add(kl,
      "<b>KL between the encoder’s Z and a blind draw</b>: how many bits about the text pass "
      "through Z. Up to the allowance κ they are free.");
  if (figures.empty()) return "";
  return section(
      "How training went",
      "The curves show what a model pays per token as it learns, and how much it uses Z; "
      "a full line is a point’s first seed, fainter lines are its other seeds.",
      figures);
}

// --- the paper's figure 4 ---

// Neighbours of one kind share a span: of the letter, noise, or wrong; underscores need none.
std::string coloured_letters(char letter, std::string_view text) {
  const auto kind = [&](char c) {
    return c == '_' ? ' ' : c == '!' ? 'n' : c == letter ? 'l' : 'w';
  };
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin + 1;
    while (end < text.size() && kind(text[end]) == kind(text[begin])) ++end;
    const std::string run = escaped(text.substr(begin, end - begin));
    const char css = kind(text[begin]);
    out += css == ' ' ? run : fmt::format(R"(<span class="{}">{}</span>)", css, run);
    begin = end;
  }
  return out;
}

const char* group_title(bool has_latent, size_t group) {
  if (!has_latent) return "no Z: a plain decoder";
  return group == 0 ? "a Z each" : group == 1 ? "one Z for all" : "another Z for all";
}

std::string samples(const Point& point, const LettersStudy& study) {
  std::string groups;
  for (size_t g = 0; g < study.figure.size(); ++g) {
    const LettersGroup& group = study.figure[g];
    std::string lines;
    for (const std::string& text : group.texts) {
      lines += coloured_letters(group.letter, text) + "\n";
    }
    const std::string title = group_title(study.has_latent, g);
    groups += fmt::format(
        "<h4>{}</h4>\n<pre class=\"letters\" role=\"img\" aria-label=\"{} sequences, "
        "{}\">{}</pre>\n",
        title, group.texts.size(), title, lines);
  }
  return "<div><h3>" + named(point) + "</h3>\n" + scroll_box("Sequences, " + point.label, groups) +
         "</div>\n";
}

std::string samples_section(const std::vector<Point>& points) {
  std::string all, letter;
  for (const Point& point : points) {
    if (point.results.empty() || !point.results[0]->study.letters) continue;
    const LettersStudy& study = *point.results[0]->study.letters;
    if (study.figure.empty()) continue;
    letter = escaped({&study.figure[0].letter, 1});
    all += samples(point, study);
  }
  if (all.empty()) return "";
  const std::string caption = fmt::format(
      "Sequences generated after the prompt <span class=\"swatch\">{0}&gt;</span>, as in figure 4 "
      "of "
      "the paper (each point’s first seed): the letter’s run <span class=\"swatch l\">{0}</span>, "
      "noise <span class=\"swatch n\">!</span>, underscores <span class=\"swatch u\">_</span>, and "
      "what does not belong there <span class=\"swatch w\">X</span>.",
      letter);
  return section(
      "What the models write",
      "Where the runs of a group line up, Z has fixed their place; where its exclamation "
      "marks line up, too, Z has fixed the noise.",
      figure("drawn", caption, "<div class=\"samples\">\n" + all + "</div>\n"));
}

// --- the map of bits ---

HeatMap heat_map(const Point& point, const std::vector<std::vector<double>>& kl_map) {
  HeatMap map;
  map.title = "KL of every bit at every position, " + point.label;
  map.x_label = "position in the text";
  map.y_label = "bit of Z";
  map.unit = "bits";
  for (size_t t = 0; t < kl_map.size(); ++t) {
    const size_t bits = std::max(map.values.size(), kl_map[t].size());
    map.values.resize(bits, std::vector<double>(kl_map.size(), 0));
    for (size_t bit = 0; bit < kl_map[t].size(); ++bit) map.values[bit][t] = kl_map[t][bit];
  }
  return map;
}

std::string bits_section(const std::vector<Point>& points) {
  std::string all;
  for (const Point& point : points) {
    if (point.results.empty() || point.results[0]->study.kl_map.empty()) continue;
    const HeatMap map = heat_map(point, point.results[0]->study.kl_map);
    all += "<div><h3>" + named(point) + "</h3>\n" + scroll_box(map.title, svg(map)) + "</div>\n";
  }
  if (all.empty()) return "";
  return section(
      "Where the bits are used",
      "The stronger a cell’s colour, the more that bit of Z tells about the text at that "
      "position; an empty cell is a bit that the encoder draws blindly.",
      figure("drawn",
             "Mean KL of each bit at each position of held-out text (each point’s first "
             "seed); every map has its own scale.",
             "<div class=\"maps\">\n" + all + "</div>\n"));
}

// --- the settings, the machine, the commands ---

std::string code_box(const std::string& name, const std::string& text) {
  return scroll_box(name, "<pre class=\"code\">" + escaped(text) + "</pre>");
}

std::string settings_section(const std::vector<Point>& points, const SweepPlan& plan) {
  std::string all;
  for (size_t p = 0; p < points.size(); ++p) {
    const auto run = std::find_if(plan.runs.begin(), plan.runs.end(),
                                  [&](const SweepRun& r) { return r.point == p; });
    if (run == plan.runs.end() || run->config.resolved.empty()) continue;
    all += "<details><summary>" + escaped(points[p].label) + "</summary>\n" +
           code_box("Settings, " + points[p].label, run->config.resolved) + "</details>\n";
  }
  if (all.empty()) return "";
  return section("Settings",
                 "Everything that has an effect on a point’s first run; its other runs differ in "
                 "seed and folder only.",
                 all);
}

std::string machine_section(const ReportPage& page) {
  if (page.machine.empty()) return "";
  std::string rows;
  for (const auto& [name, value] : page.machine) {
    rows +=
        "<tr><th scope=\"row\">" + escaped(name) + "</th><td>" + escaped(value) + "</td></tr>\n";
  }
  return section("Machine", "What the runs were made on.",
                 "<table class=\"facts\"><tbody>\n" + rows + "</tbody></table>");
}

std::string commands_section(const ReportPage& page) {
  if (page.commands.empty()) return "";
  return section("To get it again", "These commands make this page.",
                 code_box("Commands", page.commands));
}

std::string head(const ReportPage& page) {
  return "<head>\n<meta charset=\"utf-8\"/>\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
         "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
         // Without it a browser asks the page's server for one.
         "<link rel=\"icon\" href=\"data:,\"/>\n<title>" +
         escaped(page.title) + "</title>\n<style>" + kReportStyle + "</style>\n</head>\n";
}

std::string opening(const ReportPage& page, const SweepPlan& plan, size_t done) {
  std::string out = "<h1>" + escaped(page.title) + "</h1>\n";
  if (!page.summary.empty()) out += "<p class=\"summary\">" + escaped(page.summary) + "</p>\n";
  if (done < plan.runs.size()) {
    out += fmt::format("<p class=\"note\">{} of {} runs are done so far.</p>\n", done,
                       plan.runs.size());
  }
  return out;
}

}  // namespace

std::string report_html(const ReportPage& page, const SweepPlan& plan,
                        const std::vector<SweepResult>& results) {
  const std::vector<Point> points = points_of(plan, results);
  std::string body = opening(page, plan, results.size());
  if (!results.empty()) {
    body += likelihood_section(points, results[0].study) + agreement_section(points) +
            curves_section(points) + samples_section(points) + bits_section(points);
  }
  body += settings_section(points, plan) + machine_section(page) + commands_section(page);
  return "<!doctype html>\n<html lang=\"en\">\n" + head(page) + "<body>\n<main>\n" + body +
         "</main>\n</body>\n</html>\n";
}

}  // namespace freeformer
