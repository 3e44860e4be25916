// Where training rows come from: an endless, shuffled, deterministic stream of rows, and a fixed
// held-out set. A row is a pure function of the seed and its index, so the order of a run depends
// on nothing but seed and step, and resuming needs no more than the step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/settings.h"
#include "text/tokenizer.h"

namespace freeformer {

// T+1 tokens: the first T are read, the last T predicted.
struct Row {
  std::vector<int32_t> tokens;
  // Document of each token: runs of equal ids, -1 for padding (whose token is 0). Empty: the whole
  // row is one document. A token is not predicted from another document, nor from padding.
  std::vector<int32_t> documents;
};

// The documents of a row, each a sequence of its own; those of a single token are left out, since
// there is nothing to predict.
void split_documents(const Row& row, std::vector<std::vector<int32_t>>& sequences);

struct DataSettings {
  std::string kind = "text";
  std::vector<std::string> paths;
  int64_t context = 256;  // T
  double held_out = 0.1;
  std::string documents = "packed";
  std::string separator;
  double coin_flip = 0.1;
};
void list_fields(Fields& fields, DataSettings& settings);
// Refuses values out of range and settings without effect. `prefix` is the section with its dot.
void check(Fields& fields, const std::string& prefix, const DataSettings& settings);

class DataSource {
 public:
  virtual ~DataSource() = default;

  virtual const Tokenizer* tokenizer() const = 0;  // nullptr: unknown (a token file's)
  virtual int64_t vocab_size() const = 0;
  virtual int64_t context() const = 0;  // T

  virtual Row train_row(uint64_t index) const = 0;
  virtual uint64_t rows_per_epoch() const = 0;  // 0: never repeats

  virtual uint64_t held_out_count() const = 0;
  virtual Row held_out_row(uint64_t index) const = 0;  // index < held_out_count()
};

// The documents of `rows` held-out rows, 0: of all. The rows are spread over all of them: the first
// of a text are not like its last.
std::vector<std::vector<int32_t>> held_out_sequences(const DataSource& data, int64_t rows);

// Of what a run reads: changes with the data's amount and, but for a sample's luck, its content.
std::string fingerprint(const DataSource& data);

// Opens what the settings name. Throws kIo, kInvalidConfig, kBadCheckpoint, or kInvalidArgument for
// tokens that are not in a .bin.
std::unique_ptr<DataSource> open_data(const DataSettings& settings, uint64_t seed);

}  // namespace freeformer
