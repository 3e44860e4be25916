// Strict JSON: what nlohmann::json parses, minus what it forgives. Duplicate keys, NUL bytes, a
// byte-order mark, ill-formed UTF-8 and absurd nesting are errors that name the file and the place.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace freeformer {

using Json = nlohmann::json;
// Keeps the keys in the order they are written, for files that people read.
using OrderedJson = nlohmann::ordered_json;

// `where` opens the error message ("model.safetensors: header"); `code` is the error's code.
Json parse_json(std::string_view text, const std::string& where, ErrorCode code);

// The text of a document whose strings may hold anything, a path that is not UTF-8 for one.
std::string to_text(const OrderedJson& json, int indent = -1);

// Position of the first byte that is not UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);

// "a string", "an array", … : what was found, for messages.
const char* describe_type(const Json& value);

}  // namespace freeformer
