#include "core/clock.h"

#include <chrono>
#include <thread>

namespace shale {

double RealClock::now_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double wall_clock_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void RealClock::sleep_until_s(double time_s) const {
  for (double left = time_s - now_s(); left > 0; left = time_s - now_s()) {
    std::this_thread::sleep_for(std::chrono::duration<double>(left));
  }
}

}  // namespace shale
