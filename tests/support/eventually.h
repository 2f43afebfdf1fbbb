// Waits for what threads and other processes do.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace shale::testing {

// Whether `holds`, asked every ten milliseconds, so often at most: for ten seconds.
inline bool eventually(const std::function<bool()>& holds, int times = 1000) {
  for (int i = 0; i < times; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// For twenty seconds: where many processes and servers share the machine.
inline bool eventually_beside_others(const std::function<bool()>& holds) { return eventually(holds, 2000); }

}  // namespace shale::testing
