// Where a step's time goes: named parts of the work, counted while somebody listens. A part that is
// not listened to costs one comparison. Parts do not nest; all run on one thread (what they call
// may use many).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace freeformer::kernels {

struct PartTime {
  double seconds = 0;
  int64_t calls = 0;
};
using PartTimes = std::map<std::string, PartTime>;

void start_timing();
PartTimes stop_timing();  // since start_timing

class TimedPart {
 public:
  explicit TimedPart(const char* name);
  ~TimedPart();
  TimedPart(const TimedPart&) = delete;
  TimedPart& operator=(const TimedPart&) = delete;

 private:
  const char* name_;  // nullptr: nobody listens
  std::chrono::steady_clock::time_point start_;
};

}  // namespace freeformer::kernels
