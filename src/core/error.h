// The one error type of the project. A user's mistake throws an Error with a code that says whose
// fault it is; the program turns the code into an exit status, the server into an HTTP status.
// A programmer's mistake is an FF_CHECK.
#pragma once

#include <stdexcept>
#include <string>

#include <fmt/core.h>

namespace freeformer {

enum class ErrorCode {
  kInvalidArgument,  // a flag, a request field, a value given by the caller
  kInvalidConfig,    // a key in a configuration file
  kBadCheckpoint,    // a file whose content is not what its format or its config promises
  kIo,               // the operating system said no
  kUnsupported,      // valid, but not for this build or this machine
  kCapacity,         // valid, but too large for a stated limit
  kDiverged,         // training reached a loss that is not a number
  kInternal,         // a bug in Freeformer
};

const char* name(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// One line of UTF-8 that a terminal can show whatever a file or a request smuggled into it: control
// characters and broken bytes become '?', and a text over 2,000 bytes loses its middle.
std::string one_line(std::string text);

// fail(ErrorCode::kIo, "cannot open {}: {}", path, reason): formats and throws.
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, one_line(fmt::format(format, std::forward<Args>(args)...)));
}

// What is wrong in a file, behind its name: throws kBadCheckpoint.
template <typename... Args>
[[noreturn]] void reject_file(const std::string& file, fmt::format_string<Args...> format,
                              Args&&... args) {
  fail(ErrorCode::kBadCheckpoint, "{}: {}", file, fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* file, int line, const char* condition);

}  // namespace freeformer

// Always on; states what must hold if the code is right. Throws kInternal.
#define FF_CHECK(condition) \
  ((condition) ? void(0) : ::freeformer::check_failed(__FILE__, __LINE__, #condition))

// For inner loops: on in debug builds only.
#ifdef NDEBUG
#define FF_DCHECK(condition) void(0)
#else
#define FF_DCHECK(condition) FF_CHECK(condition)
#endif
