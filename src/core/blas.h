// Telling a slow BLAS from a fast one, before and after it is loaded.
#pragma once

#include <string_view>

namespace freeformer {

// Netlib's reference BLAS, by the canonical path of libblas.so.3. Debian keeps it under blas/, the
// optimised ones under openblas-*/, blis-*/, atlas/ or with MKL.
inline bool is_reference_blas(std::string_view library_path) {
  return library_path.find("/blas/libblas.so") != library_path.npos;
}

// An OpenBLAS with threads of its own: they and OpenMP's wait for each other by spinning, and take
// each other's cores.
inline bool has_own_threads(std::string_view library_path) {
  return library_path.find("-pthread/") != library_path.npos;
}

inline constexpr const char* kFastBlasRemedy = "apt-get install libopenblas0-openmp";
inline constexpr const char* kOneTeamRemedy =
    "apt-get install libopenblas0-openmp and remove libopenblas0-pthread";

}  // namespace freeformer
