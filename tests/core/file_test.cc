#include "core/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "expect_error.h"
#include "full_disk.h"
#include "temporary_folder.h"

namespace freeformer {
namespace {

namespace fs = std::filesystem;

void write_plainly(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;

TEST(MappedFile, ShowsTheFilesBytes) {
  const TemporaryFolder folder;
  const std::string text("a\0b\xFF\n", 5);
  write_plainly(folder.path() / "a", text);
  EXPECT_EQ(text_of(MappedFile(folder.path() / "a").bytes()), text);
}

TEST(MappedFile, AnEmptyFileHasNoBytes) {
  const TemporaryFolder folder;
  write_plainly(folder.path() / "a", "");
  EXPECT_TRUE(MappedFile(folder.path() / "a").bytes().empty());
}

TEST(MappedFile, MovesItsMapping) {
  const TemporaryFolder folder;
  write_plainly(folder.path() / "a", "first");
  write_plainly(folder.path() / "b", "second");
  MappedFile a(folder.path() / "a"), b(folder.path() / "b");
  const std::byte* address = a.bytes().data();
  MappedFile moved(std::move(a));
  EXPECT_EQ(moved.bytes().data(), address);
  b = std::move(moved);
  EXPECT_EQ(text_of(b.bytes()), "first");
}

TEST(MappedFile, SurvivesItsFilesReplacement) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "a", "old and long");
  const MappedFile file(folder.path() / "a");
  write_file_atomically(folder.path() / "a", "new");
  EXPECT_EQ(text_of(file.bytes()), "old and long");
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path();
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, path + "/none: cannot open: No such file",
                          MappedFile(folder.path() / "none"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, path + ": cannot read: Is a directory",
                          MappedFile(folder.path()));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "/dev/null: not a regular file", MappedFile("/dev/null"));
}

TEST(MappedFile, RefusesAPipeInsteadOfWaitingForAWriter) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "pipe: not a regular file",
                          MappedFile(folder.path() / "pipe"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "pipe: not a regular file",
                          read_text_file(folder.path() / "pipe"));
}

TEST(ReadTextFile, ReadsTheWholeText) {
  const TemporaryFolder folder;
  const std::string text = std::string("line\n\0é", 8) + std::string(100'000, 'x');
  write_plainly(folder.path() / "a", text);
  EXPECT_EQ(read_text_file(folder.path() / "a"), text);
  write_plainly(folder.path() / "a", "");
  EXPECT_EQ(read_text_file(folder.path() / "a"), "");
}

TEST(ReadTextFile, RefusesATextOverTheLimit) {
  const TemporaryFolder folder;
  write_plainly(folder.path() / "a", "12345");
  EXPECT_EQ(read_text_file(folder.path() / "a", 5), "12345");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kCapacity, "5 bytes, expected at most 4",
                          read_text_file(folder.path() / "a", 4));
}

TEST(ReadTextFile, RefusesAHugeFileBeforeReadingIt) {
  const TemporaryFolder folder;
  write_plainly(folder.path() / "a", "");
  fs::resize_file(folder.path() / "a", uintmax_t{1} << 40);  // a hole, no blocks on the disk
  EXPECT_FREEFORMER_ERROR(ErrorCode::kCapacity, "1099511627776 bytes, expected at most 67108864",
                          read_text_file(folder.path() / "a"));
}

TEST(ReadTextFile, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "none: cannot open: No such file",
                          read_text_file(folder.path() / "none"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "Is a directory", read_text_file(folder.path()));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "not a regular file", read_text_file("/dev/zero"));
}

TEST(WriteFileAtomically, CreatesAFile) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "a", "text");
  EXPECT_EQ(read_text_file(folder.path() / "a"), "text");
  EXPECT_EQ(names_in(folder.path()), Names{"a"});
}

TEST(WriteFileAtomically, ReplacesAFile) {
  const TemporaryFolder folder;
  write_plainly(folder.path() / "a", "something longer");
  write_file_atomically(folder.path() / "a", "text");
  EXPECT_EQ(read_text_file(folder.path() / "a"), "text");
  EXPECT_EQ(names_in(folder.path()), Names{"a"});
}

TEST(WriteFileAtomically, JoinsItsPieces) {
  const TemporaryFolder folder;
  const std::string head = "head ", tail(3'000'000, 't');
  const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  write_file_atomically(folder.path() / "a", {bytes(head), {}, bytes(tail)});
  EXPECT_EQ(read_text_file(folder.path() / "a"), head + tail);
  write_file_atomically(folder.path() / "a", std::vector<std::span<const std::byte>>{});
  EXPECT_EQ(read_text_file(folder.path() / "a"), "");
}

TEST(WriteFileAtomically, WritesBesideTheWorkingFolder) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  EXPECT_NO_THROW(write_file_atomically("bare-name", "text"));
  fs::current_path(before);
  EXPECT_EQ(read_text_file(folder.path() / "bare-name"), "text");
}

TEST(WriteFileAtomically, RefusesAMissingFolder) {
  const TemporaryFolder folder;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "cannot open the folder: No such file",
                          write_file_atomically(folder.path() / "none" / "a", "text"));
  EXPECT_EQ(names_in(folder.path()), Names{});
}

TEST(WriteFileAtomically, DoesNotReplaceAFolder) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / "a");
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "a: cannot replace: Is a directory",
                          write_file_atomically(folder.path() / "a", "text"));
  EXPECT_EQ(names_in(folder.path()), Names{"a"}) << "the temporary file is left behind";
}

TEST(WriteFileAtomically, KeepsTheOldFileWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  write_plainly(folder.path() / "a", "old");
  EXPECT_TRUE(fails_on_a_full_disk(
      1024, [&] { write_file_atomically(folder.path() / "a", std::string(4096, 'x')); }));
  EXPECT_EQ(read_text_file(folder.path() / "a"), "old");
  EXPECT_EQ(names_in(folder.path()), Names{"a"}) << "the temporary file is left behind";
}

}  // namespace
}  // namespace freeformer
