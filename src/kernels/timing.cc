#include "kernels/timing.h"

#include <atomic>
#include <mutex>
#include <utility>

namespace freeformer::kernels {
namespace {

std::atomic<bool> listening = false;
std::mutex guard;
PartTimes times;

}  // namespace

void start_timing() {
  const std::lock_guard lock(guard);
  times.clear();
  listening = true;
}

PartTimes stop_timing() {
  listening = false;
  const std::lock_guard lock(guard);
  return std::exchange(times, {});
}

TimedPart::TimedPart(const char* name) : name_(listening ? name : nullptr) {
  if (name_ != nullptr) start_ = std::chrono::steady_clock::now();
}

TimedPart::~TimedPart() {
  if (name_ == nullptr) return;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  const std::lock_guard lock(guard);
  PartTime& part = times[name_];
  part.seconds += seconds.count();
  ++part.calls;
}

}  // namespace freeformer::kernels
