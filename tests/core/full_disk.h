// A disk that is full after a few bytes, without needing one: a child process whose files may not
// grow further.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "core/error.h"

namespace freeformer {

// Whether `function` throws an Error of kIo where no file can grow over `bytes`.
template <typename Function>
bool fails_on_a_full_disk(rlim_t bytes, Function function) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);  // let write() answer EFBIG
    const rlimit limit{bytes, bytes};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(3);
    try {
      function();
    } catch (const Error& error) {
      _exit(error.code() == ErrorCode::kIo ? 0 : 1);
    } catch (...) {
      _exit(1);
    }
    _exit(2);
  }
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

}  // namespace freeformer
