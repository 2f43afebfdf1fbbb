#include "model/thread_share.h"

#include <algorithm>

namespace shale {
namespace {

// Of the time, and long beside a scheduler's turns: a neighbour takes half, within 50 ms.
constexpr double kWaitsMax = 0.15, kWaitsMinS = 0.02;
constexpr double kLookS = 0.2;         // over which waits are added up
constexpr double kPatienceMinS = 0.5;  // doubled each time that the neighbour is still there
constexpr double kPatienceMaxS = 8;

}  // namespace

void ThreadShare::look_afresh(std::uint32_t active) {
  active_ = active;
  waited_s_.clear();
  seconds_ = 0;
}

void ThreadShare::observe(std::span<const double> waited_s, double seconds, double now_s) {
  waited_s_.resize(waited_s.size());
  for (std::size_t i = 0; i < waited_s.size(); ++i) waited_s_[i] += waited_s[i];
  seconds_ += seconds;
  const bool expected = patience_s_ > 0;  // a neighbour has stayed, and all threads are being tried
  const double waits_max_s = std::max(expected ? 0 : kWaitsMinS, kWaitsMax * seconds_);
  const auto held_up =
      static_cast<std::uint32_t>(std::ranges::count_if(waited_s_, [&](double waited) { return waited > waits_max_s; }));
  if (held_up > 0 && active_ > 1) {
    look_afresh(active_ - std::min(held_up, active_ - 1));
    patience_s_ = std::clamp(2 * patience_s_, kPatienceMinS, kPatienceMaxS);
    try_at_s_ = now_s + patience_s_;
  } else if (active_ < threads_ && now_s >= try_at_s_) {
    look_afresh(threads_);
  } else if (seconds_ >= kLookS) {
    if (active_ == threads_) patience_s_ = 0;
    look_afresh(active_);
  }
}

}  // namespace shale
