// Run folders: saves that fail, are killed or meet another process, and checkpoints that were
// damaged.
#include "run/run_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../core/full_disk.h"
#include "core/crc32c.h"
#include "core/file.h"
#include "core/json.h"
#include "core/philox.h"
#include "expect_error.h"
#include "temporary_folder.h"

namespace freeformer {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;
using Steps = std::vector<int64_t>;

Names names_in(const fs::path& folder) {
  Names names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Writes a checkpoint of two files that say the same.
auto writer(const std::string& text) {
  return [text](const fs::path& folder) {
    write_file_atomically(folder / "weights", text);
    write_file_atomically(folder / "state", text);
  };
}

void expect_holds(const fs::path& checkpoint, const std::string& text) {
  EXPECT_NO_THROW(verify_checksums(checkpoint));
  EXPECT_EQ(read_text_file(checkpoint / "weights"), text);
  EXPECT_EQ(read_text_file(checkpoint / "state"), text);
  EXPECT_EQ(names_in(checkpoint), (Names{"checksums.json", "state", "weights"}));
}

struct RunFolderTest : testing::Test {
  TemporaryFolder temporary;
  fs::path path = temporary.path() / "run";
  fs::path checkpoints = path / "checkpoints";

  std::string link(const std::string& name) const { return fs::read_symlink(checkpoints / name); }
};

// --- Saving

TEST_F(RunFolderTest, MakesItsFolders) {
  const RunFolder folder(path / "deep" / "er");
  EXPECT_EQ(folder.path(), path / "deep" / "er");
  EXPECT_EQ(names_in(folder.path()), (Names{"checkpoints", "lock"}));
  EXPECT_EQ(folder.steps(), Steps{});
  EXPECT_EQ(folder.latest(), std::nullopt);
}

TEST_F(RunFolderTest, SavesACheckpointAsTheLatest) {
  RunFolder folder(path);
  fs::path written_to;
  folder.save(20, [&](const fs::path& to) {
    written_to = to;
    EXPECT_EQ(names_in(to), Names{});
    EXPECT_EQ(folder.steps(), Steps{}) << "visible before it is whole";
    writer("twenty")(to);
  });
  expect_holds(folder.checkpoint(20), "twenty");
  EXPECT_EQ(folder.checkpoint(20), checkpoints / "step-20");
  EXPECT_FALSE(fs::exists(written_to));
  EXPECT_EQ(names_in(checkpoints), (Names{"latest", "step-20"}));
  EXPECT_EQ(link("latest"), "step-20") << "relative: a folder may be moved";
  folder.save(100, writer("hundred"));
  folder.save(3, writer("three"));
  EXPECT_EQ(folder.steps(), (Steps{3, 20, 100}));
  EXPECT_EQ(folder.latest(), 3) << "the one saved last, whatever its number";
}

TEST_F(RunFolderTest, ReplacesACheckpointOfTheSameStep) {
  RunFolder folder(path);
  folder.save(5, [](const fs::path& to) {
    writer("old")(to);
    write_file_atomically(to / "extra", "gone afterwards");
  });
  folder.save(5, writer("new"));
  expect_holds(folder.checkpoint(5), "new");
  EXPECT_EQ(names_in(checkpoints), (Names{"latest", "step-5"}));
}

TEST_F(RunFolderTest, ReplacesInOneStroke) {
  RunFolder folder(path);
  folder.save(5, writer("text"));
  std::atomic<bool> done = false;
  std::atomic<int> missing = 0, looks = 0;
  std::thread reader([&] {
    while (!done) {
      missing += ::access((checkpoints / "step-5" / "weights").c_str(), F_OK) != 0;
      missing += ::access((checkpoints / "latest" / "weights").c_str(), F_OK) != 0;
      ++looks;
    }
  });
  for (int i = 0; i < 15 || looks < 50; ++i) folder.save(5, writer("text"));
  done = true;
  reader.join();
  EXPECT_EQ(missing, 0) << "of " << looks;
}

TEST_F(RunFolderTest, ChangesNothingWhenTheWriterFails) {
  RunFolder folder(path);
  folder.save(5, writer("old"));
  const auto fails = [](const fs::path& to) {
    writer("new")(to);
    fs::create_directory(to / "more");
    throw std::runtime_error("no memory");
  };
  EXPECT_THROW(folder.save(5, fails), std::runtime_error);
  EXPECT_THROW(folder.save(6, fails), std::runtime_error);
  expect_holds(folder.checkpoint(5), "old");
  EXPECT_EQ(names_in(checkpoints), (Names{"latest", "step-5"}));
  EXPECT_EQ(link("latest"), "step-5");
  folder.save(6, writer("new"));
  expect_holds(folder.checkpoint(6), "new");
}

TEST_F(RunFolderTest, ChangesNothingWhenAFileCannotBeChecksummed) {
  RunFolder folder(path);
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kIo, "folder: cannot read: Is a directory",
      folder.save(5, [](const fs::path& to) { fs::create_directory(to / "folder"); }));
  EXPECT_EQ(names_in(checkpoints), Names{});
}

TEST_F(RunFolderTest, KeepsTheFormerCheckpointWhenTheDiskIsFull) {
  { RunFolder(path).save(5, writer("old")); }
  for (const int64_t step : {5, 6}) {
    EXPECT_TRUE(fails_on_a_full_disk(
        1024, [&] { RunFolder(path).save(step, writer(std::string(4096, 'x'))); }));
    // The files fit, the list of their checksums does not.
    EXPECT_TRUE(fails_on_a_full_disk(64, [&] { RunFolder(path).save(step, writer("new")); }));
    expect_holds(checkpoints / "step-5", "old");
    EXPECT_EQ(names_in(checkpoints), (Names{"latest", "step-5"}));
    EXPECT_EQ(link("latest"), "step-5");
  }
}

// --- Kills

TEST_F(RunFolderTest, RemovesWhatAKilledSaveLeftBehind) {
  {
    RunFolder folder(path);
    folder.save(5, writer("whole"));
  }
  fs::create_directories(checkpoints / ".tmp-step-6" / "deep");
  std::ofstream(checkpoints / ".tmp-step-6" / "weights.tmp-1-1") << "half";
  fs::create_directory(checkpoints / ".tmp-old-2");
  fs::create_symlink("step-5", checkpoints / ".tmp-latest");
  std::ofstream(checkpoints / "notes.txt") << "not ours to remove";
  RunFolder folder(path);
  EXPECT_EQ(names_in(checkpoints), (Names{"latest", "notes.txt", "step-5"}));
  expect_holds(folder.checkpoint(5), "whole");
}

// The text of one save, which tells whose it is; its length changes from save to save.
std::string text_of_save(int64_t step, int64_t number) {
  std::string text = fmt::format("step {} save {} ", step, number);
  text.append(size_t(number * 7919 % 50'000), char('a' + number % 26));
  return text;
}

TEST_F(RunFolderTest, EveryVisibleCheckpointIsWholeWheneverTheSaverIsKilled) {
  constexpr int kKills = 30;
  const RandomSource random(7, RandomStream::kData);
  std::set<int64_t> seen;
  int interrupted = 0;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    int started[2];
    ASSERT_EQ(pipe(started), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);  // should the parent die first
      RunFolder folder(path);
      if (write(started[1], "x", 1) != 1) _exit(1);
      for (int64_t number = kill_number * 1'000'000;; ++number) {
        const int64_t step = number % 3 + 1;
        folder.save(step, writer(text_of_save(step, number)));
      }
    }
    close(started[1]);
    char byte = 0;
    ASSERT_EQ(read(started[0], &byte, 1), 1) << "the child could not start";
    close(started[0]);
    usleep(random.block(0, uint32_t(kill_number), 0)[0] % 12'000);
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself";

    bool any_unfinished = false;
    std::set<int64_t> visible;
    for (const std::string& name : names_in(checkpoints)) {
      any_unfinished |= name.starts_with(".tmp-");
      if (!name.starts_with("step-")) continue;
      const int64_t step = std::stoll(name.substr(5));
      visible.insert(step);
      const std::string text = read_text_file(checkpoints / name / "weights");
      const size_t at = text.find("save ");
      ASSERT_NE(at, text.npos) << text;
      expect_holds(checkpoints / name, text_of_save(step, std::stoll(text.substr(at + 5))));
    }
    interrupted += any_unfinished;
    EXPECT_TRUE(std::includes(visible.begin(), visible.end(), seen.begin(), seen.end()))
        << "a checkpoint is gone";
    seen = visible;
    if (fs::is_symlink(checkpoints / "latest")) {
      EXPECT_TRUE(fs::exists(checkpoints / "latest" / "weights")) << "the link points nowhere";
    }
  }
  EXPECT_GT(interrupted, 0) << "no kill fell into a save";
  const RunFolder folder(path);
  EXPECT_EQ(folder.steps(), (Steps(seen.begin(), seen.end())));
  ASSERT_TRUE(folder.latest());
  EXPECT_TRUE(seen.contains(*folder.latest()));
  for (const std::string& name : names_in(checkpoints)) {
    EXPECT_FALSE(name.starts_with(".tmp-")) << name;
  }
}

// --- Finding checkpoints

TEST_F(RunFolderTest, IgnoresForeignNames) {
  RunFolder folder(path);
  folder.save(7, writer("seven"));
  for (const char* name : {"step-", "step-8a", "step--9", "step--0", "step-010", "step-+11",
                           "step- 12", "Step-13", "step-99999999999999999999", "old-step-14"}) {
    fs::create_directory(checkpoints / name);
  }
  std::ofstream(checkpoints / "step-15") << "a file";
  fs::create_symlink("step-7", checkpoints / "step-16");
  EXPECT_EQ(folder.steps(), Steps{7});
}

TEST_F(RunFolderTest, WithoutAGoodLinkTheLatestIsTheLargestStep) {
  RunFolder folder(path);
  folder.save(5, writer("five"));
  folder.save(12, writer("twelve"));
  folder.save(7, writer("seven"));
  EXPECT_EQ(folder.latest(), 7);
  for (const char* target : {"step-8", "elsewhere", "step-x"}) {
    fs::remove(checkpoints / "latest");
    fs::create_symlink(target, checkpoints / "latest");
    EXPECT_EQ(folder.latest(), 12) << target;
  }
  fs::remove(checkpoints / "latest");
  EXPECT_EQ(folder.latest(), 12);
}

TEST_F(RunFolderTest, PointsAtTheBest) {
  RunFolder folder(path);
  folder.save(5, writer("five"));
  folder.save(6, writer("six"));
  folder.set_best(5);
  EXPECT_EQ(link("best"), "step-5");
  EXPECT_EQ(read_text_file(checkpoints / "best" / "weights"), "five");
  folder.set_best(6);
  EXPECT_EQ(link("best"), "step-6");
  EXPECT_EQ(link("latest"), "step-6");
  EXPECT_EQ(names_in(checkpoints), (Names{"best", "latest", "step-5", "step-6"}));
}

// --- Pruning

struct PruneTest : RunFolderTest {
  // What is left of steps 10, 20, … 80, of which `latest` was saved last.
  Steps left(int64_t keep_last, int64_t keep_every, std::optional<int64_t> best,
             int64_t latest = 80) {
    fs::remove_all(path);
    RunFolder folder(path);
    for (int64_t step = 10; step <= 80; step += 10) fs::create_directory(folder.checkpoint(step));
    fs::create_symlink(fmt::format("step-{}", latest), checkpoints / "latest");
    folder.prune(keep_last, keep_every, best);
    for (const std::string& name : names_in(checkpoints)) {
      EXPECT_FALSE(name.starts_with(".tmp-")) << name;
    }
    return folder.steps();
  }
};

TEST_F(PruneTest, KeepsTheNewest) {
  EXPECT_EQ(left(1, 0, std::nullopt), Steps{80});
  EXPECT_EQ(left(3, 0, std::nullopt), (Steps{60, 70, 80}));
  EXPECT_EQ(left(8, 0, std::nullopt), (Steps{10, 20, 30, 40, 50, 60, 70, 80}));
  EXPECT_EQ(left(100, 0, std::nullopt), (Steps{10, 20, 30, 40, 50, 60, 70, 80}));
}

TEST_F(PruneTest, KeepsMultiples) {
  EXPECT_EQ(left(1, 30, std::nullopt), (Steps{30, 60, 80}));
  EXPECT_EQ(left(2, 20, std::nullopt), (Steps{20, 40, 60, 70, 80}));
  EXPECT_EQ(left(1, 1000, std::nullopt), Steps{80});
}

TEST_F(PruneTest, KeepsTheBestAndTheLatest) {
  EXPECT_EQ(left(1, 0, 20), (Steps{20, 80}));
  EXPECT_EQ(left(2, 0, std::nullopt, 30), (Steps{30, 70, 80})) << "after going back to step 30";
  EXPECT_EQ(left(1, 0, 20, 30), (Steps{20, 30, 80}));
  EXPECT_EQ(left(1, 0, 25), Steps{80}) << "a best that is not there";
}

TEST_F(PruneTest, OfNothingDoesNothing) {
  RunFolder folder(path);
  EXPECT_NO_THROW(folder.prune(2, 10, 5));
  EXPECT_EQ(names_in(checkpoints), Names{});
}

// --- The lock

TEST_F(RunFolderTest, IsRefusedToASecondOneOfThisProcess) {
  {
    const RunFolder first(path);
    fs::create_directory(checkpoints / ".tmp-step-1");
    EXPECT_FREEFORMER_ERROR(ErrorCode::kIo,
                            path.string() + ": another process is training in this folder; choose",
                            RunFolder{path});
    EXPECT_EQ(names_in(checkpoints), Names{".tmp-step-1"}) << "removed the first one's save";
    EXPECT_NO_THROW(RunFolder(path / "other"));
  }
  EXPECT_NO_THROW(RunFolder{path});
}

TEST_F(RunFolderTest, IsRefusedToAnotherProcessUntilTheFirstIsGone) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // should the parent die first
    const RunFolder folder(path);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    while (true) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "another process is training in this folder",
                          RunFolder{path});
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  close(ready[0]);
  close(ready[1]);
  EXPECT_NO_THROW(RunFolder{path}) << "a killed process still holds it";
}

// --- Paths that are none

TEST_F(RunFolderTest, RefusesPathsThatCannotBeFolders) {
  std::ofstream(temporary.path() / "file") << "text";
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "file/run/checkpoints: cannot create: Not a directory",
                          RunFolder(temporary.path() / "file" / "run"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "file/checkpoints: cannot create: Not a directory",
                          RunFolder(temporary.path() / "file"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "cannot create: File name too long",
                          RunFolder(temporary.path() / std::string(300, 'x')));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "/proc/no-such-run/checkpoints: cannot create: ",
                          RunFolder("/proc/no-such-run"));
  fs::create_directories(path);
  std::ofstream(checkpoints) << "text";
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "run/checkpoints: cannot create: Not a directory",
                          RunFolder{path});
  fs::remove(checkpoints);
  fs::create_directory(path / "lock");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "run/lock: cannot create: Is a directory",
                          RunFolder{path});
}

TEST_F(RunFolderTest, FailsToSaveWhereItsFolderIsGone) {
  RunFolder folder(path);
  fs::remove_all(checkpoints);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, ".tmp-step-5: cannot create: No such file",
                          folder.save(5, writer("text")));
}

// --- Checksums

struct ChecksumsTest : RunFolderTest {
  fs::path checkpoint = checkpoints / "step-1";

  void SetUp() override { RunFolder(path).save(1, writer("some text")); }

  void write_checksums(const Json& json) const {
    std::ofstream(checkpoint / "checksums.json") << json;
  }
};

TEST_F(ChecksumsTest, NameEveryFileWithItsSizeAndChecksum) {
  const Json json = Json::parse(read_text_file(checkpoint / "checksums.json"));
  const std::string_view text = "some text";
  const Json entry = {{"bytes", 9},
                      {"crc32c", fmt::format("{:08x}", crc32c(std::as_bytes(std::span(text))))}};
  EXPECT_EQ(json, (Json{{"weights", entry}, {"state", entry}}));
}

TEST_F(ChecksumsTest, FindAFlippedBit) {
  for (const size_t at : {0, 4, 8}) {
    std::string text = "some text";
    text[at] = char(text[at] ^ 0x20);
    std::ofstream(checkpoint / "state") << text;
    EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint,
                            (checkpoint / "state").string() + ": its checksum is ",
                            verify_checksums(checkpoint));
  }
}

TEST_F(ChecksumsTest, FindAFileCutShortOrGrown) {
  fs::resize_file(checkpoint / "weights", 8);
  EXPECT_FREEFORMER_ERROR(
      ErrorCode::kBadCheckpoint,
      (checkpoint / "weights").string() + ": 8 bytes, expected 9 by checksums.json",
      verify_checksums(checkpoint));
  fs::resize_file(checkpoint / "weights", 0);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "weights: 0 bytes, expected 9",
                          verify_checksums(checkpoint));
  fs::resize_file(checkpoint / "weights", 10);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "weights: 10 bytes, expected 9",
                          verify_checksums(checkpoint));
}

TEST_F(ChecksumsTest, FindAMissingFile) {
  fs::remove(checkpoint / "state");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo,
                          (checkpoint / "state").string() + ": cannot open: No such file",
                          verify_checksums(checkpoint));
}

TEST_F(ChecksumsTest, AreNotRequired) {
  fs::remove(checkpoint / "checksums.json");
  EXPECT_NO_THROW(verify_checksums(checkpoint));
}

TEST_F(ChecksumsTest, OfAnEmptyFileHold) {
  RunFolder(path).save(1, [](const fs::path& to) { write_file_atomically(to / "empty", ""); });
  EXPECT_NO_THROW(verify_checksums(checkpoint));
}

TEST_F(ChecksumsTest, RefuseTextThatIsNoList) {
  std::ofstream(checkpoint / "checksums.json") << "{\"state\": ";
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "checksums.json is not JSON",
                          verify_checksums(checkpoint));
  std::ofstream(checkpoint / "checksums.json") << "";
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "checksums.json is not JSON",
                          verify_checksums(checkpoint));
  std::ofstream(checkpoint / "checksums.json") << "{\"a\xFF\": 1}";
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "checksums.json is not UTF-8",
                          verify_checksums(checkpoint));
  write_checksums(Json::array({"state"}));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "checksums.json: an array, expected an object",
                          verify_checksums(checkpoint));
}

TEST_F(ChecksumsTest, RefuseEntriesThatAreNone) {
  for (const Json& entry : {Json(), Json(9), Json("crc"), Json::array({9, "00000000"}),
                            Json::object(), Json{{"bytes", 9}}, Json{{"crc32c", "00000000"}}}) {
    write_checksums({{"state", entry}});
    EXPECT_FREEFORMER_ERROR(
        ErrorCode::kBadCheckpoint,
        "checksums.json: entry 'state' is not a file with its size and checksum",
        verify_checksums(checkpoint));
  }
}

TEST_F(ChecksumsTest, RefuseValuesOfTheWrongType) {
  for (const Json& bytes : {Json("9"), Json(-9), Json(9.5), Json(), Json::array({9})}) {
    write_checksums({{"state", {{"bytes", bytes}, {"crc32c", "00000000"}}}});
    EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "state: 9 bytes, expected ",
                            verify_checksums(checkpoint));
  }
  for (const Json& crc : {Json(0), Json(), Json(""), Json("two\nlines")}) {
    write_checksums({{"state", {{"bytes", 9}, {"crc32c", crc}}}});
    EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint, "state: its checksum is ",
                            verify_checksums(checkpoint));
  }
}

TEST_F(ChecksumsTest, RefuseNamesOfFilesElsewhere) {
  // Size and checksum are right, so only a refusal to read it keeps the file from passing.
  const std::string_view text = "secret";
  std::ofstream(checkpoints / "outside") << text;
  const Json entry = {{"bytes", 6},
                      {"crc32c", fmt::format("{:08x}", crc32c(std::as_bytes(std::span(text))))}};
  fs::create_directory(checkpoint / "folder");
  for (const std::string& name :
       {std::string("../outside"), (checkpoints / "outside").string(), std::string("/outside"),
        std::string("folder/../../outside"), std::string("./state")}) {
    write_checksums({{name, entry}});
    EXPECT_FREEFORMER_ERROR(ErrorCode::kBadCheckpoint,
                            "checksums.json: entry '" + name + "' is not a file",
                            verify_checksums(checkpoint));
  }
  for (const char* name : {"..", ".", "", "folder"}) {
    write_checksums({{name, entry}});
    EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "cannot read: Is a directory",
                            verify_checksums(checkpoint));
  }
}

}  // namespace
}  // namespace freeformer
