#include "model/thread_share.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace shale {
namespace {

// What threads wait for cores, added up, as a share of the time. While one waits, all do: n threads do so much of that
// time the work of none, and n - 1 do always theirs, so that to leave one out pays from 1 / n on.
constexpr double kWaitsMin = 0.15, kWaitsOfThreads = 0.8;
constexpr double kNeighbourWaits = 0.5;  // a program that never rests has half of a core
constexpr double kWaitsMinS = 0.02;      // long beside a scheduler's turns
constexpr double kLookS = 0.2;           // over which waits are added up
constexpr double kPatienceMinS = 0.5;    // doubled each time that the neighbour is still there
constexpr double kPatienceMaxS = 8;
constexpr double kIdleMin = 0.75;  // of a core that is there for another thread

}  // namespace

void ThreadShare::look_afresh(std::uint32_t active) {
  active_ = active;
  waited_s_ = seconds_ = 0;
}

// Beside a limit of a control group cores are idle because threads may not run: where a try for idle cores' sake fails,
// the next one is not for that.
void ThreadShare::observe(std::span<const double> waited_s, double own_s, double seconds, double now_s,
                          double idle_cores) {
  waited_s_ += std::max(0.0, std::reduce(waited_s.begin(), waited_s.end()) - own_s);
  seconds_ += seconds;
  const bool expected = patience_s_ > 0;  // a neighbour has stayed, and all threads are being tried
  const bool are_idle = idle_cores >= kIdleMin * (threads_ - active_);
  const double waits_max = std::max(kWaitsMin, kWaitsOfThreads / active_);
  if (active_ > 1 && waited_s_ > std::max(expected ? 0 : kWaitsMinS, waits_max * seconds_)) {
    const auto neighbours = static_cast<std::uint32_t>(std::lround(waited_s_ / (kNeighbourWaits * seconds_)));
    look_afresh(active_ - std::clamp<std::uint32_t>(neighbours, 1, active_ - 1));
    patience_s_ = std::clamp(2 * patience_s_, kPatienceMinS, kPatienceMaxS);
    try_at_s_ = now_s + patience_s_;
    try_idle_at_s_ = std::exchange(tries_idle_, false) ? try_at_s_ : now_s + kPatienceMinS;
  } else if (active_ < threads_ && now_s >= (are_idle ? try_idle_at_s_ : try_at_s_)) {
    tries_idle_ = now_s < try_at_s_;
    look_afresh(threads_);
  } else if (seconds_ >= kLookS) {
    if (active_ == threads_) {
      patience_s_ = 0;
      tries_idle_ = false;
    }
    look_afresh(active_);
  }
}

}  // namespace shale
