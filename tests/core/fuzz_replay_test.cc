// The fuzz targets without a fuzzer: every file of the corpus, and many mutations of them that are
// the same in every run, under whatever sanitizers this build has. A broken promise aborts.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "../fuzz/targets.h"
#include "core/error.h"
#include "core/model_config.h"
#include "core/philox.h"
#include "core/safetensors.h"
#include "text/tokenizer.h"

namespace freeformer {
namespace {

namespace fs = std::filesystem;

using Bytes = std::vector<std::byte>;

constexpr int kMutations = 20'000;

struct CorpusFile {
  std::string name;
  Bytes bytes;
};

std::vector<CorpusFile> read_corpus(const std::string& target) {
  std::vector<CorpusFile> files;
  for (const auto& entry : fs::directory_iterator(fs::path(FREEFORMER_CORPUS_DIR) / target)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto bytes = std::as_bytes(std::span(text));
    files.push_back({entry.path().filename(), Bytes(bytes.begin(), bytes.end())});
  }
  // The order of a folder's files is the file system's business; the mutations must not be.
  std::sort(files.begin(), files.end(),
            [](const CorpusFile& a, const CorpusFile& b) { return a.name < b.name; });
  return files;
}

// A corpus file with one to four changes, a function of its number alone.
class Mutation {
 public:
  Mutation(const std::vector<CorpusFile>& corpus, uint64_t number)
      : corpus_(corpus), number_(number) {}

  Bytes make() {
    Bytes bytes = any_file();
    for (size_t changes = 1 + below(4); changes > 0; --changes) change(bytes);
    // Exactly as large as its content, so that the sanitizer sees a read beyond the end.
    bytes.shrink_to_fit();
    return bytes;
  }

 private:
  size_t below(size_t limit) {
    const PhiloxBlock block = RandomSource(1, RandomStream::kData).block(number_, draw_++, 0);
    return block[0] % std::max<size_t>(1, limit);
  }

  const Bytes& any_file() { return corpus_[below(corpus_.size())].bytes; }

  void change(Bytes& bytes) {
    const size_t at = below(bytes.size() + 1);
    const auto place = bytes.begin() + std::ptrdiff_t(at);
    switch (below(7)) {
      case 0:  // flip a bit
        if (at < bytes.size()) *place ^= std::byte(1 << below(8));
        break;
      case 1:  // another byte, one that means something in JSON half of the time
        if (at < bytes.size()) {
          constexpr char kTelling[] = "{}[]\",:\\0129-.eE+ \n\ttfnu";
          *place = std::byte(below(2) == 0 ? below(256) : size_t(kTelling[below(24)]));
        }
        break;
      case 2:  // truncate
        bytes.erase(place, bytes.end());
        break;
      case 3:  // leave a few bytes out
        bytes.erase(place, place + std::ptrdiff_t(below(std::min<size_t>(9, bytes.size() - at))));
        break;
      case 4: {  // say something twice
        const Bytes piece(place, place + std::ptrdiff_t(below(bytes.size() - at)));
        bytes.insert(bytes.begin() + std::ptrdiff_t(below(bytes.size() + 1)), piece.begin(),
                     piece.end());
        break;
      }
      case 5: {  // splice: this far, and on with the end of another
        const Bytes& other = any_file();
        bytes.erase(place, bytes.end());
        bytes.insert(bytes.end(), other.begin() + std::ptrdiff_t(below(other.size() + 1)),
                     other.end());
        break;
      }
      default:  // a header's length that is right again, so that what it holds is read
        if (bytes.size() >= 8) {
          for (size_t i = 0; i < 8; ++i)
            bytes[i] = std::byte(i < 2 ? (bytes.size() - 8) >> 8 * i : 0);
        }
    }
  }

  const std::vector<CorpusFile>& corpus_;
  uint64_t number_;
  uint32_t draw_ = 0;
};

void replay_mutations(const std::string& target, void (*run)(std::span<const std::byte>),
                      int mutations = kMutations) {
  const auto corpus = read_corpus(target);
  ASSERT_FALSE(corpus.empty());
  for (int i = 0; i < mutations; ++i) run(Mutation(corpus, uint64_t(i)).make());
}

// Seeds are named after what is expected of them: ok-… is accepted, bad-… is refused.
template <typename Parse>
void replay_corpus(const std::string& target, void (*run)(std::span<const std::byte>),
                   Parse parse) {
  const auto corpus = read_corpus(target);
  std::set<std::string> kinds;
  for (const CorpusFile& file : corpus) {
    SCOPED_TRACE(file.name);
    run(file.bytes);
    const std::string kind = file.name.substr(0, file.name.find('-'));
    kinds.insert(kind);
    if (kind == "ok") {
      EXPECT_NO_THROW(parse(file.bytes));
    } else {
      EXPECT_THROW(parse(file.bytes), Error);
    }
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"bad", "ok"}));
}

TEST(FuzzReplay, SafetensorsCorpus) {
  replay_corpus("fuzz_safetensors", fuzz_safetensors,
                [](const Bytes& bytes) { parse_safetensors(bytes, "seed"); });
}

TEST(FuzzReplay, SafetensorsMutations) { replay_mutations("fuzz_safetensors", fuzz_safetensors); }

TEST(FuzzReplay, ModelConfigCorpus) {
  replay_corpus("fuzz_model_config", fuzz_model_config, [](const Bytes& bytes) {
    parse_model_config({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "seed");
  });
}

TEST(FuzzReplay, ModelConfigMutations) { replay_mutations("fuzz_model_config", fuzz_model_config); }

TEST(FuzzReplay, TokenizerCorpus) {
  replay_corpus("fuzz_tokenizer", fuzz_tokenizer, [](const Bytes& bytes) {
    parse_tokenizer({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "seed");
  });
}

TEST(FuzzReplay, TokenizerMutations) { replay_mutations("fuzz_tokenizer", fuzz_tokenizer, 4'000); }

TEST(FuzzReplay, SettingsCorpus) {
  replay_corpus("fuzz_settings", fuzz_settings, [](const Bytes& bytes) {
    read_sample_settings({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  });
}

// Fewer: each is a file and the value of six flags.
TEST(FuzzReplay, SettingsMutations) {
  replay_mutations("fuzz_settings", fuzz_settings, kMutations / 40);
}

}  // namespace
}  // namespace freeformer
