#include <cstdint>

#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  freeformer::fuzz_tokenizer(std::as_bytes(std::span(data, size)));
  return 0;
}
