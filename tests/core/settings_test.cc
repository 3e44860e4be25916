// Settings: what a file and --set say arrives, what they get wrong is named, and what is written
// reads back.
#include "core/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "core/philox.h"
#include "expect_error.h"

namespace freeformer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Strings = std::vector<std::string>;

// A small run: a key outside of all sections, two sections, one inside another.
struct SmallRun {
  int64_t seed = 1;
  std::string kind = "text";
  Strings paths;
  int64_t context = 256;
  bool shuffle = true;
  int64_t bits = 8;
  double kappa_bits = 0.5;
  int64_t free_steps = 0;

  Fields fields;

  SmallRun() {
    fields.section("data", [&](Fields& list) {
      list.choice("kind", kind, {"text", "tokens"}, "what the files hold");
      list.add("paths", &paths, "files to learn from");
      list.add("context", &context, "tokens of a row");
    });
    fields.section("latent", [&](Fields& list) {
      list.add("bits", &bits, "bits of a code");
      list.section("warmup", [&](Fields& inner) {
        inner.add("free_steps", &free_steps, "steps without a penalty");
      });
      list.add("kappa_bits", &kappa_bits, "bits that are free");
    });
    fields.section("data", [&](Fields& list) { list.add("shuffle", &shuffle, "in random order"); });
    fields.add("seed", &seed, "of all random numbers");
  }
  SmallRun(const SmallRun&) = delete;
  SmallRun& operator=(const SmallRun&) = delete;

  void read(const std::string& text) { fields.read(text, "run.toml"); }
  std::string set_by(const std::string& key) const {
    for (const Fields::Field& field : fields.all()) {
      if (field.key == key) return field.set_by;
    }
    return "no such key";
  }
};

// One field of one type, called "value".
template <typename T>
struct One {
  T value{};
  Fields fields;

  One() { fields.add("value", &value, "help"); }
  One(const One&) = delete;
  One& operator=(const One&) = delete;
};

template <typename T>
T value_of(const std::string& toml) {
  One<T> one;
  one.fields.read("value = " + toml, "run.toml");
  return one.value;
}

template <typename T>
T value_set_to(const std::string& text) {
  One<T> one;
  one.fields.set("value=" + text);
  return one.value;
}

template <typename T>
T written_and_read(const T& value) {
  One<T> from, to;
  from.value = value;
  to.fields.read(from.fields.write(), "run.toml");
  return to.value;
}

#define EXPECT_CONFIG_ERROR(words, statement) \
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidConfig, words, statement)
#define EXPECT_ARGUMENT_ERROR(words, statement) \
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInvalidArgument, words, statement)

// The whole message.
template <typename Function>
std::string message_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

// --- Reading a file

TEST(Settings, ReadsEveryTypeInEverySection) {
  SmallRun run;
  run.read(
      "seed = 7\n"
      "[data]\nkind = 'tokens'\npaths = ['a', \"b\"]\ncontext = 1_024\nshuffle = false\n"
      "[latent]\nbits = 0x10\nkappa_bits = 0.25\nwarmup.free_steps = 3\n");
  EXPECT_EQ(run.seed, 7);
  EXPECT_EQ(run.kind, "tokens");
  EXPECT_THAT(run.paths, ElementsAre("a", "b"));
  EXPECT_EQ(run.context, 1024);
  EXPECT_FALSE(run.shuffle);
  EXPECT_EQ(run.bits, 16);
  EXPECT_EQ(run.kappa_bits, 0.25);
  EXPECT_EQ(run.free_steps, 3);
}

TEST(Settings, LeavesWhatAFileDoesNotName) {
  SmallRun run;
  run.read("[data]\ncontext = 5\n");
  EXPECT_EQ(run.context, 5);
  EXPECT_EQ(run.seed, 1);
  EXPECT_EQ(run.kind, "text");
  EXPECT_TRUE(run.shuffle);
}

TEST(Settings, ReadsAnEmptyFile) {
  SmallRun run;
  run.read("");
  run.read("# nothing\n\n[data]\n");
  EXPECT_EQ(run.context, 256);
}

TEST(Settings, ReplacesAList) {
  One<Strings> one;
  one.value = {"default"};
  one.fields.read("value = ['a']", "run.toml");
  EXPECT_THAT(one.value, ElementsAre("a"));
  one.fields.read("value = []", "run.toml");
  EXPECT_THAT(one.value, IsEmpty());
}

TEST(Settings, ReadsWholeNumbersToTheLastOf64Bits) {
  EXPECT_EQ(value_of<int64_t>("9223372036854775807"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(value_of<int64_t>("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_CONFIG_ERROR("run.toml:1: ", value_of<int64_t>("9223372036854775808"));
  EXPECT_EQ(value_set_to<int64_t>("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_ARGUMENT_ERROR("value is \"9223372036854775808\", expected a whole number of at most 64",
                        value_set_to<int64_t>("9223372036854775808"));
}

TEST(Settings, ReadsNumbersAndFractions) {
  EXPECT_EQ(value_of<double>("0.125"), 0.125);
  EXPECT_EQ(value_of<double>("3"), 3);
  EXPECT_EQ(value_of<double>("-1e-3"), -1e-3);
  EXPECT_EQ(value_of<double>("\"1/8\""), 0.125);
  EXPECT_EQ(value_of<double>("'-1.5/3'"), -0.5);
}

TEST(Settings, RefusesNumbersThatAreNone) {
  for (const char* text :
       {"inf",     "-inf",           "nan",     "'inf'", "'nan'", "'1/0'",     "'0/0'", "'1/inf'",
        "'inf/1'", "'1e300/1e-300'", "'1/8/2'", "'1/'",  "'/8'",  "'/'",       "''",    "' 1/8'",
        "'1/8 '",  "'one'",          "'0x1p3'", "true",  "[1]",   "1979-05-27"}) {
    EXPECT_CONFIG_ERROR("expected a finite number or a fraction like \"1/8\"",
                        value_of<double>(text));
  }
  EXPECT_CONFIG_ERROR("run.toml:1: ", value_of<double>("1e400"));
}

TEST(Settings, NamesLineKeyAndWhatIsWrong) {
  const auto message = [](const std::string& text) {
    return message_of([&] { SmallRun().read("\n[data]\n" + text); });
  };
  EXPECT_EQ(message("context = '256'"),
            "run.toml:3: data.context is \"256\", expected a whole number of at most 64 bits");
  EXPECT_EQ(message("context = 2.0"),
            "run.toml:3: data.context is 2.0, expected a whole number of at most 64 bits");
  EXPECT_EQ(message("shuffle = 1"), "run.toml:3: data.shuffle is 1, expected true or false");
  EXPECT_EQ(message("kind = true"), "run.toml:3: data.kind is true, expected a string");
  EXPECT_EQ(message("kind = 'txt'"),
            "run.toml:3: data.kind is \"txt\", expected one of: text, tokens");
  EXPECT_EQ(message("paths = 'a'"), "run.toml:3: data.paths is \"a\", expected a list of strings");
  EXPECT_EQ(message("paths = ['a', 2]"),
            "run.toml:3: data.paths is a list, expected a list of strings");
  EXPECT_EQ(message("kind = 1979-05-27"),
            "run.toml:3: data.kind is a date or time, expected a string");
  EXPECT_EQ(message("\n\nshuffle = [\n]"),
            "run.toml:5: data.shuffle is a list, expected true or false");
}

TEST(Settings, AWrongValueLeavesTheOldOne) {
  SmallRun run;
  run.paths = {"a", "b"};
  EXPECT_CONFIG_ERROR("data.paths", run.read("data.paths = ['c', 3]"));
  EXPECT_CONFIG_ERROR("data.kind", run.read("data.kind = 'c'"));
  EXPECT_CONFIG_ERROR("latent.kappa_bits", run.read("latent.kappa_bits = '1/0'"));
  EXPECT_THAT(run.paths, ElementsAre("a", "b"));
  EXPECT_EQ(run.kind, "text");
  EXPECT_EQ(run.kappa_bits, 0.5);
  EXPECT_FALSE(run.fields.was_set("data.paths"));
}

TEST(Settings, NamesTheNearestKey) {
  EXPECT_CONFIG_ERROR("run.toml:2: unknown key \"data.contxt\"; did you mean \"data.context\"?",
                      SmallRun().read("[data]\ncontxt = 3\n"));
  EXPECT_CONFIG_ERROR("unknown key \"data.seed\"; did you mean \"seed\"?",
                      SmallRun().read("[data]\nseed = 3\n"));
  EXPECT_CONFIG_ERROR("unknown key \"bits\"; did you mean \"latent.bits\"?",
                      SmallRun().read("bits = 3\n"));
  // Nearer by letters is latent.bits, but the name is right.
  EXPECT_CONFIG_ERROR("unknown key \"latent.paths\"; did you mean \"data.paths\"?",
                      SmallRun().read("[latent]\npaths = []\n"));
  EXPECT_EQ(message_of([] { SmallRun().read("zzzzzzzzzzzz = 1"); }),
            "run.toml:1: unknown key \"zzzzzzzzzzzz\"");
}

TEST(Settings, NamesTheNearestSection) {
  EXPECT_CONFIG_ERROR("run.toml:2: unknown section \"latnt\"; did you mean \"latent\"?",
                      SmallRun().read("\n[latnt]\nbits = 3\n"));
  EXPECT_CONFIG_ERROR("run.toml:1: unknown section \"warmup\"; did you mean \"latent.warmup\"?",
                      SmallRun().read("[warmup]\n"));
  EXPECT_EQ(message_of([] { SmallRun().read("[zzzzzzzzzzzz]"); }),
            "run.toml:1: unknown section \"zzzzzzzzzzzz\"");
  EXPECT_EQ(message_of([] { SmallRun().read("[z]"); }), "run.toml:1: unknown section \"z\"");
}

TEST(Settings, TellsSectionsFromValues) {
  EXPECT_CONFIG_ERROR("run.toml:1: data is 3, expected a section", SmallRun().read("data = 3\n"));
  EXPECT_CONFIG_ERROR("run.toml:1: data is a list, expected a section",
                      SmallRun().read("[[data]]\n"));
  EXPECT_CONFIG_ERROR("run.toml:1: data.context is a section, expected a whole number",
                      SmallRun().read("[data.context]\nx = 1\n"));
  SmallRun run;
  run.read("data = {context = 5}");
  EXPECT_EQ(run.context, 5);
}

TEST(Settings, RefusesAKeyWhoseNameHasADot) {
  // It looks like data.context, and could give it a second value.
  EXPECT_CONFIG_ERROR("run.toml:1: unknown key \"data.context\": quotes make its dots part of a",
                      SmallRun().read("\"data.context\" = 3\n"));
}

TEST(Settings, RefusesWhatIsNotToml) {
  EXPECT_CONFIG_ERROR("run.toml:3: ", SmallRun().read("[data]\ncontext = 1\ncontext = 2\n"));
  EXPECT_CONFIG_ERROR("run.toml:3: ", SmallRun().read("[data]\n[latent]\n[data]\n"));
  EXPECT_CONFIG_ERROR("run.toml:2: ", SmallRun().read("seed = 1\nseed\n"));
  EXPECT_CONFIG_ERROR("run.toml:2: ", SmallRun().read("[data]\nkind = \"te\nxt\"\n"));
  EXPECT_CONFIG_ERROR("run.toml:2: ", SmallRun().read("[data]\nkind = \"\xFF\"\n"));
  EXPECT_CONFIG_ERROR("run.toml:1: ", SmallRun().read("seed = 3é"));
  EXPECT_CONFIG_ERROR("run.toml:1: ", SmallRun().read("seed = 1979-05-27T\\7:32:00Z"));
  EXPECT_CONFIG_ERROR("run.toml:1: ", SmallRun().read("seed = " + std::string(100'000, '[')));
}

TEST(Settings, RefusesNestingThatCouldExhaustTheStack) {
  std::string key = "a";
  for (int i = 0; i < 200'000; ++i) key += ".a";
  EXPECT_CONFIG_ERROR("run.toml: over 10000 dots", SmallRun().read(key + " = 1"));
  key.resize(2 * 10'000 + 1);
  EXPECT_CONFIG_ERROR("run.toml:1: unknown section \"a\"", SmallRun().read(key + " = 1"));
}

// --- --set

TEST(Settings, SetsEveryType) {
  SmallRun run;
  for (const char* assignment :
       {"seed=-7", "data.kind=tokens", "data.paths=a,b c,", "data.context=1_024",
        "data.shuffle=false", "latent.kappa_bits=1/8", "latent.warmup.free_steps=0x10"}) {
    run.fields.set(assignment);
  }
  EXPECT_EQ(run.seed, -7);
  EXPECT_EQ(run.kind, "tokens");
  EXPECT_THAT(run.paths, ElementsAre("a", "b c", ""));
  EXPECT_EQ(run.context, 1024);
  EXPECT_FALSE(run.shuffle);
  EXPECT_EQ(run.kappa_bits, 0.125);
  EXPECT_EQ(run.free_steps, 16);
}

TEST(Settings, SetsStringsAsTheyStand) {
  for (const char* text : {"", "a=b", "'q'", "\"q\"", " x ", "3", "true", "[1]", "é\n", "#"}) {
    EXPECT_EQ(value_set_to<std::string>(text), text);
  }
}

TEST(Settings, SetsListsWithCommasOrAsInToml) {
  EXPECT_THAT(value_set_to<Strings>(""), IsEmpty());
  EXPECT_THAT(value_set_to<Strings>("a"), ElementsAre("a"));
  EXPECT_THAT(value_set_to<Strings>(",a"), ElementsAre("", "a"));
  EXPECT_THAT(value_set_to<Strings>("[]"), IsEmpty());
  EXPECT_THAT(value_set_to<Strings>("['a,b', \"c\"]"), ElementsAre("a,b", "c"));
  EXPECT_ARGUMENT_ERROR("value is a list, expected a list of strings",
                        value_set_to<Strings>("[1]"));
  EXPECT_ARGUMENT_ERROR("value is \"['a'\", expected a list of strings",
                        value_set_to<Strings>("['a'"));
}

TEST(Settings, SetsNumbers) {
  EXPECT_EQ(value_set_to<double>("3"), 3);
  EXPECT_EQ(value_set_to<double>(".5"), 0.5);
  EXPECT_EQ(value_set_to<double>("1_0.5"), 10.5);
  EXPECT_EQ(value_set_to<double>("\"1/4\""), 0.25);
  for (const char* text : {"", "inf", "nan", "1/0", "one", "1 2", "{}", "1\nother = 2"}) {
    EXPECT_ARGUMENT_ERROR("expected a finite number or a fraction", value_set_to<double>(text));
  }
}

TEST(Settings, NamesTheAssignmentThatIsWrong) {
  EXPECT_EQ(message_of([] { SmallRun().fields.set("data.context=many"); }),
            "--set data.context=many: data.context is \"many\", "
            "expected a whole number of at most 64 bits");
  EXPECT_ARGUMENT_ERROR("--set data.shuffle=yes: data.shuffle is \"yes\", expected true or false",
                        SmallRun().fields.set("data.shuffle=yes"));
  EXPECT_ARGUMENT_ERROR("expected true or false", SmallRun().fields.set("data.shuffle="));
  EXPECT_ARGUMENT_ERROR("expected a whole number", SmallRun().fields.set("data.context=\"3\""));
  EXPECT_ARGUMENT_ERROR("--set data.kind=txt: data.kind is \"txt\", expected one of: text, tokens",
                        SmallRun().fields.set("data.kind=txt"));
  EXPECT_ARGUMENT_ERROR(
      "--set data.contxt=3: unknown key \"data.contxt\"; did you mean \"data.context\"?",
      SmallRun().fields.set("data.contxt=3"));
  EXPECT_ARGUMENT_ERROR("unknown key \"\"", SmallRun().fields.set("=3"));
  EXPECT_ARGUMENT_ERROR("--set data.context: expected section.key=value",
                        SmallRun().fields.set("data.context"));
  EXPECT_ARGUMENT_ERROR("--set data=3: expected section.key=value",
                        SmallRun().fields.set("data=3"));
  EXPECT_ARGUMENT_ERROR("not UTF-8", SmallRun().fields.set("data.paths=\xFF"));
}

TEST(Settings, TheCommandLineOverridesTheFile) {
  SmallRun run;
  EXPECT_FALSE(run.fields.was_set("data.context"));
  run.read("\n[data]\ncontext = 5\n");
  EXPECT_TRUE(run.fields.was_set("data.context"));
  EXPECT_EQ(run.set_by("data.context"), "run.toml:3");
  run.fields.set("data.context=6");
  run.fields.set("data.context=7");
  EXPECT_EQ(run.context, 7);
  EXPECT_EQ(run.set_by("data.context"), "--set data.context=7");
  EXPECT_EQ(run.set_by("data.shuffle"), "");
}

// --- Checks of the components

TEST(Settings, RejectsAValueWhereItCameFrom) {
  SmallRun run;
  EXPECT_CONFIG_ERROR("default: data.paths is [], expected at least one file",
                      run.fields.reject("data.paths", "at least one file"));
  run.read("\n[data]\ncontext = -1\n");
  EXPECT_EQ(message_of([&] { run.fields.reject("data.context", "1 or more"); }),
            "run.toml:3: data.context is -1, expected 1 or more");
  EXPECT_CONFIG_ERROR("data.context", run.fields.reject("data.context", "1 or more"));
  run.fields.set("data.context=-2");
  EXPECT_ARGUMENT_ERROR("--set data.context=-2: data.context is -2, expected 1 or more",
                        run.fields.reject("data.context", "1 or more"));
}

TEST(Settings, RefusesASettingWithoutEffect) {
  SmallRun run;
  run.read("[latent]\nbits = 0\nkappa_bits = 0.5\n");
  EXPECT_EQ(message_of([&] { run.fields.no_effect("latent.kappa_bits", "latent.bits is 0"); }),
            "run.toml:3: latent.kappa_bits has no effect: latent.bits is 0");
  EXPECT_CONFIG_ERROR("latent.kappa_bits", run.fields.no_effect("latent.kappa_bits", "x"));
  run.fields.set("latent.warmup.free_steps=2");
  EXPECT_ARGUMENT_ERROR(
      "--set latent.warmup.free_steps=2: latent.warmup.free_steps has no effect: x",
      run.fields.no_effect("latent.warmup.", "x"));
  EXPECT_NO_THROW(run.fields.no_effect("data.", "x"));
}

TEST(Settings, TheCommandLineMayTakeTheEffectOfWhatTheFileSays) {
  SmallRun run;
  run.read("[latent]\nbits = 4\nkappa_bits = 0.5\n");
  run.fields.set("latent.bits=0");
  EXPECT_NO_THROW(run.fields.no_effect("latent.kappa_bits", "latent.bits is 0"));
  EXPECT_EQ(run.fields.write().find("kappa_bits"), std::string::npos);
  run.fields.set("latent.kappa_bits=1");
  EXPECT_ARGUMENT_ERROR("no effect", run.fields.no_effect("latent.kappa_bits", "latent.bits is 0"));
}

TEST(Settings, LeavesOutWhatHasNoEffect) {
  SmallRun run;
  run.fields.no_effect("latent.", "there is no latent");
  run.fields.no_effect("data.context", "x");
  EXPECT_EQ(run.fields.write(),
            "seed = 1\n\n[data]\nkind = \"text\"\npaths = []\nshuffle = true\n");
  run.fields.no_effect("seed", "x");
  EXPECT_EQ(run.fields.write(), "[data]\nkind = \"text\"\npaths = []\nshuffle = true\n");
}

TEST(Settings, AKeyThatNobodyListedIsABug) {
  SmallRun run;
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "data.contxt", run.fields.was_set("data.contxt"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "data.contxt",
                          run.fields.reject("data.contxt", "x"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", run.fields.no_effect("data", "x"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", run.fields.no_effect("dat.", "x"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "", run.fields.add("seed", &run.seed, "twice"));
  EXPECT_FREEFORMER_ERROR(ErrorCode::kInternal, "",
                          run.fields.choice("x", run.kind, {"other"}, "no such default"));
}

// --- Writing

TEST(Settings, WritesEachSectionOnce) {
  SmallRun run;
  run.paths = {"a", "b"};
  EXPECT_EQ(run.fields.write(),
            "seed = 1\n"
            "\n"
            "[data]\n"
            "kind = \"text\"\n"
            "paths = [\"a\", \"b\"]\n"
            "context = 256\n"
            "shuffle = true\n"
            "\n"
            "[latent]\n"
            "bits = 8\n"
            "kappa_bits = 0.5\n"
            "\n"
            "[latent.warmup]\n"
            "free_steps = 0\n");
}

TEST(Settings, WritesWhatReadsBack) {
  SmallRun run, copy;
  run.read("seed = 3\ndata.paths = ['x']\nlatent.warmup.free_steps = 9\nlatent.bits = 2");
  run.fields.set("data.kind=tokens");
  run.fields.set("data.shuffle=false");
  copy.read(run.fields.write());
  EXPECT_EQ(copy.fields.write(), run.fields.write());
  EXPECT_EQ(copy.free_steps, 9);
  EXPECT_EQ(copy.kind, "tokens");
  EXPECT_FALSE(copy.shuffle);
}

TEST(Settings, OddStringsReadBack) {
  std::string controls;
  for (int c = 0; c < 0x80; ++c) controls += char(c);
  const Strings texts = {"",
                         "\"",
                         "\\",
                         "\\n",
                         "'''",
                         "\"\"\"",
                         "# no comment",
                         "é 漢 🙂",
                         "\xC2\x85\xE2\x80\xA8\xEF\xBB\xBF",
                         " x ",
                         controls};
  for (const std::string& text : texts) EXPECT_EQ(written_and_read(text), text);
  EXPECT_EQ(written_and_read(texts), texts);
}

TEST(Settings, EveryDoubleReadsBack) {
  const auto expect_same = [](double value) {
    EXPECT_EQ(std::bit_cast<uint64_t>(written_and_read(value)), std::bit_cast<uint64_t>(value))
        << value;
  };
  using Limits = std::numeric_limits<double>;
  for (const double value : {0.0, -0.0, 0.1, 1.0 / 3, 1e15, 1e16, 1e22, 1e-7, 123456789.0,
                             Limits::max(), Limits::min(), Limits::denorm_min()}) {
    expect_same(value);
  }
  const RandomSource random(5, RandomStream::kData);
  for (uint32_t i = 0; i < 200; ++i) {
    const PhiloxBlock block = random.block(0, i, 0);
    const auto value = std::bit_cast<double>(uint64_t{block[0]} << 32 | block[1]);
    if (std::isfinite(value)) expect_same(value);
  }
}

TEST(Settings, WritesDoublesAsShortAsTheyRead) {
  One<double> one;
  const auto text = [&](double value) {
    one.value = value;
    return one.fields.write();
  };
  EXPECT_EQ(text(0.1), "value = 0.1\n");
  EXPECT_EQ(text(3), "value = 3.0\n");  // a whole number in TOML is another type
  EXPECT_EQ(text(1e-5), "value = 1e-05\n");
}

TEST(Settings, WholeNumbersReadBack) {
  for (const int64_t value : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min(),
                              std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(written_and_read(value), value);
  }
}

// --- Help

TEST(Settings, ExplainsEveryKeyInColumns) {
  SmallRun run;
  run.context = 5;  // the default is what stood there when the fields were listed
  EXPECT_EQ(run.fields.explain(),
            "  seed = 1  of all random numbers\n"
            "\n"
            "[data]\n"
            "  kind    = \"text\"  what the files hold; one of: text, tokens\n"
            "  paths   = []      files to learn from\n"
            "  context = 256     tokens of a row\n"
            "  shuffle = true    in random order\n"
            "\n"
            "[latent]\n"
            "  bits       = 8    bits of a code\n"
            "  kappa_bits = 0.5  bits that are free\n"
            "\n"
            "[latent.warmup]\n"
            "  free_steps = 0  steps without a penalty\n");
}

TEST(Settings, ExplainsInLinesOfATerminal) {
  Fields fields;
  std::string greek = "κάππα", wide(60, 'x');
  int64_t number = 1;
  std::string help, words;
  for (int i = 0; i < 60; ++i) help += (i > 0 ? " word" : "word") + std::to_string(i);
  fields.add("a", &greek, "short");
  fields.add("wide_one", &wide, "below its default");
  fields.add("number", &number, help);
  const std::string text = fields.explain();
  EXPECT_THAT(text, HasSubstr("  a        = \"κάππα\"  short\n"));
  EXPECT_THAT(text, HasSubstr("xxx\"\n                      below its default\n"));
  EXPECT_THAT(text, HasSubstr("  number   = 1        word0 word1 "));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u) << line;
    EXPECT_THAT(line, Not(::testing::EndsWith(" ")));
    if (line.find("word") == line.npos) continue;
    EXPECT_EQ(line.find("word"), 22u) << line;
    words += (words.empty() ? "" : " ") + line.substr(22);
  }
  EXPECT_EQ(words, help) << "no word is lost";
  EXPECT_GE(std::count(text.begin(), text.end(), '\n'), 6);
}

// --- [[when]] ------------------------------------------------------------------------------------

const std::string kConditional = R"(
data.context = 64
latent.kappa_bits = 1.0
[[when]]
latent.kappa_bits = "1/64"
set.latent.bits = 2
set.data.context = 32
[[when]]
latent.kappa_bits = "1/64"
data.kind = "tokens"
set.latent.warmup.free_steps = 7
)";

TEST(SettingsWhen, SetsWhatGoesWithAValueWhereverThatWasSet) {
  SmallRun by_file;
  by_file.read(kConditional);
  by_file.fields.apply_conditions();
  EXPECT_EQ(by_file.context, 64) << "κ is 1";
  EXPECT_EQ(by_file.bits, 8);

  SmallRun by_command_line;
  by_command_line.read(kConditional);
  by_command_line.fields.set("latent.kappa_bits=0.015625");
  by_command_line.fields.apply_conditions();
  EXPECT_EQ(by_command_line.context, 32) << "stronger than the file's own value";
  EXPECT_EQ(by_command_line.bits, 2);
  EXPECT_EQ(by_command_line.free_steps, 0) << "only one of two conditions holds";
  EXPECT_EQ(by_command_line.set_by("latent.bits"), "run.toml:6");
}

TEST(SettingsWhen, NeedsAllItsConditionsAndYieldsToTheCommandLine) {
  SmallRun run;
  run.read(kConditional);
  run.fields.set("latent.kappa_bits=1/64");
  run.fields.set("data.kind=tokens");
  run.fields.set("latent.bits=5");
  run.fields.apply_conditions();
  EXPECT_EQ(run.free_steps, 7);
  EXPECT_EQ(run.bits, 5);
  EXPECT_EQ(run.context, 32);
}

TEST(SettingsWhen, OneSeesWhatAnEarlierOneSet) {
  SmallRun run;
  run.read("[[when]]\nseed = 1\nset.seed = 2\n[[when]]\nseed = 2\nset.data.context = 3\n");
  run.fields.apply_conditions();
  EXPECT_EQ(run.seed, 2);
  EXPECT_EQ(run.context, 3);
}

TEST(SettingsWhen, MistakesAreNamedEvenIfTheConditionDoesNotHold) {
  const auto apply = [](const std::string& text) {
    SmallRun run;
    run.read(text);
    run.fields.apply_conditions();
  };
  const auto invalid = ErrorCode::kInvalidConfig;
  EXPECT_FREEFORMER_ERROR(invalid, "run.toml:2: unknown key \"sed\"; did you mean \"seed\"?",
                          apply("[[when]]\nsed = 9\nset.seed = 2"));
  EXPECT_FREEFORMER_ERROR(invalid, "run.toml:3: unknown key \"data.contxt\"",
                          apply("[[when]]\nseed = 9\nset.data.contxt = 2"));
  EXPECT_FREEFORMER_ERROR(invalid, "run.toml:3: data.context is \"x\", expected a whole number",
                          apply("[[when]]\nseed = 9\nset.data.context = 'x'"));
  EXPECT_FREEFORMER_ERROR(invalid, "run.toml:2: data.kind is \"txt\", expected one of",
                          apply("[[when]]\ndata.kind = 'txt'\nset.seed = 2"));
  EXPECT_FREEFORMER_ERROR(invalid, "run.toml:1: expected [[when]] with settings that must hold",
                          apply("[[when]]\nseed = 9"));
  EXPECT_FREEFORMER_ERROR(invalid, "run.toml:1: expected [[when]] with settings that must hold",
                          apply("[[when]]\nset.seed = 9"));
  EXPECT_FREEFORMER_ERROR(invalid, "run.toml:1: expected [[when]] with settings that must hold",
                          apply("when = [3]"));
  EXPECT_FREEFORMER_ERROR(invalid, "run.toml:1: when is a section, expected [[when]]",
                          apply("[when]\nseed = 9\nset.seed = 2"));
}

}  // namespace
}  // namespace freeformer
