#include "core/clock.h"

#include <chrono>

namespace shale {

double RealClock::now_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace shale
