#include "data/data_source.h"

#include <algorithm>
#include <span>

#include "core/crc32c.h"
#include "core/error.h"
#include "data/corpus.h"
#include "data/synthetic.h"

namespace freeformer {
namespace {

constexpr int64_t kMaxContext = 1 << 24;  // far beyond any model; T+1 tokens still fit the memory

// The settings of a kind have no effect on another: no row depends on them.
void refuse_idle_settings(Fields& fields, const std::string& prefix, const DataSettings& settings) {
  const auto idle = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      fields.no_effect(prefix + name, prefix + "kind is \"" + settings.kind + "\"");
    }
  };
  if (settings.kind == "letters") {
    idle({"paths", "context", "held_out", "documents", "separator", "coin_flip"});
  } else if (settings.kind == "coin") {
    idle({"paths", "held_out", "documents", "separator"});
  } else if (settings.kind == "tokens") {
    idle({"separator", "coin_flip"});
  } else {
    idle({"coin_flip"});
  }
}

bool reads_files(const DataSettings& settings) {
  return settings.kind == "text" || settings.kind == "tokens";
}

}  // namespace

void list_fields(Fields& fields, DataSettings& settings) {
  fields.choice("kind", settings.kind, {"text", "tokens", "letters", "coin"},
                "text: files, one token a byte; tokens: token files (.bin with .json); letters: "
                "the paper's synthetic task, § 4.1; coin: its example of § 2");
  fields.add("paths", &settings.paths, "files to read, in this order (text, tokens)");
  fields.add("context", &settings.context,
             "tokens a row reads, T; it holds one more, to predict (text, tokens, coin)");
  fields.add("held_out", &settings.held_out,
             "share of the tokens, from the end, that is kept for evaluation (text, tokens)");
  fields.choice("documents", settings.documents, {"packed", "cut"},
                "packed: rows run over the documents' ends; cut: a row is a piece of one document, "
                "padded (text, tokens)");
  fields.add("separator", &settings.separator,
             "what stands between two documents of a file; empty: a file is one document (text)");
  fields.add("coin_flip", &settings.coin_flip, "probability that a token is not the coin's (coin)");
}

void check(Fields& fields, const std::string& prefix, const DataSettings& settings) {
  refuse_idle_settings(fields, prefix, settings);
  if (reads_files(settings)) {
    if (settings.paths.empty()) {
      fields.reject(prefix + "paths", "a file or more, as in --set " + prefix + "paths=FILE");
    }
    for (const std::string& path : settings.paths) {
      if (path.empty()) fields.reject(prefix + "paths", "names of files, none of them empty");
    }
    if (!(settings.held_out >= 0 && settings.held_out < 1)) {
      fields.reject(prefix + "held_out", "0 or more and less than 1");
    }
  }
  if (settings.kind != "letters" && (settings.context < 1 || settings.context > kMaxContext)) {
    fields.reject(prefix + "context", fmt::format("1 to {}", kMaxContext));
  }
  // Over one half it is the same task with the coin's sides exchanged.
  if (settings.kind == "coin" && !(settings.coin_flip >= 0 && settings.coin_flip <= 0.5)) {
    fields.reject(prefix + "coin_flip", "0 to 0.5");
  }
}

std::string fingerprint(const DataSource& data) {
  constexpr uint64_t kSampledRows = 32;
  const uint64_t rows = data.rows_per_epoch() > 0 ? data.rows_per_epoch() : kSampledRows;
  uint32_t checksum = 0;
  for (uint64_t i = 0; i < std::min(kSampledRows, rows); ++i) {
    const Row row = data.train_row(i * rows / std::min(kSampledRows, rows));
    checksum = crc32c(std::as_bytes(std::span(row.tokens)), checksum);
    checksum = crc32c(std::as_bytes(std::span(row.documents)), checksum);
  }
  return fmt::format("{} rows of {} tokens, crc32c {:08x}", data.rows_per_epoch(), data.context(),
                     checksum);
}

std::unique_ptr<DataSource> open_data(const DataSettings& settings, uint64_t seed) {
  if (settings.kind == "letters") return make_letters(seed);
  if (settings.kind == "coin") return make_coin(seed, settings.context, settings.coin_flip);
  FF_CHECK(reads_files(settings));
  return open_corpus(settings, seed);
}

void split_documents(const Row& row, std::vector<std::vector<int32_t>>& sequences) {
  const auto keep = [&](size_t begin, size_t end) {
    if (end - begin >= 2)
      sequences.emplace_back(row.tokens.begin() + long(begin), row.tokens.begin() + long(end));
  };
  if (row.documents.empty()) return keep(0, row.tokens.size());
  for (size_t begin = 0; begin < row.tokens.size();) {
    size_t end = begin + 1;
    while (end < row.tokens.size() && row.documents[end] == row.documents[begin]) ++end;
    if (row.documents[begin] >= 0) keep(begin, end);
    begin = end;
  }
}

std::vector<std::vector<int32_t>> held_out_sequences(const DataSource& data, int64_t rows) {
  const uint64_t all = data.held_out_count();
  const uint64_t count = rows == 0 ? all : std::min(uint64_t(rows), all);
  std::vector<std::vector<int32_t>> sequences;
  for (uint64_t i = 0; i < count; ++i) {
    split_documents(data.held_out_row(i * all / count), sequences);
  }
  return sequences;
}

}  // namespace freeformer
