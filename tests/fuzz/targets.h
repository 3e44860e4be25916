// What the fuzzers run: a parser of untrusted bytes, and what must hold of its answer whatever the
// bytes are. A parser may throw an Error; anything else it throws, and any broken promise, ends the
// process. The libFuzzer programs and the replay in core_test share these.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace freeformer {

// An accepted file's tensors lie end to end in it and fill it.
void fuzz_safetensors(std::span<const std::byte> input);

// An accepted config.json is the same config after writing and reading it again.
void fuzz_model_config(std::span<const std::byte> input);

// Accepted settings are the same settings after writing and reading them again, whether the input
// is a TOML file or the value of a --set.
void fuzz_settings(std::span<const std::byte> input);
// Reads the settings that it uses, which have a field of every type. Throws Error.
void read_sample_settings(const std::string& toml_text);

// An accepted tokenizer.json reads back what it writes, and says every text of its own tokens.
void fuzz_tokenizer(std::span<const std::byte> input);

}  // namespace freeformer
