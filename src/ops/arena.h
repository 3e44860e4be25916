// One arena for everything that a training step makes: large CPU tensors come from a single range
// of memory in huge pages. The first step lays it out; the same sequence of tensors falls into the
// same places in every later one, so that no step asks the system for memory or waits for fresh
// pages (LibTorch's own allocator returns every large tensor, and pays a page fault per 4 KiB when
// it asks again).
#pragma once

namespace freeformer::ops {

// From now on, for the whole process. Does nothing where the system does not lend the address
// space; what does not fit comes from LibTorch's own allocator.
void use_arena();

}  // namespace freeformer::ops
