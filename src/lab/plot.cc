#include "lab/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "core/utf8.h"

namespace freeformer {
namespace {

// In units of the drawing; a page scales it. Texts are 13 high.
constexpr double kWidth = 760;
constexpr double kTop = 30, kLeft = 52, kBottom = 40;
constexpr double kLineHeight = 17;    // between labels
constexpr double kLetterWidth = 6.9;  // of the widest common fonts, so that no label is cut
constexpr size_t kLongestLabel = 34;  // letters; more would leave no room for the plot
constexpr double kLeader = 26;        // from a line's end to its label
constexpr double kMostDecades = 4;    // of a logarithmic axis: a first value of 1e-9 is no news
constexpr size_t kMostColumns = 130;  // of a heat map
constexpr double kUsable = 1e100;     // beyond, differences overflow

bool usable(double value) { return std::abs(value) < kUsable; }  // false for NaN

size_t letters(std::string_view text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string shortened(const std::string& text) {
  if (letters(text) <= kLongestLabel) return text;
  size_t seen = 0, end = 0;
  while (end < text.size()) {
    if ((text[end] & 0xc0) != 0x80 && ++seen == kLongestLabel) break;
    ++end;
  }
  return text.substr(0, end) + "…";
}

// At most four digits that say something.
std::string number(double value) { return fmt::format("{:.4g}", value); }

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  bool empty() const { return low > high; }
  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

class Axis {
 public:
  // From 0 where that costs less than half of the axis.
  static Axis linear(Range range, bool touches_ends, int ticks) {
    if (range.empty()) range = {0, 1};
    if (range.low >= 0 && range.low <= range.high / 2) range.low = 0;
    double margin = touches_ends ? 0 : 0.05 * (range.high - range.low);
    if (range.low == range.high) margin = range.low == 0 ? 1 : 0.1 * std::abs(range.low);
    if (range.low != 0) range.low -= margin;
    range.high += margin;
    return Axis(range, false, linear_ticks(range.low, range.high, ticks));
  }

  static Axis logarithmic(Range range, int ticks) {
    if (range.empty()) range = {0.1, 1};
    range.low = std::max(range.low, range.high * std::pow(10, -kMostDecades));
    const double margin = std::max(std::pow(range.high / range.low, 0.05), 1.02);
    range = {range.low / margin, range.high * margin};
    return Axis(range, true, log_ticks(range.low, range.high, ticks));
  }

  const std::vector<double>& ticks() const { return ticks_; }
  bool holds(double value) const { return usable(value) && (!log_ || value > 0); }

  // 0 at the low end, 1 at the high end.
  double share(double value) const {
    return log_ ? std::log(value / range_.low) / std::log(range_.high / range_.low)
                : (value - range_.low) / (range_.high - range_.low);
  }

  // As many decimals as the ticks' distance needs.
  std::string text(double tick) const {
    const double step = ticks_.size() > 1 ? ticks_[1] - ticks_[0] : 0;
    if (log_ || step < 1e-6 || std::abs(tick) >= 1e6) return fmt::format("{:g}", tick);
    return fmt::format("{:.{}f}", tick, std::max(0, int(std::ceil(-std::log10(step) - 1e-9))));
  }

 private:
  Axis(Range range, bool log, std::vector<double> ticks)
      : range_(range), log_(log), ticks_(std::move(ticks)) {}

  Range range_;
  bool log_;
  std::vector<double> ticks_;
};

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)", x, y, anchor,
                     escaped(text));
}

std::string line(std::string_view css, double x1, double y1, double x2, double y2) {
  return fmt::format(R"(<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", css,
                     x1, y1, x2, y2);
}

std::string drawing(double height, const std::string& title, const std::string& description,
                    const std::string& body) {
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" viewBox="0 0 {:.0f} {:.0f}">)"
      "\n<title>{}</title>\n<desc>{}</desc>\n{}</svg>\n",
      kWidth, height, escaped(title), escaped(description), body);
}

// A label at the end of a line.
struct EndLabel {
  std::string text, css;
  double from, y;  // where the line ends, where the label stands
};

// Moves labels as little as keeps them a line apart, within [top, bottom].
void spread(std::vector<EndLabel>& labels, double top, double bottom) {
  std::stable_sort(labels.begin(), labels.end(),
                   [](const EndLabel& a, const EndLabel& b) { return a.from < b.from; });
  double free = top;
  for (EndLabel& label : labels) {
    label.y = std::max(label.from, free);
    free = label.y + kLineHeight;
  }
  free = bottom;
  for (auto label = labels.rbegin(); label != labels.rend(); ++label) {
    label->y = std::min(label->y, free);
    free = label->y - kLineHeight;
  }
}

class LineDrawing {
 public:
  explicit LineDrawing(const LinePlot& plot)
      : plot_(plot),
        height_(plot_height(plot)),
        right_(kWidth - kLeader - 6 - kLetterWidth * double(longest_label(plot))),
        x_(Axis::linear(x_range(plot), true, 8)),
        y_(plot.log_y ? Axis::logarithmic(y_range(plot), 7)
                      : Axis::linear(y_range(plot), false, 6)) {}

  std::string svg() const {
    const double bottom = kTop + height_;
    std::string body = axes(bottom);
    // What leaves the axis (a logarithmic one has a lower end) is cut at the inner drawing's edge.
    body += fmt::format(R"(<svg x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">)", kLeft,
                        kTop, right_ - kLeft, height_) +
            "\n" + lines() + "</svg>\n" + end_labels(bottom);
    return drawing(bottom + kBottom, plot_.title, description(), body);
  }

 private:
  static double plot_height(const LinePlot& plot) {
    const auto labels = std::count_if(plot.series.begin(), plot.series.end(),
                                      [](const PlotSeries& s) { return !s.label.empty(); });
    return std::max(270.0, kLineHeight * double(labels + (plot.reference ? 1 : 0)));
  }

  static size_t longest_label(const LinePlot& plot) {
    size_t longest = plot.reference ? letters(shortened(plot.reference->second)) : 0;
    for (const PlotSeries& s : plot.series)
      longest = std::max(longest, letters(shortened(s.label)));
    return longest;
  }

  static Range x_range(const LinePlot& plot) {
    Range range;
    for (const PlotSeries& s : plot.series) {
      for (const auto& [x, y] : s.points) {
        if (usable(x) && usable(y)) range.include(x);
      }
    }
    return range;
  }

  static Range y_range(const LinePlot& plot) {
    Range range;
    const auto include = [&](double y) {
      if (usable(y) && (!plot.log_y || y > 0)) range.include(y);
    };
    for (const PlotSeries& s : plot.series) {
      for (const auto& [x, y] : s.points) {
        if (usable(x)) include(y);
      }
    }
    if (plot.reference) include(plot.reference->first);
    return range;
  }

  bool drawn(const std::pair<double, double>& point) const {
    return x_.holds(point.first) && y_.holds(point.second);
  }

  double x_of(double x) const { return (right_ - kLeft) * x_.share(x); }  // of the inner drawing
  double y_of(double y) const { return height_ * (1 - y_.share(y)); }     // of the inner drawing

  std::string axes(double bottom) const {
    std::string out = R"(<g class="grid">)";
    for (const double tick : y_.ticks()) {
      const double y = kTop + y_of(tick);
      out += line("", kLeft, y, right_, y);
    }
    out +=
        "</g>\n"
        R"(<g class="ticks">)";
    for (const double tick : y_.ticks()) {
      out += text_at(kLeft - 8, kTop + y_of(tick) + 4.5, "end", y_.text(tick));
    }
    for (const double tick : x_.ticks()) {
      const double x = kLeft + x_of(tick);
      out +=
          line("axis", x, bottom, x, bottom + 4) + text_at(x, bottom + 18, "middle", x_.text(tick));
    }
    out += "</g>\n" + line("axis", kLeft, bottom, right_, bottom) +
           "\n"
           R"(<g class="names">)";
    out += text_at(0, 14, "start", plot_.y_label);
    out += text_at(right_, bottom + 35, "end", plot_.x_label);
    return out + "</g>\n";
  }

  // The faint ones first: the others lie above them.
  std::string lines() const {
    std::string faint, full;
    for (const PlotSeries& s : plot_.series) {
      (s.label.empty() ? faint : full) += path(s);
    }
    if (plot_.reference && y_.holds(plot_.reference->first)) {
      const double y = y_of(plot_.reference->first);
      full += line("reference", 0, y, right_ - kLeft, y) + "\n";
    }
    return faint + full;
  }

  // A path with gaps; a point that has no neighbour is a dot.
  std::string path(const PlotSeries& series) const {
    const auto& points = series.points;
    std::string d, dots;
    double last_x = 0;
    for (size_t i = 0; i < points.size(); ++i) {
      if (!drawn(points[i])) continue;
      const bool starts = i == 0 || !drawn(points[i - 1]);
      const bool ends = i + 1 == points.size() || !drawn(points[i + 1]);
      const double x = x_of(points[i].first), y = y_of(points[i].second);
      if (starts && ends) dots += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="2.5"/>)", x, y);
      // Points closer than half a unit cannot be told apart: long runs stay small pages.
      if (!starts && !ends && std::abs(x - last_x) < 0.5) continue;
      if (!starts || !ends) d += fmt::format("{}{:.1f} {:.1f}", starts ? 'M' : 'L', x, y);
      last_x = x;
    }
    if (d.empty() && dots.empty()) return "";
    std::string out = fmt::format(R"(<g class="series-{}{}">)", series.colour,
                                  series.label.empty() ? " faint" : "");
    if (!d.empty()) out += fmt::format(R"(<path fill="none" d="{}"/>)", d);
    return out + dots + "</g>\n";
  }

  const std::pair<double, double>* last_drawn(const PlotSeries& series) const {
    for (auto point = series.points.rbegin(); point != series.points.rend(); ++point) {
      if (drawn(*point)) return &*point;
    }
    return nullptr;
  }

  std::string end_labels(double bottom) const {
    std::vector<EndLabel> labels;
    const auto add = [&](const std::string& text, std::string css, double y) {
      labels.push_back({text, std::move(css), kTop + std::clamp(y_of(y), 0.0, height_), 0});
    };
    for (const PlotSeries& s : plot_.series) {
      const auto* last = last_drawn(s);
      if (!s.label.empty() && last) add(s.label, fmt::format("series-{}", s.colour), last->second);
    }
    if (plot_.reference && y_.holds(plot_.reference->first)) {
      add(plot_.reference->second, "reference", plot_.reference->first);
    }
    spread(labels, kTop, bottom);
    std::string out;
    for (const EndLabel& label : labels) {
      out += fmt::format(
                 R"(<g class="legend {}"><path fill="none" d="M{:.1f} {:.1f}L{:.1f} {:.1f}h8"/>)",
                 label.css, right_ + 2, label.from, right_ + kLeader - 12, label.y) +
             text_at(right_ + kLeader, label.y + 4.5, "start", shortened(label.text)) + "</g>\n";
    }
    return out;
  }

  std::string description() const {
    std::string out = plot_.y_label + " over " + plot_.x_label + ".";
    for (const PlotSeries& s : plot_.series) {
      const auto* last = last_drawn(s);
      if (s.label.empty() || !last) continue;
      out += fmt::format(" {}: {} at {}.", s.label, number(last->second), number(last->first));
    }
    if (plot_.reference && y_.holds(plot_.reference->first)) {
      out += fmt::format(" {}: {}.", plot_.reference->second, number(plot_.reference->first));
    }
    return out;
  }

  const LinePlot& plot_;
  double height_, right_;
  Axis x_, y_;
};

// Neighbouring columns as their mean, `by` at a time; what is not finite is left out of it.
std::vector<double> pooled(const std::vector<double>& row, size_t by) {
  std::vector<double> out;
  for (size_t begin = 0; begin < row.size(); begin += by) {
    double sum = 0;
    size_t count = 0;
    for (size_t i = begin; i < std::min(begin + by, row.size()); ++i) {
      if (!usable(row[i])) continue;
      sum += row[i];
      ++count;
    }
    out.push_back(count == 0 ? std::nan("") : sum / double(count));
  }
  return out;
}

class HeatDrawing {
 public:
  explicit HeatDrawing(const HeatMap& map) : map_(map) {
    for (const auto& row : map.values) columns_ = std::max(columns_, row.size());
    by_ = std::max<size_t>(1, (columns_ + kMostColumns - 1) / kMostColumns);
    for (const auto& row : map.values) rows_.push_back(pooled(row, by_));
    for (const auto& row : rows_) {
      for (const double value : row) {
        if (usable(value)) largest_ = std::max(largest_, value);
      }
    }
    most_ = map.most > 0 ? map.most : largest_;
  }

  std::string svg() const {
    const double bottom = kTop + kCell * double(rows_.size());
    return drawing(bottom + kBottom, map_.title, description(),
                   cells(bottom) + names(bottom) + legend());
  }

 private:
  static constexpr double kCell = 15, kHeatLeft = 30, kRight = kWidth - 4;
  static constexpr int kLegendSteps = 24;
  static constexpr double kLegendStep = 5;

  double x_of(double column) const {
    return kHeatLeft + (kRight - kHeatLeft) * column / double(std::max<size_t>(columns_, 1));
  }

  static std::string cell(double x, double y, double width, double height, double opacity) {
    return fmt::format(
        R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}" fill-opacity="{:.3g}"/>)", x,
        y, width, height, std::clamp(opacity, 0.0, 1.0));
  }

  std::string cells(double bottom) const {
    std::string out = fmt::format(
        R"(<rect class="heat-paper" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)",
        kHeatLeft, kTop, kRight - kHeatLeft, bottom - kTop);
    out +=
        "\n"
        R"(<g class="heat">)";
    for (size_t r = 0; r < rows_.size(); ++r) {
      for (size_t c = 0; c < rows_[r].size(); ++c) {
        const double opacity = most_ > 0 ? rows_[r][c] / most_ : 0;
        if (!(opacity >= 0.002)) continue;  // nothing to see, or not a number
        const double x = x_of(double(c * by_));
        const double end = x_of(double(std::min((c + 1) * by_, columns_)));
        out += cell(x, kTop + kCell * double(r), end - x, kCell, opacity);
      }
      out += "\n";
    }
    return out + "</g>\n";
  }

  std::string names(double bottom) const {
    std::string out = R"(<g class="ticks">)";
    for (size_t r = 0; r < rows_.size(); ++r) {
      out += text_at(kHeatLeft - 7, kTop + kCell * (double(r) + 0.5) + 4.5, "end",
                     fmt::format("{}", r));
    }
    for (const double tick : linear_ticks(0, double(columns_) - 1, 12)) {
      if (tick != std::floor(tick)) continue;
      const double x = x_of(tick + 0.5);
      out += line("axis", x, bottom, x, bottom + 4) +
             text_at(x, bottom + 18, "middle", fmt::format("{:.0f}", tick));
    }
    out +=
        "</g>\n"
        R"(<g class="names">)" +
        text_at(0, 14, "start", map_.y_label);
    return out + text_at(kRight, bottom + 35, "end", map_.x_label) + "</g>\n";
  }

  // From 0 to the most, at the top right.
  std::string legend() const {
    const std::string most = fmt::format("{:.2g} {}", most_, map_.unit);
    const double end = kRight - kLetterWidth * double(letters(most)) - 8;
    const double begin = end - kLegendSteps * kLegendStep;
    std::string out =
        fmt::format(R"(<rect class="heat-paper" x="{:.1f}" y="4" width="{:.1f}" height="12"/>)",
                    begin, end - begin);
    out += R"(<g class="heat">)";
    for (int i = 0; i < kLegendSteps; ++i) {
      out += cell(begin + i * kLegendStep, 4, kLegendStep, 12, (i + 0.5) / kLegendSteps);
    }
    out += R"(</g><g class="ticks">)" + text_at(begin - 7, 14.5, "end", "0");
    return out + text_at(end + 7, 14.5, "start", most) + "</g>\n";
  }

  std::string description() const {
    std::string out =
        fmt::format("{} rows ({}) of {} columns ({}); the largest value is {} {}.", rows_.size(),
                    map_.y_label, columns_, map_.x_label, number(largest_), map_.unit);
    if (by_ > 1) out += fmt::format(" Each cell is the mean of {} columns.", by_);
    return out;
  }

  const HeatMap& map_;
  std::vector<std::vector<double>> rows_;
  size_t columns_ = 0, by_ = 1;  // of the values; how many of them a cell shows
  double largest_ = 0, most_ = 0;
};

bool is_range(double low, double high) {
  return usable(low) && usable(high) && low < high && low + (high - low) / 1e6 > low;
}

}  // namespace

std::string svg(const LinePlot& plot) { return LineDrawing(plot).svg(); }

std::string svg(const HeatMap& map) { return HeatDrawing(map).svg(); }

std::vector<double> linear_ticks(double low, double high, int count) {
  if (!is_range(low, high) || count < 1) return {};
  const double about = (high - low) / count, power = std::pow(10, std::floor(std::log10(about)));
  const double digit = about / power;
  const double step = power * (digit <= 1.5 ? 1 : digit <= 3.5 ? 2 : digit <= 7.5 ? 5 : 10);
  std::vector<double> ticks;
  for (double i = std::ceil(low / step); i * step <= high; ++i) {
    if (i * step >= low) ticks.push_back(i * step);
  }
  return ticks;
}

std::vector<double> log_ticks(double low, double high, int count) {
  if (!is_range(low, high) || low <= 0 || count < 1) return {};
  const auto within = [&](std::initializer_list<int> digits) {
    std::vector<double> ticks;
    for (double e = std::floor(std::log10(low)); e <= std::log10(high); ++e) {
      for (const int digit : digits) {
        const double tick = e < 0 ? digit / std::pow(10, -e) : digit * std::pow(10, e);
        if (tick >= low && tick <= high) ticks.push_back(tick);
      }
    }
    return ticks;
  };
  std::vector<double> ticks = within({1, 2, 5});
  if (ticks.size() < 3) return linear_ticks(low, high, count);  // less than a decade
  if (ticks.size() > size_t(2 * count)) ticks = within({1});
  while (ticks.size() > size_t(2 * count)) {  // every second one
    for (size_t i = 0; 2 * i < ticks.size(); ++i) ticks[i] = ticks[2 * i];
    ticks.resize((ticks.size() + 1) / 2);
  }
  return ticks;
}

std::string escaped(std::string_view text) {
  constexpr const char* kReplacement = "\xef\xbf\xbd";
  std::string out;
  while (!text.empty()) {
    const size_t good = std::min(find_invalid_utf8(text), text.size());
    for (const char c : text.substr(0, good)) {
      const bool control = (c >= 0 && c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
      if (control) {
        out += kReplacement;
      } else if (c == '&') {
        out += "&amp;";
      } else if (c == '<') {
        out += "&lt;";
      } else if (c == '>') {
        out += "&gt;";
      } else if (c == '"') {
        out += "&quot;";
      } else if (c == '\'') {
        out += "&#39;";
      } else {
        out += c;
      }
    }
    if (good == text.size()) break;
    out += kReplacement;
    text.remove_prefix(good + 1);
  }
  return out;
}

}  // namespace freeformer
