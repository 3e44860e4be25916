// SIGTERM, SIGINT and SIGUSR1 ask a run to finish its step, save and end well. A second one ends
// the process at once.
#pragma once

namespace freeformer {

// While one lives, the signals are caught; the former handlers come back afterwards. They nest: a
// signal that came during a sweep's run is still there for the sweep. Of one thread.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The signal's name, or nullptr while none has come.
  static const char* received();
};

}  // namespace freeformer
