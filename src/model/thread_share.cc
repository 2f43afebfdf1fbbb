#include "model/thread_share.h"

#include <algorithm>

namespace shale {
namespace {

constexpr double kWaitsMax = 0.15;     // of the time: a neighbour takes half, short interruptions far less
constexpr double kPatienceMinS = 0.5;  // doubled each time that the neighbour is still there
constexpr double kPatienceMaxS = 8;

}  // namespace

void ThreadShare::observe(std::span<const double> waited_s, double seconds, double now_s) {
  const auto held_up = static_cast<std::uint32_t>(
      std::ranges::count_if(waited_s, [&](double waited) { return waited > kWaitsMax * seconds; }));
  if (held_up > 0 && active_ > 1) {
    active_ -= std::min(held_up, active_ - 1);
    patience_s_ = std::clamp(2 * patience_s_, kPatienceMinS, kPatienceMaxS);
    try_at_s_ = now_s + patience_s_;
  } else if (active_ < threads_ && now_s >= try_at_s_) {
    active_ = threads_;
  } else if (active_ == threads_) {
    patience_s_ = 0;
  }
}

}  // namespace shale
