#include "kernels/timing.h"

#include <atomic>
#include <mutex>
#include <utility>

namespace freeformer::kernels {
namespace {

std::atomic<bool> listening = false;
std::mutex guard;
PartTimes times;
std::chrono::steady_clock::time_point beginning;

}  // namespace

void start_timing() {
  const std::lock_guard lock(guard);
  times.clear();
  beginning = std::chrono::steady_clock::now();
  listening = true;
}

PartTimes stop_timing() {
  const std::lock_guard lock(guard);
  listening = false;
  return std::exchange(times, {});
}

TimedPart::TimedPart(const char* name) : name_(listening ? name : nullptr) {
  if (name_ != nullptr) start_ = std::chrono::steady_clock::now();
}

TimedPart::~TimedPart() {
  if (name_ == nullptr) return;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  const std::lock_guard lock(guard);
  if (!listening || start_ < beginning) return;  // a part that outlives its listener
  PartTime& part = times[name_];
  part.seconds += seconds.count();
  ++part.calls;
}

}  // namespace freeformer::kernels
