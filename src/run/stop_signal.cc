#include "run/stop_signal.h"

#include <unistd.h>

#include <array>
#include <csignal>

namespace freeformer {
namespace {

constexpr std::array<int, 3> kSignals = {SIGTERM, SIGINT, SIGUSR1};

volatile std::sig_atomic_t received_signal = 0;
int living = 0;  // instances; the first one catches, the last one gives back
std::array<struct sigaction, kSignals.size()> former_handlers;

extern "C" void handle_stop(int signal) {
  if (received_signal != 0) _exit(128 + signal);
  received_signal = signal;
}

}  // namespace

StopSignal::StopSignal() {
  if (living++ > 0) return;
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = handle_stop;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &former_handlers[i]);
  }
}

StopSignal::~StopSignal() {
  if (--living > 0) return;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &former_handlers[i], nullptr);
  }
}

const char* StopSignal::received() {
  switch (received_signal) {
    case 0:
      return nullptr;
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    default:
      return "SIGUSR1";
  }
}

}  // namespace freeformer
