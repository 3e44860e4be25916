// Rows cut from long texts: files read byte by byte, or token files. Never loaded whole;
// memory grows with the number of documents alone.
//
// A text file is one document, or what stands between occurrences of `separator`; empty documents
// vanish. A token file brings its own.
//
// The tokens are split once: the last `held_out` share is held out, rounded to whole documents
// where there are several (at least one on each side). Then rows are made in one of two ways:
//
//   packed  windows of T+1 tokens over the stream of documents, one after the other; a window knows
//           which document each token is of. Windows begin T tokens apart, so that each token is
//           predicted once. Each epoch shifts the windows' grid by a random amount below T and
//           visits them in a random order; a window pushed over the end ends with the stream.
//   cut     each row is a piece of one document, at most T+1 tokens, padded; pieces of a document
//           overlap by one token, so that every token but a document's first is predicted once an
//           epoch. Each epoch visits the pieces in a random order.
//
// Held-out rows are the same of the other part, unshifted and in order. What remains there after
// the last full window is dropped; a part shorter than one window is one padded row.
#pragma once

#include <cstdint>
#include <memory>

#include "data/data_source.h"

namespace freeformer {

std::unique_ptr<DataSource> open_corpus(const DataSettings& settings, uint64_t seed);

}  // namespace freeformer
