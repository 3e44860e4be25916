#include "lab/report.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/synthetic.h"
#include "lab/xml_check.h"

namespace freeformer {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two points with a latent and both plain decoders, two seeds each; results as they would be.
struct Study {
  ReportPage page{"Letters", "What Z decides.", "freeformer sweep", {{"processor", "two cores"}}};
  SweepPlan plan;
  std::vector<SweepResult> results;
};

std::string with_run(size_t place) {
  return std::string(kLettersLength, '_').replace(place, kLettersRun, kLettersRun, 'K');
}

LettersStudy letters_study(bool has_latent, int64_t seed) {
  LettersStudy study;
  study.has_latent = has_latent;
  study.own_z = {0.0861, 16.4, 0.0625, 0.0627, 0.987, 4, 20};
  if (has_latent) {
    study.same_z = {seed == 1 ? 0.95 : 0.97, 0.8, 0.11, 0.0629, 0.98, 1, 20};
    study.place_information_bits = 3.25;
    study.noise_information_bits = -0.001;
  }
  for (size_t g = 0; g < (has_latent ? 3u : 1u); ++g) {
    study.figure.push_back({'K', {with_run(g), with_run(g + 1)}});
  }
  return study;
}

RunStudy run_study(bool has_latent, int64_t seed) {
  RunStudy study;
  study.step = 20;
  study.has_latent = has_latent;
  if (has_latent) {
    study.posterior_ce = seed == 1 ? 0.2 : 0.3;
    study.prior_ce = 0.4;
    study.elbo = 0.32;
    study.iwae = 0.31;
    study.kl_bits = 0.125;
    study.bits_alive = 3;
    study.kl_map.assign(5, {0.5, 0.25});
  } else {
    study.ce = study.elbo = study.iwae = 0.2999;
  }
  study.optimum = 0.2924;
  study.letters = letters_study(has_latent, seed);
  return study;
}

std::vector<Json> metrics(bool has_latent) {
  std::vector<Json> lines;
  for (const int step : {10, 20}) {
    Json line = {{"step", step}};
    line[has_latent ? "posterior_ce" : "ce"] = 3.0 / step;
    if (has_latent) line["kl_bits"] = 0.01 * step;
    line["evaluation"][has_latent ? "elbo" : "ce"]["nats_per_token"] = 4.0 / step;
    lines.push_back(line);
  }
  return lines;
}

Study whole_study() {
  using Kind = SweepPoint::Kind;
  Study study;
  for (const char* value : {"1/8", "1"}) {
    study.plan.points.push_back(
        {Kind::kGrid, {{"latent.kappa_bits", value}}, std::string("latent.kappa_bits=") + value});
  }
  study.plan.points.push_back({Kind::kPlain, {}, "plain"});
  study.plan.points.push_back({Kind::kDeeper, {}, "plain, one more layer"});
  for (const int64_t seed : {1, 2}) {
    for (size_t p = 0; p < study.plan.points.size(); ++p) {
      SweepRun run;
      run.point = p;
      run.seed = seed;
      run.config.resolved = "[run]\nseed = " + std::to_string(seed) + "\n";
      study.plan.runs.push_back(run);
    }
  }
  study.results.reserve(study.plan.runs.size());
  for (const SweepRun& run : study.plan.runs) {
    const bool has_latent = run.point < 2;
    study.results.push_back({nullptr, metrics(has_latent), run_study(has_latent, run.seed)});
  }
  return study;
}

// Results point into the plan, which has its place only now.
std::string html_of(Study& study) {
  for (size_t i = 0; i < study.results.size(); ++i) study.results[i].run = &study.plan.runs[i];
  return report_html(study.page, study.plan, study.results);
}

void expect_sound(const std::string& html) {
  EXPECT_EQ(xml_fault(html), "");
  EXPECT_EQ(occurrences(html, "http"), occurrences(html, "xmlns=\"http://www.w3.org/2000/svg\""));
  for (const char* part : {"<script", "src=", "url(", "@import", "@font-face", ">nan", ">inf<"}) {
    EXPECT_EQ(occurrences(html, part), 0u) << part;
  }
}

// The part between the heading and the section's end; empty if there is none.
std::string section_of(const std::string& html, const std::string& heading) {
  const size_t begin = html.find("<h2>" + heading + "</h2>");
  if (begin == html.npos) return "";
  return html.substr(begin, html.find("</section>", begin) - begin);
}

std::string row_of(const std::string& section, const std::string& label) {
  const size_t begin = section.find("</span>" + label + "</th>");
  return begin == section.npos ? "" : section.substr(begin, section.find("</tr>", begin) - begin);
}

TEST(Report, IsOneSoundPageWithItsSectionsInOrder) {
  Study study = whole_study();
  const std::string html = html_of(study);
  expect_sound(html);
  size_t last = 0;
  for (const char* heading :
       {"<h1>Letters", "What Z decides.", "How well the models predict", "<h2>What Z decides",
        "How training went", "What the models write", "Where the bits are used", "Settings",
        "Machine", "To get it again"}) {
    const size_t at = html.find(heading, last);
    ASSERT_NE(at, html.npos) << heading;
    last = at;
  }
  for (const char* part : {"prefers-color-scheme: dark", "@media print", "width=device-width",
                           "<meta charset=\"utf-8\"/>"}) {
    EXPECT_EQ(occurrences(html, part), 1u) << part;
  }
  EXPECT_EQ(occurrences(html, "runs are done"), 0u);
}

TEST(Report, TheSameResultsGiveTheSamePage) {
  Study one = whole_study(), other = whole_study();
  EXPECT_EQ(html_of(one), html_of(other));
}

TEST(Report, ShowsMeansAndDeviationsOverSeeds) {
  Study study = whole_study();
  const std::string table = section_of(html_of(study), "How well the models predict");
  const std::string row = row_of(table, "κ\u00a0=\u00a01/8");
  EXPECT_THAT(row, HasSubstr("<td>0.2500<span class=\"sd\"> ± 0.0707</span></td>"))
      << "0.2 and 0.3";
  EXPECT_THAT(row, HasSubstr("<td>0.125<span class=\"sd\"> ± 0.000</span></td>"));
  EXPECT_THAT(row, HasSubstr("<td>0.2924</td>")) << "an optimum that is known does not deviate";
}

TEST(Report, OneRunHasNoDeviation) {
  Study study = whole_study();
  study.results.resize(4);
  study.plan.runs.resize(4);
  const std::string html = html_of(study);
  EXPECT_THAT(section_of(html, "How well the models predict"), HasSubstr("<td>0.2000</td>"));
  EXPECT_EQ(occurrences(html, "class=\"sd\""), 0u);
}

TEST(Report, APlainDecoderHasACrossEntropyAndNothingOfALatent) {
  Study study = whole_study();
  const std::string html = html_of(study);
  const std::string row = row_of(section_of(html, "How well the models predict"), "plain");
  EXPECT_EQ(occurrences(row, "0.2999"), 3u) << "its bounds are exact";
  EXPECT_EQ(occurrences(row, "<td>–</td>"), 3u) << "no prior CE, no KL, no bits";
  const std::string agreement = row_of(section_of(html, "What Z decides"), "plain");
  EXPECT_EQ(occurrences(agreement, "<td>–</td>"), 6u) << "nothing under one Z, no information";
  EXPECT_EQ(occurrences(section_of(html, "Where the bits are used"), "<svg xmlns"), 2u);
  EXPECT_EQ(occurrences(section_of(html, "What the models write"), "no Z: a plain decoder</h4>"),
            2u);
}

TEST(Report, OfPlainDecodersOnlyHasNeitherBitsNorKl) {
  Study study = whole_study();
  for (SweepResult& result : study.results) {
    result.study = run_study(false, 1);
    result.study.letters.reset();
    result.study.optimum.reset();
    result.metrics = metrics(false);
  }
  const std::string html = html_of(study);
  expect_sound(html);
  EXPECT_EQ(section_of(html, "What Z decides"), "");
  EXPECT_EQ(section_of(html, "What the models write"), "");
  EXPECT_EQ(section_of(html, "Where the bits are used"), "");
  EXPECT_EQ(occurrences(html, "KL over training steps"), 0u);
  EXPECT_EQ(occurrences(html, "best without Z"), 0u);
  EXPECT_EQ(occurrences(html, "dashed line"), 0u);
}

TEST(Report, CurvesHaveAFullLineForTheFirstSeedAndFaintOnesForOthers) {
  Study study = whole_study();
  const std::string curves = section_of(html_of(study), "How training went");
  EXPECT_EQ(occurrences(curves, "<svg xmlns"), 3u);
  EXPECT_EQ(occurrences(curves, "<g class=\"series-0\">"), 3u) << "loss, bound, KL";
  EXPECT_EQ(occurrences(curves, "<g class=\"series-0 faint\">"), 3u);
  EXPECT_EQ(occurrences(curves, "<g class=\"series-6\">"), 2u) << "a plain decoder has no KL";
  EXPECT_EQ(occurrences(curves, "<line class=\"reference\""), 2u);
}

TEST(Report, HasNoReferenceLineWhereOptimaDiffer) {
  Study study = whole_study();
  study.results[1].study.optimum = 0.5;
  EXPECT_THAT(section_of(html_of(study), "How training went"), Not(HasSubstr("dashed line")));
}

TEST(Report, MetricsWithoutNumbersAreSkipped) {
  Study study = whole_study();
  study.results[0].metrics = {Json{{"step", 10}, {"posterior_ce", nullptr}},
                              Json{{"posterior_ce", 1.0}}, Json::array({1, 2}), Json("text"),
                              Json{{"step", 20}, {"posterior_ce", "1"}, {"evaluation", 3}}};
  study.results[1].metrics.clear();
  study.results[1].study.posterior_ce = std::numeric_limits<double>::quiet_NaN();
  study.results[1].study.kl_map[0][0] = std::numeric_limits<double>::infinity();
  expect_sound(html_of(study));
}

TEST(Report, TheFigureColoursLetterNoiseAndWhatIsWrong) {
  Study study = whole_study();
  std::string text = with_run(2);
  text[4] = '!';
  text[20] = 'Q';
  text[21] = '<';
  study.results[0].study.letters->figure[1].texts = {text};
  const std::string html = html_of(study);
  expect_sound(html);
  const std::string figure = section_of(html, "What the models write");
  EXPECT_THAT(figure,
              HasSubstr("__<span class=\"l\">KK</span><span class=\"n\">!</span>"
                        "<span class=\"l\">KKKKK</span>__________<span class=\"w\">Q&lt;</span>"
                        "__"));
  EXPECT_EQ(occurrences(figure, ">a Z each</h4>"), 2u);
  EXPECT_EQ(occurrences(figure, ">one Z for all</h4>"), 2u);
  EXPECT_EQ(occurrences(figure, ">another Z for all</h4>"), 2u);
}

TEST(Report, TheMapHasARowForEveryBitAndAColumnForEveryPosition) {
  Study study = whole_study();
  EXPECT_THAT(section_of(html_of(study), "Where the bits are used"),
              HasSubstr("2 rows (bit of Z) of 5 columns (position in the text)"));
}

TEST(Report, HostileTextsAreEscaped) {
  const std::string hostile = "<script>alert(1)</script>\" onclick=\"x' & \xff http";
  Study study = whole_study();
  study.page = {hostile, hostile, hostile, {{hostile, hostile}}};
  study.plan.points[0].values = {{"data.paths", hostile}};
  study.plan.points[0].label = "data.paths=" + hostile;
  study.plan.points[2].label = hostile;
  for (SweepRun& run : study.plan.runs) run.config.resolved = hostile;
  const std::string html = html_of(study);
  EXPECT_EQ(xml_fault(html), "");
  EXPECT_EQ(occurrences(html, "<script"), 0u);
  EXPECT_EQ(occurrences(html, "\" onclick"), 0u);
  EXPECT_EQ(occurrences(html, "\xff"), 0u);
  EXPECT_THAT(section_of(html, "Settings"), HasSubstr("paths\u00a0=\u00a0&lt;script&gt;"));
}

TEST(Report, OfASweepThatGoesOnSaysHowFarItIs) {
  Study study = whole_study();
  study.results.resize(3);  // not one run of the deeper decoder
  std::string html = html_of(study);
  expect_sound(html);
  EXPECT_EQ(occurrences(html, "3 of 8 runs are done so far."), 1u);
  EXPECT_EQ(
      occurrences(row_of(section_of(html, "How well the models predict"), "plain, one more layer"),
                  "<td>–</td>"),
      7u);
  study.results.clear();
  html = html_of(study);
  expect_sound(html);
  EXPECT_EQ(occurrences(html, "0 of 8 runs are done so far."), 1u);
  EXPECT_EQ(section_of(html, "How well the models predict"), "");
  EXPECT_NE(section_of(html, "Settings"), "");
}

TEST(Report, WithoutMachineOrCommandsHasNoSuchSections) {
  Study study = whole_study();
  study.page = {"Title", "", "", {}};
  const std::string html = html_of(study);
  expect_sound(html);
  EXPECT_EQ(section_of(html, "Machine"), "");
  EXPECT_EQ(section_of(html, "To get it again"), "");
}

}  // namespace
}  // namespace freeformer
