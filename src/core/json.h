// Strict JSON: what nlohmann::json parses, minus what it forgives. Duplicate keys, NUL bytes, a
// byte-order mark, ill-formed UTF-8 and absurd nesting are errors that name the file and the place.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/utf8.h"

namespace freeformer {

using Json = nlohmann::json;
// Keeps the keys in the order they are written, for files that people read.
using OrderedJson = nlohmann::ordered_json;

// `where` opens the error message ("model.safetensors: header"); `code` is the error's code.
// A value takes 100 bytes of memory and as little as three of text: a hundred megabytes of "{},"
// are a bomb. The longest honest safetensors header has two thirds of the default limit.
Json parse_json(std::string_view text, const std::string& where, ErrorCode code,
                size_t max_values = 16'000'000);

// The text of a document whose strings may hold anything, a path that is not UTF-8 for one.
std::string to_text(const OrderedJson& json, int indent = -1);

// "a string", "an array", … : what was found, for messages.
const char* describe_type(const Json& value);

}  // namespace freeformer
