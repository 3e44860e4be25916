// What this processor can do, and which of it the kernels use. Kernels are compiled once per
// instruction set (Highway) and chosen at run time, so one binary runs on any x86-64.
// FREEFORMER_CPU_ISA=avx2 (or any name of supported_isas()) forces a smaller set, in oneDNN too.
#pragma once

#include <string>
#include <vector>

namespace freeformer::kernels {

// Best first: "avx512_dl", "avx512", "avx2", "sse4", "ssse3", "scalar".
std::vector<std::string> supported_isas();

// The one the kernels run with. The first call reads FREEFORMER_CPU_ISA and throws
// kInvalidArgument if this processor lacks it. Every kernel makes that call; vector_ops, which they
// stand on, do not.
const std::string& active_isa();

// Forces one of supported_isas() from now on; for tests. Not while kernels run.
void force_isa(const std::string& isa);

// True where oneDNN multiplies bf16 in hardware (AVX512_BF16, AMX). Elsewhere it emulates at a
// fifth of the fp32 rate, so bf16 operands are widened to fp32 first.
bool has_native_bf16();

std::string cpu_model();    // as the operating system names it
int physical_core_count();  // those this process may run on

}  // namespace freeformer::kernels
