// What the fuzzers run: a parser of untrusted bytes, and what must hold of its answer whatever the
// bytes are. A parser may throw an Error; anything else it throws, and any broken promise, ends the
// process. The libFuzzer programs and the replay in core_test share these.
#pragma once

#include <cstddef>
#include <span>

namespace freeformer {

// An accepted file's tensors lie end to end in it and fill it.
void fuzz_safetensors(std::span<const std::byte> input);

// An accepted config.json is the same config after writing and reading it again.
void fuzz_model_config(std::span<const std::byte> input);

}  // namespace freeformer
