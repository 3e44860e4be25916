// Plots as SVG, for a page that sets the colours: every shape has a class (series-0 …, axis, grid),
// and the page's style sheet says what that is by day and by night. Nothing has an id, so that any
// number of plots live in one page.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace freeformer {

// Values that are not finite are not drawn: the line has a gap there.
struct PlotSeries {
  std::string label;  // stands at the line's end; empty: belongs to the one before, drawn fainter
  int colour = 0;     // class series-<colour>
  std::vector<std::pair<double, double>> points;
};

struct LinePlot {
  std::string title, x_label, y_label;
  std::vector<PlotSeries> series;
  std::optional<std::pair<double, std::string>> reference;  // a dashed line at y, with its name
  bool log_y = false;                                       // values of 0 and less are not drawn
};
std::string svg(const LinePlot& plot);

// Rows from top to bottom; a cell's opacity is its value over `most` (0: the largest). Where there
// are more columns than can be told apart, a cell is the mean of several.
struct HeatMap {
  std::string title, x_label, y_label, unit;
  std::vector<std::vector<double>> values;  // [row][column]
  double most = 0;
};
std::string svg(const HeatMap& map);

// Round values within [low, high], about `count` of them: multiples of 1, 2 or 5 times a power of
// ten; for a logarithmic axis those numbers themselves. Empty unless low < high (and 0 < low).
std::vector<double> linear_ticks(double low, double high, int count);
std::vector<double> log_ticks(double low, double high, int count);

// For HTML and SVG, between tags and in quoted attributes: & < > " ' are escaped; what neither may
// hold (control characters, bytes that are not UTF-8) becomes U+FFFD.
std::string escaped(std::string_view text);

}  // namespace freeformer
