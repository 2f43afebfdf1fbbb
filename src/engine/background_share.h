// How much of the time of steps encoding, writing and placing have beside requests.
#pragma once

#include <algorithm>

namespace shale {

// Of `share` (EngineOptions::background_share), where what waits to be encoded holds `held` of the pool's blocks (0 to
// 1): a quarter of it while somebody waits for a first token (`waited_for`). From a quarter of the pool on no less than
// all of it, and more the more is held, up to five times as much at three quarters, though no more than half of a step:
// whoever needs the pages next would have what holds them given up, and computing it again takes far longer than
// encoding it.
inline double background_share_of(double share, double held, bool waited_for) {
  constexpr double kWhileWaitedFor = 0.25, kGrowsFrom = 0.25, kGrowsTo = 0.75, kTimes = 5, kMost = 0.5;
  if (held <= kGrowsFrom) return share * (waited_for ? kWhileWaitedFor : 1);
  const double grown = std::min(1.0, (held - kGrowsFrom) / (kGrowsTo - kGrowsFrom));
  return std::max(share, std::min(kMost, share * (1 + (kTimes - 1) * grown)));
}

}  // namespace shale
