#include "lab/plot.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/xml_check.h"

namespace freeformer {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

LinePlot plot_of(std::vector<std::pair<double, double>> points) {
  LinePlot plot;
  plot.title = "loss";
  plot.x_label = "step";
  plot.y_label = "nats";
  plot.series.push_back({"first", 0, std::move(points)});
  return plot;
}

std::vector<std::string> matches(const std::string& text, const std::string& pattern) {
  std::vector<std::string> found;
  const std::regex regex(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
    found.push_back((*at)[1]);
  }
  return found;
}

// The path data of the lines, without those of the legend.
std::vector<std::string> paths(const std::string& svg) {
  return matches(svg, R"re(<g class="series-[^>]*><path fill="none" d="([^"]*)")re");
}

void expect_sound(const std::string& svg) {
  EXPECT_EQ(xml_fault(svg), "") << svg;
  EXPECT_EQ(occurrences(svg, "http"), 1u) << "but for the name space nothing has an address";
  EXPECT_THAT(svg, HasSubstr("xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(svg, HasSubstr("role=\"img\""));
  EXPECT_THAT(svg, HasSubstr("<title>"));
  EXPECT_THAT(svg, HasSubstr("<desc>"));
  EXPECT_THAT(svg, Not(HasSubstr(" id=")));
  for (const char* not_a_number : {"\"nan", "\"inf", "\"-inf", " nan", " inf", ">nan<", ">inf<"}) {
    EXPECT_THAT(svg, Not(HasSubstr(not_a_number)));
  }
}

TEST(XmlCheck, FindsWhatIsNotWellFormed) {
  EXPECT_EQ(xml_fault("<a b=\"1\"><c/>x &amp; y</a>"), "");
  for (const char* bad : {"<a>", "<a></b>", "<a>&</a>", "<a b=1></a>", "<a b=\"<\"/>", "<a/><b/>",
                          "<a b=\"1\" b=\"2\"/>", "x<a/>", "<a>1 < 2</a>", "", "<a"}) {
    EXPECT_NE(xml_fault(bad), "") << bad;
  }
}

TEST(Ticks, AreRoundAndWithinTheRange) {
  EXPECT_THAT(linear_ticks(0, 3000, 6), ElementsAre(0, 500, 1000, 1500, 2000, 2500, 3000));
  EXPECT_THAT(linear_ticks(0.26, 0.34, 4),
              ElementsAre(DoubleNear(0.26, 1e-9), DoubleNear(0.28, 1e-9), DoubleNear(0.3, 1e-9),
                          DoubleNear(0.32, 1e-9), DoubleNear(0.34, 1e-9)));
  EXPECT_THAT(log_ticks(0.9, 60, 6), ElementsAre(1, 2, 5, 10, 20, 50));
}

TEST(Ticks, OfAnyRangeLieInItAndAreNeitherFewNorMany) {
  for (const double low : {-1e9, -7.3, -1e-4, 0.0, 1e-7, 0.29, 3.0, 1e6}) {
    for (const double span : {1e-4, 0.013, 1.0, 77.0, 1e5, 1e12}) {
      if (std::abs(low) > 1e6 * span) continue;
      for (const bool log : {false, true}) {
        if (log && low <= 0) continue;
        const double high = low + span;
        const auto ticks = log ? log_ticks(low, high, 6) : linear_ticks(low, high, 6);
        ASSERT_GE(ticks.size(), 2u) << low << " " << high << " " << log;
        ASSERT_LE(ticks.size(), 13u) << low << " " << high << " " << log;
        EXPECT_GE(ticks.front(), low);
        EXPECT_LE(ticks.back(), high);
        EXPECT_TRUE(std::adjacent_find(ticks.begin(), ticks.end(), std::greater_equal<>()) ==
                    ticks.end())
            << "they rise";
      }
    }
  }
}

TEST(Ticks, OfNoRangeAreNone) {
  EXPECT_TRUE(linear_ticks(1, 1, 6).empty());
  EXPECT_TRUE(linear_ticks(2, 1, 6).empty());
  EXPECT_TRUE(linear_ticks(kNan, 1, 6).empty());
  EXPECT_TRUE(linear_ticks(0, kInfinity, 6).empty());
  EXPECT_TRUE(linear_ticks(1, 1 + 1e-15, 6).empty());
  EXPECT_TRUE(log_ticks(0, 1, 6).empty());
}

TEST(LinePlot, DrawsEverySeriesWithItsClassAndLabel) {
  LinePlot plot = plot_of({{0, 3}, {10, 2}, {20, 1}});
  plot.series.push_back({"", 0, {{0, 3.1}, {20, 1.1}}});
  plot.series.push_back({"second", 5, {{0, 2.5}, {20, 0.5}}});
  plot.reference = {0.7, "entropy"};
  const std::string text = svg(plot);
  expect_sound(text);
  EXPECT_EQ(paths(text).size(), 3u);
  EXPECT_EQ(occurrences(text, "class=\"series-0 faint\""), 1u);
  EXPECT_EQ(occurrences(text, "class=\"series-5\""), 1u);
  EXPECT_EQ(occurrences(text, "class=\"reference\""), 1u);
  for (const char* label : {">first<", ">second<", ">entropy<", ">step<", ">nats<", ">20<"}) {
    EXPECT_THAT(text, HasSubstr(label));
  }
  EXPECT_LT(text.find("series-0 faint"), text.find("class=\"series-0\"")) << "the faint lie below";
}

TEST(LinePlot, HigherValuesLieHigher) {
  const std::string text = svg(plot_of({{0, 1}, {10, 5}, {20, 3}}));
  const auto ys = matches(paths(text).at(0), R"([ML][0-9.]+ ([0-9.]+))");
  ASSERT_EQ(ys.size(), 3u);
  EXPECT_GT(std::stod(ys[0]), std::stod(ys[2]));
  EXPECT_GT(std::stod(ys[2]), std::stod(ys[1]));
}

TEST(LinePlot, ALogarithmicAxisGivesDecadesTheSameLength) {
  LinePlot plot = plot_of({{0, 0.01}, {1, 0.1}, {2, 1}, {3, 0}, {4, -1}});
  plot.log_y = true;
  const std::string text = svg(plot);
  expect_sound(text);
  const auto ys = matches(paths(text).at(0), R"([ML][0-9.]+ ([0-9.]+))");
  ASSERT_EQ(ys.size(), 3u) << "0 and less are not drawn";
  EXPECT_NEAR(std::stod(ys[0]) - std::stod(ys[1]), std::stod(ys[1]) - std::stod(ys[2]), 0.21);
}

TEST(LinePlot, ATinyFirstValueDoesNotTakeTheWholeLogarithmicAxis) {
  LinePlot plot = plot_of({{0, 1e-30}, {1, 0.5}, {2, 1}});
  plot.log_y = true;
  const std::string text = svg(plot);
  expect_sound(text);
  const auto ys = matches(paths(text).at(0), R"([ML][0-9.]+ ([0-9.]+))");
  EXPECT_GT(std::stod(ys[1]) - std::stod(ys[2]), 10);
}

TEST(LinePlot, WithoutSeriesOrPointsHasAxesOnly) {
  LinePlot plot;
  expect_sound(svg(plot));
  plot.log_y = true;
  expect_sound(svg(plot));
  const std::string text = svg(plot_of({}));
  expect_sound(text);
  EXPECT_TRUE(paths(text).empty());
  EXPECT_THAT(text, Not(HasSubstr(">first<"))) << "a label needs a line";
}

TEST(LinePlot, OnePointIsADot) {
  for (const double x : {0.0, 10.0}) {
    for (const double y : {-2.0, 0.0, 0.3}) {
      const std::string text = svg(plot_of({{x, y}}));
      expect_sound(text);
      EXPECT_EQ(occurrences(text, "<circle"), 1u);
      EXPECT_TRUE(paths(text).empty());
      EXPECT_THAT(text, HasSubstr(">first<"));
    }
  }
}

TEST(LinePlot, AConstantSeriesIsALineInsideThePlot) {
  for (const bool log : {false, true}) {
    LinePlot plot = plot_of({{0, 0.3}, {10, 0.3}});
    plot.log_y = log;
    const std::string text = svg(plot);
    expect_sound(text);
    const auto ys = matches(paths(text).at(0), R"([ML][0-9.]+ ([0-9.]+))");
    ASSERT_EQ(ys.size(), 2u);
    EXPECT_EQ(ys[0], ys[1]);
    EXPECT_GT(std::stod(ys[0]), 5);
    EXPECT_LT(std::stod(ys[0]), 265);
  }
}

TEST(LinePlot, ValuesThatAreNotFiniteLeaveAGap) {
  const std::string text = svg(plot_of({{0, 1},
                                        {1, 2},
                                        {2, kNan},
                                        {3, 2},
                                        {4, 1},
                                        {5, kInfinity},
                                        {kNan, 1},
                                        {7, 3},
                                        {8, -kInfinity}}));
  expect_sound(text);
  ASSERT_EQ(paths(text).size(), 1u);
  EXPECT_EQ(occurrences(paths(text)[0], "M"), 2u);
  EXPECT_EQ(occurrences(paths(text)[0], "L"), 2u);
  EXPECT_EQ(occurrences(text, "<circle"), 1u) << "the one without neighbours";
}

TEST(LinePlot, ValuesThatWouldOverflowAreNotDrawn) {
  expect_sound(svg(plot_of({{0, 1e308}, {1, -1e308}, {1e308, 1}, {2, 1}, {3, 2}})));
}

TEST(LinePlot, ALongRunMakesASmallDrawing) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i < 200000; ++i) points.emplace_back(i, 1 + i % 7);
  const std::string text = svg(plot_of(points));
  EXPECT_LT(text.size(), 40000u);
  const auto xs = matches(paths(text).at(0), R"([ML]([0-9.]+) )");
  EXPECT_GT(std::stod(xs.back()), std::stod(xs[xs.size() - 2]) - 0.01) << "it reaches the end";
}

TEST(LinePlot, LabelsOfLinesThatEndTogetherDoNotOverlap) {
  for (const double end : {0.0, 0.5, 1.0}) {  // at the bottom, in the middle, at the top
    LinePlot plot;
    for (int i = 0; i < 12; ++i) {
      plot.series.push_back({"series number " + std::to_string(i), i % 8, {{0, i % 2}, {1, end}}});
    }
    const std::string text = svg(plot);
    expect_sound(text);
    std::vector<double> ys;
    for (const auto& y : matches(text, R"re(y="([0-9.-]+)" text-anchor="start">series number)re")) {
      ys.push_back(std::stod(y));
    }
    ASSERT_EQ(ys.size(), 12u);
    EXPECT_TRUE(std::is_sorted(ys.begin(), ys.end()));
    for (size_t i = 1; i < ys.size(); ++i) EXPECT_GE(ys[i] - ys[i - 1], 14);
    EXPECT_GT(ys.front(), 30) << "below the axis's name";
    const double height = std::stod(matches(text, R"re(viewBox="0 0 760 ([0-9]+)")re").at(0));
    EXPECT_LT(ys.back(), height - 30) << "above the ticks";
  }
}

TEST(LinePlot, GrowsWithItsLabels) {
  LinePlot plot;
  for (int i = 0; i < 60; ++i) plot.series.push_back({std::to_string(i), 0, {{0, 1}, {1, 2}}});
  EXPECT_GT(std::stod(matches(svg(plot), R"re(viewBox="0 0 760 ([0-9]+)")re").at(0)), 60 * 14);
}

TEST(LinePlot, HostileTextsAreEscaped) {
  LinePlot plot = plot_of({{0, 1}, {1, 2}});
  const std::string hostile = "<script>alert('1')</script>\" onload=\"x & y";
  plot.title = plot.x_label = plot.y_label = plot.series[0].label = hostile;
  plot.reference = {1.5, hostile};
  const std::string text = svg(plot);
  expect_sound(text);
  EXPECT_THAT(text, Not(HasSubstr("<script")));
  EXPECT_THAT(text, Not(HasSubstr("\" onload")));
}

TEST(LinePlot, ALongLabelIsShortenedBetweenLetters) {
  LinePlot plot = plot_of({{0, 1}, {1, 2}});
  for (int i = 0; i < 100; ++i) plot.series[0].label += "κ";
  const std::string text = svg(plot);
  expect_sound(text);
  EXPECT_THAT(text, HasSubstr("κ…<"));
  EXPECT_THAT(text, Not(HasSubstr("\xef\xbf\xbd")));
}

HeatMap map_of(std::vector<std::vector<double>> values) {
  HeatMap map;
  map.title = "bits";
  map.x_label = "position";
  map.y_label = "bit";
  map.unit = "bits";
  map.values = std::move(values);
  return map;
}

// Without those of the legend.
std::vector<std::string> opacities(const std::string& svg) {
  const size_t begin = svg.find("<g class=\"heat\">");
  return matches(svg.substr(begin, svg.find("</g>", begin) - begin),
                 R"re(fill-opacity="([^"]*)")re");
}

TEST(HeatMap, ACellsOpacityIsItsShareOfTheMost) {
  HeatMap map = map_of({{0, 0.5}, {1, 2}});
  std::string text = svg(map);
  expect_sound(text);
  EXPECT_THAT(opacities(text), ElementsAre("0.25", "0.5", "1"));
  EXPECT_THAT(text, HasSubstr(">2 bits<"));
  map.most = 1;
  text = svg(map);
  EXPECT_THAT(opacities(text), ElementsAre("0.5", "1", "1")) << "never more than 1";
  EXPECT_THAT(text, HasSubstr(">1 bits<"));
}

TEST(HeatMap, ValuesThatAreNotFiniteAreEmptyCells) {
  const std::string text = svg(map_of({{kNan, 1, kInfinity}, {-1, -kInfinity, 0.5}}));
  expect_sound(text);
  EXPECT_THAT(opacities(text), ElementsAre("1", "0.5"));
}

TEST(HeatMap, WithoutValuesOrWithZerosOnlyHasNoCells) {
  for (const HeatMap& map :
       {map_of({}), map_of({{}}), map_of({{0, 0}, {0, 0}}), map_of({{kNan}}), map_of({{1}, {}})}) {
    expect_sound(svg(map));
  }
  EXPECT_TRUE(opacities(svg(map_of({{0, 0}, {0, 0}}))).empty());
}

TEST(HeatMap, ManyColumnsArePooledByTheirMean) {
  std::vector<double> row(1000, 1.0);
  for (size_t i = 0; i < row.size(); i += 2) row[i] = 3;
  const std::string text = svg(map_of({row}));
  expect_sound(text);
  const auto cells = opacities(text);
  EXPECT_GT(cells.size(), 60u);
  EXPECT_LE(cells.size(), 130u);
  for (const std::string& cell : cells) EXPECT_EQ(cell, "1");
  EXPECT_THAT(text, HasSubstr(">2 bits<"));
  EXPECT_THAT(text, HasSubstr("mean of 8 columns"));
}

TEST(HeatMap, HostileTextsAreEscaped) {
  HeatMap map = map_of({{1}});
  map.title = map.x_label = map.y_label = map.unit = "<script>&\"";
  const std::string text = svg(map);
  expect_sound(text);
  EXPECT_THAT(text, Not(HasSubstr("<script")));
}

TEST(Escaped, KeepsTextAndReplacesWhatMarkupCannotHold) {
  EXPECT_EQ(escaped("κ = 1/8 – ½\tx\n"), "κ = 1/8 – ½\tx\n");
  EXPECT_EQ(escaped("<a b='c' d=\"e\">&amp;"), "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;amp;");
  EXPECT_EQ(escaped(std::string_view("a\0b\x1b\x7f", 5)),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(escaped("a\xff<\xc3"), "a\xef\xbf\xbd&lt;\xef\xbf\xbd");
}

}  // namespace
}  // namespace freeformer
