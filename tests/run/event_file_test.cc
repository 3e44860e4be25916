// Event files, read back by a reader that shares no code with the writer: its own checksum, its own
// protocol buffers, and no byte that it does not understand.
#include "run/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../core/full_disk.h"
#include "core/file.h"
#include "expect_error.h"
#include "temporary_folder.h"

namespace freeformer {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Pair;
using ::testing::SizeIs;

// --- The reader. Anything it does not expect is a std::runtime_error.

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

std::string_view take(std::string_view& bytes, uint64_t count) {
  require(count <= bytes.size(), "cut short");
  const std::string_view head = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return head;
}

template <typename Unsigned>
Unsigned take_fixed(std::string_view& bytes) {
  Unsigned value = 0;
  const std::string_view taken = take(bytes, sizeof(value));
  for (size_t i = sizeof(value); i-- > 0;) value = Unsigned(value << 8 | uint8_t(taken[i]));
  return value;
}

uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto byte = uint8_t(take(bytes, 1)[0]);
    require(shift < 63 || byte <= 1, "a number of more than 64 bits");
    value |= uint64_t(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  throw std::runtime_error("an endless number");
}

uint32_t masked_checksum(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= uint8_t(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82F63B78 : crc >> 1;
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
}

struct Event {
  std::optional<double> wall_time;
  std::optional<int64_t> step;
  std::optional<std::string> file_version;
  std::optional<uint64_t> session_status;
  std::vector<std::pair<std::string, float>> values;
  bool has_summary = false;
};

// Calls read(field, wire type, rest) until the message is used up.
template <typename Read>
void walk(std::string_view message, Read read) {
  while (!message.empty()) {
    const uint64_t key = take_varint(message);
    read(key >> 3, key & 7, message);
  }
}

std::string_view take_message(uint64_t wire_type, std::string_view& bytes) {
  require(wire_type == 2, "expected a message or string");
  return take(bytes, take_varint(bytes));
}

std::pair<std::string, float> read_value(std::string_view message) {
  std::optional<std::string> tag;
  std::optional<float> value;
  walk(message, [&](uint64_t field, uint64_t type, std::string_view& rest) {
    if (field == 1 && !tag) {
      tag = take_message(type, rest);
    } else {
      require(field == 2 && type == 5 && !value, "expected one simple_value");
      value = std::bit_cast<float>(take_fixed<uint32_t>(rest));
    }
  });
  require(tag && value, "a value without tag or number");
  return {*tag, *value};
}

void read_field(Event& event, uint64_t field, uint64_t type, std::string_view& rest) {
  if (field == 1 && !event.wall_time) {
    require(type == 1, "wall_time is no double");
    event.wall_time = std::bit_cast<double>(take_fixed<uint64_t>(rest));
  } else if (field == 2 && !event.step) {
    require(type == 0, "step is no varint");
    event.step = int64_t(take_varint(rest));
  } else if (field == 3 && !event.file_version) {
    event.file_version = take_message(type, rest);
  } else if (field == 5 && !event.has_summary) {
    event.has_summary = true;
    walk(take_message(type, rest), [&](uint64_t inner, uint64_t kind, std::string_view& values) {
      require(inner == 1, "a summary of something else");
      event.values.push_back(read_value(take_message(kind, values)));
    });
  } else {
    require(field == 7 && !event.session_status, "an unknown or repeated field");
    walk(take_message(type, rest), [&](uint64_t inner, uint64_t kind, std::string_view& log) {
      require(inner == 1 && kind == 0 && !event.session_status, "a log of something else");
      event.session_status = take_varint(log);
    });
  }
}

std::vector<Event> read_events(std::string_view bytes) {
  std::vector<Event> events;
  while (!bytes.empty()) {
    const std::string_view length_bytes = take(bytes, 8);
    require(take_fixed<uint32_t>(bytes) == masked_checksum(length_bytes), "checksum of the length");
    std::string_view rest = length_bytes;
    const std::string_view data = take(bytes, take_fixed<uint64_t>(rest));
    require(take_fixed<uint32_t>(bytes) == masked_checksum(data), "checksum of the data");
    Event& event = events.emplace_back();
    walk(data, [&](uint64_t field, uint64_t type, std::string_view& message) {
      read_field(event, field, type, message);
    });
    require(event.wall_time && event.step, "an event without time or step");
    require(
        event.file_version.has_value() + event.has_summary + event.session_status.has_value() == 1,
        "an event is about one thing");
  }
  return events;
}

std::vector<Event> events_in(const EventFile& file) {
  return read_events(read_text_file(file.path()));
}

using Values = std::vector<std::pair<std::string, double>>;

// The one event that scalars() wrote.
Event written(int64_t step, double wall_time, const Values& values) {
  const TemporaryFolder folder;
  EventFile file(folder.path(), 0);
  file.scalars(step, wall_time, values);
  const std::vector<Event> events = events_in(file);
  EXPECT_THAT(events, SizeIs(2));
  return events.back();
}

size_t file_count(const fs::path& folder) {
  return size_t(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// --- What stands in the files

TEST(EventFile, BeginsWithItsVersion) {
  const TemporaryFolder folder;
  const double before = seconds_since_1970();
  const EventFile file(folder.path(), 0);
  const std::vector<Event> events = events_in(file);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[0].step, 0);
  EXPECT_GE(events[0].wall_time, before);
  EXPECT_LE(events[0].wall_time, seconds_since_1970());
}

TEST(EventFile, AResumedRunForgetsWhatCameAfterItsStart) {
  const TemporaryFolder folder;
  const EventFile file(folder.path(), 500);
  const std::vector<Event> events = events_in(file);
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[0].step, 0);
  EXPECT_EQ(events[1].session_status, 1u);
  EXPECT_EQ(events[1].step, 500);
  EXPECT_GE(events[1].wall_time, events[0].wall_time);
}

// Encoded by hand, so that writer and reader cannot err in the same way.
TEST(EventFile, WritesTheseBytes) {
  const TemporaryFolder folder;
  EventFile file(folder.path(), 0);
  const size_t begin = fs::file_size(file.path());
  file.scalars(300, 1.5, {{"loss", 2.0}});
  const std::string record = read_text_file(file.path()).substr(begin);
  const std::string_view event(
      "\x09\x00\x00\x00\x00\x00\x00\xF8\x3F"  // wall_time 1.5
      "\x10\xAC\x02"                          // step 300
      "\x2A\x0D"                              // summary of 13 bytes
      "\x0A\x0B"                              // value of 11 bytes
      "\x0A\x04loss"
      "\x15\x00\x00\x00\x40",  // simple_value 2
      27);
  ASSERT_EQ(record.size(), 8 + 4 + event.size() + 4);
  EXPECT_EQ(record.substr(0, 8), std::string_view("\x1B\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, event.size()), event);
}

TEST(EventFile, HoldsTheValuesOfEveryStep) {
  const TemporaryFolder folder;
  EventFile file(folder.path(), 0);
  file.scalars(1, 10.25, {{"loss", 2.5}, {"kl/bits", 0.1}});
  file.scalars(2, 11.5, {{"loss", -1}});
  const std::vector<Event> events = events_in(file);
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[1].wall_time, 10.25);
  EXPECT_THAT(events[1].values, ElementsAre(Pair("loss", 2.5f), Pair("kl/bits", 0.1f)));
  EXPECT_EQ(events[2].step, 2);
  EXPECT_EQ(events[2].wall_time, 11.5);
  EXPECT_THAT(events[2].values, ElementsAre(Pair("loss", -1.f)));
}

TEST(EventFile, KeepsAnyStep) {
  using Limits = std::numeric_limits<int64_t>;
  for (const int64_t step : {int64_t{0}, int64_t{127}, int64_t{128}, int64_t{1} << 32,
                             (int64_t{1} << 40) + 7, int64_t{-1}, Limits::min(), Limits::max()}) {
    EXPECT_EQ(written(step, 0, {{"x", 1}}).step, step);
  }
}

TEST(EventFile, KeepsValuesThatAreNoNumbers) {
  const double inf = std::numeric_limits<double>::infinity();
  const Event event =
      written(1, -1.5, {{"inf", inf}, {"-inf", -inf}, {"nan", std::nan("")}, {"-0", -0.0}});
  ASSERT_THAT(event.values, SizeIs(4));
  EXPECT_EQ(event.values[0].second, inf);
  EXPECT_EQ(event.values[1].second, -inf);
  EXPECT_TRUE(std::isnan(event.values[2].second));
  EXPECT_EQ(event.values[3].second, 0);
  EXPECT_TRUE(std::signbit(event.values[3].second));
  EXPECT_EQ(event.wall_time, -1.5);
}

TEST(EventFile, WritesZeroInFull) {
  // A value that is not there is not zero: TensorBoard would not plot it.
  EXPECT_THAT(written(0, 0, {{"x", 0}}).values, ElementsAre(Pair("x", 0.f)));
}

TEST(EventFile, KeepsTagsOfAnyLength) {
  for (const size_t length : {0, 1, 121, 122, 127, 128, 20'000}) {
    const std::string tag(length, 't');
    EXPECT_THAT(written(1, 1, {{tag, 2}, {"é", 3}}).values,
                ElementsAre(Pair(tag, 2.f), Pair("é", 3.f)));
  }
}

TEST(EventFile, AStepWithoutValuesIsAnEmptySummary) {
  EXPECT_THAT(written(3, 1, {}).values, IsEmpty());
}

TEST(EventFile, IsCompleteAfterEveryCall) {
  const TemporaryFolder folder;
  EventFile file(folder.path(), 0);
  for (int64_t step = 1; step <= 20; ++step) {
    file.scalars(step, double(step), {{"x", double(step)}});
    EXPECT_THAT(events_in(file), SizeIs(size_t(step) + 1));
  }
}

TEST(EventFile, ADamagedByteIsSeen) {
  const TemporaryFolder folder;
  EventFile file(folder.path(), 3);
  file.scalars(1, 10, {{"loss", 2.5}});
  std::string bytes = read_text_file(file.path());
  EXPECT_NO_THROW(read_events(bytes));
  for (char& byte : bytes) {
    byte = char(byte ^ 0x10);
    EXPECT_THROW(read_events(bytes), std::runtime_error) << "byte " << &byte - bytes.data();
    byte = char(byte ^ 0x10);
  }
  EXPECT_THROW(read_events(bytes + '\0'), std::runtime_error);
  bytes.pop_back();
  EXPECT_THROW(read_events(bytes), std::runtime_error);
}

// --- The files

TEST(EventFile, HasANameThatTensorBoardLooksFor) {
  const TemporaryFolder folder;
  const EventFile file(folder.path(), 0);
  EXPECT_EQ(file.path().parent_path(), folder.path());
  EXPECT_THAT(file.path().filename().string(),
              MatchesRegex("events\\.out\\.tfevents\\.[0-9]{10,}\\..+\\." +
                           std::to_string(getpid()) + "\\.[0-9]+"));
}

TEST(EventFile, TwoOfOneSecondAreTwoFiles) {
  const TemporaryFolder folder;
  EventFile first(folder.path(), 0), second(folder.path(), 0);
  first.scalars(1, 1, {{"x", 1}});
  EXPECT_EQ(file_count(folder.path()), 2u);
  EXPECT_THAT(events_in(first), SizeIs(2));
  EXPECT_THAT(events_in(second), SizeIs(1));
}

TEST(EventFile, NeverWritesIntoAnothersFile) {
  const TemporaryFolder folder;
  const std::string name = EventFile(folder.path(), 0).path().filename();
  const size_t seconds_at = std::string_view("events.out.tfevents.").size();
  const size_t host_at = name.find('.', seconds_at), number_at = name.rfind('.') + 1;
  const int64_t seconds = std::stoll(name.substr(seconds_at));
  const int number = std::stoi(name.substr(number_at));
  // The next two numbers are taken, whichever second of the next minute it is then.
  std::vector<fs::path> taken;
  for (int i = 0; i < 2 * 60; ++i) {
    taken.push_back(folder.path() / (name.substr(0, seconds_at) + std::to_string(seconds + i / 2) +
                                     name.substr(host_at, number_at - host_at) +
                                     std::to_string(number + 1 + i % 2)));
    std::ofstream(taken.back()) << "taken";
  }
  const EventFile file(folder.path(), 0);
  EXPECT_THAT(file.path().string(), ::testing::EndsWith("." + std::to_string(number + 3)));
  EXPECT_THAT(events_in(file), SizeIs(1));
  for (const fs::path& path : taken) EXPECT_EQ(read_text_file(path), "taken");
}

TEST(EventFile, RefusesAMissingFolder) {
  const TemporaryFolder folder;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kIo, "cannot create: No such file",
                          EventFile(folder.path() / "none", 0));
}

TEST(EventFile, NamesTheFileThatCannotGrow) {
  const TemporaryFolder folder;
  EXPECT_TRUE(fails_on_a_full_disk(512, [&] {
    EventFile file(folder.path(), 0);
    try {
      file.scalars(1, 1, {{std::string(1000, 't'), 1}});
    } catch (const Error& error) {
      const std::string message = error.what();
      if (message != file.path().string() + ": cannot write: File too large") return;
      throw;
    }
  }));
}

TEST(EventFile, AFailedWriteLeavesNoHalfRecord) {
  const TemporaryFolder folder;
  EXPECT_TRUE(fails_on_a_full_disk(512, [&] {
    EventFile file(folder.path(), 0);
    for (int64_t step = 1;; ++step) file.scalars(step, 1, {{"loss", double(step)}});
  }));
  const fs::path path = fs::directory_iterator(folder.path())->path();
  const std::vector<Event> events = read_events(read_text_file(path));
  ASSERT_GT(events.size(), 5u);
  EXPECT_EQ(events.back().step, int64_t(events.size()) - 1);
}

TEST(EventFile, GoesOnAfterAFailedWrite) {
  const TemporaryFolder folder;
  EXPECT_TRUE(fails_on_a_full_disk(512, [&] {
    EventFile file(folder.path(), 0);
    file.scalars(1, 1, {{"x", 1}});
    try {
      file.scalars(2, 1, {{std::string(1000, 't'), 2}});
    } catch (const Error&) {
      file.scalars(3, 1, {{"x", 3}});  // short enough
      throw;
    }
  }));
  const fs::path path = fs::directory_iterator(folder.path())->path();
  const std::vector<Event> events = read_events(read_text_file(path));
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[2].step, 3);
}

TEST(EventFile, LeavesNoFileThatItCouldNotBegin) {
  const TemporaryFolder folder;
  EXPECT_TRUE(fails_on_a_full_disk(10, [&] { EventFile(folder.path(), 0); }));
  EXPECT_TRUE(fails_on_a_full_disk(50, [&] { EventFile(folder.path(), 7); }));
  EXPECT_EQ(file_count(folder.path()), 0u);
}

}  // namespace
}  // namespace freeformer
