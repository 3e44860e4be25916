#include "run/metrics_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "../core/full_disk.h"
#include "core/file.h"
#include "expect_error.h"
#include "temporary_folder.h"

namespace freeformer {
namespace {

namespace fs = std::filesystem;

struct Metrics {
  TemporaryFolder folder;
  fs::path path = folder.path() / "metrics.jsonl";

  void write(std::string_view text) const { std::ofstream(path, std::ios::binary) << text; }
  std::string text() const { return read_text_file(path); }
  // What is left after opening it to go on from `step`.
  std::string after_resume(int64_t step) const {
    { MetricsFile file(path, step); }
    return text();
  }
};

TEST(MetricsFile, StartsEmpty) {
  const Metrics metrics;
  EXPECT_EQ(metrics.after_resume(0), "");
  EXPECT_EQ(metrics.after_resume(100), "");
}

TEST(MetricsFile, AppendsOneLineAnObjectInItsKeysOrder) {
  const Metrics metrics;
  MetricsFile file(metrics.path, 0);
  file.append({{"step", 1}, {"loss", 0.5}, {"ce", 0.25}});
  EXPECT_EQ(metrics.text(), "{\"step\":1,\"loss\":0.5,\"ce\":0.25}\n") << "not before it is closed";
  file.append({{"step", 2}, {"note", "two\nlines"}});
  file.sync();
  EXPECT_EQ(metrics.text(),
            "{\"step\":1,\"loss\":0.5,\"ce\":0.25}\n{\"step\":2,\"note\":\"two\\nlines\"}\n");
}

TEST(MetricsFile, AppendsTextThatIsNotUtf8) {
  const Metrics metrics;
  MetricsFile(metrics.path, 0).append({{"step", 1}, {"path", "a\xFF"}});
  EXPECT_EQ(metrics.text(), "{\"step\":1,\"path\":\"a\xEF\xBF\xBD\"}\n");
  EXPECT_NO_THROW(MetricsFile(metrics.path, 1)) << "what it wrote it cannot read";
}

constexpr std::string_view kLines =
    "{\"step\":10}\n"
    "{\"step\":20,\"loss\":3}\n"
    "{\"step\":20,\"evaluation\":{\"step\":99}}\n"
    "{\"step\":30}\n";

TEST(MetricsFile, GoesOnAfterTheLinesOfTheStepAndCutsLaterOnes) {
  const Metrics metrics;
  const auto kept = [&](int64_t step) {
    metrics.write(kLines);
    return metrics.after_resume(step);
  };
  const std::string all(kLines);
  EXPECT_EQ(kept(31), all);
  EXPECT_EQ(kept(30), all);
  EXPECT_EQ(kept(29), all.substr(0, all.find("{\"step\":30")));
  EXPECT_EQ(kept(20), all.substr(0, all.find("{\"step\":30"))) << "both lines of step 20";
  EXPECT_EQ(kept(19), "{\"step\":10}\n");
  EXPECT_EQ(kept(10), "{\"step\":10}\n");
  EXPECT_EQ(kept(9), "");
}

TEST(MetricsFile, AppendsAfterTheCut) {
  const Metrics metrics;
  metrics.write(kLines);
  MetricsFile(metrics.path, 10).append({{"step", 15}});
  EXPECT_EQ(metrics.text(), "{\"step\":10}\n{\"step\":15}\n");
}

TEST(MetricsFile, CutsHalfALine) {
  const Metrics metrics;
  const std::string last = "{\"step\":2,\"loss\":0.25}";
  // Even the whole object without its line's end: what follows would stand on the same line.
  for (size_t length = 1; length <= last.size(); ++length) {
    metrics.write("{\"step\":1}\n" + last.substr(0, length));
    EXPECT_EQ(metrics.after_resume(5), "{\"step\":1}\n") << length;
  }
  metrics.write(std::string("{\"step\":1}\n") + std::string(100, '\0'));  // after a power cut
  EXPECT_EQ(metrics.after_resume(5), "{\"step\":1}\n");
}

TEST(MetricsFile, RefusesALineThatIsNoObjectWithAStep) {
  const Metrics metrics;
  for (const char* line :
       {"step,loss", "", "[1]", "7", "null", "{\"loss\":1}", "{\"step\":\"1\"}", "{\"step\":1.5}",
        "{\"step\":null}", "{\"step\":1} {\"step\":2}", "{\"step\":1,", "{\"step\":1}\xFF"}) {
    const std::string text = "{\"step\":1}\n" + std::string(line) + "\n{\"step\":3}\n";
    metrics.write(text);
    EXPECT_FREEFORMER_ERROR(
        ErrorCode::kBadCheckpoint,
        metrics.path.string() + ": byte 11: expected a JSON object with a \"step\"",
        MetricsFile(metrics.path, 5));
    EXPECT_EQ(metrics.text(), text) << "changed a file that it refused";
  }
}

TEST(MetricsFile, DoesNotLookBehindTheCut) {
  const Metrics metrics;
  metrics.write("{\"step\":1}\n{\"step\":6}\nnonsense\n");
  EXPECT_EQ(metrics.after_resume(5), "{\"step\":1}\n");
}

TEST(MetricsFile, RefusesWhatIsNoFile) {
  const Metrics metrics;
  const fs::path folder = metrics.folder.path();
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, folder.string() + ": cannot read: Is a directory",
                          MetricsFile(folder, 0));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "none/a: cannot open for writing: No such file",
                          MetricsFile(folder / "none" / "a", 0));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "pipe: not a regular file",
                          MetricsFile(folder / "pipe", 0));
}

TEST(MetricsFile, LeavesNoHalfLineOnAFullDisk) {
  const Metrics metrics;
  metrics.write("{\"step\":1}\n");
  const OrderedJson longer = {{"step", 2}, {"text", std::string(100, 'x')}};
  EXPECT_TRUE(fails_on_a_full_disk(50, [&] { MetricsFile(metrics.path, 1).append(longer); }));
  EXPECT_EQ(metrics.text(), "{\"step\":1}\n");
  EXPECT_TRUE(fails_on_a_full_disk(50, [&] {
    MetricsFile file(metrics.path, 1);
    try {
      file.append(longer);
    } catch (const Error&) {  // the next line fits
      file.append({{"step", 3}});
      throw;
    }
  }));
  EXPECT_EQ(metrics.text(), "{\"step\":1}\n{\"step\":3}\n");
}

}  // namespace
}  // namespace freeformer
