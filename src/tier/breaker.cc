#include "tier/breaker.h"

#include <algorithm>

namespace shale {

using Kind = BreakerState::Kind;

Result<Breaker::Ticket> Breaker::admit() {
  const std::lock_guard lock(mutex_);
  if (state_.kind == Kind::kClosed) return state_.opened;
  const double wait_s = probe_at_s_ - clock_.now_s();
  if (state_.kind == Kind::kOpen && wait_s <= 0) {
    state_.kind = Kind::kHalfOpen;
    return state_.opened;
  }
  ++state_.refused;
  return fail(ErrorCode::kBusy, "{}; it is left alone for {:.1f} s more", last_.message, std::max(0.0, wait_s));
}

void Breaker::ended(Ticket ticket, const Status& status) {
  const std::lock_guard lock(mutex_);
  const bool stale = ticket != state_.opened;
  const bool failed = !status && status.error().code == ErrorCode::kIo;
  const bool silent =
      !status && (status.error().code == ErrorCode::kCancelled || status.error().code == ErrorCode::kBusy);
  if (failed) {
    ++state_.failures;
    if (stale) return;
    last_ = status.error();
    const bool probe = state_.kind == Kind::kHalfOpen;
    if (probe || (state_.kind == Kind::kClosed && ++in_row_ >= options_.failures_in_row)) open();
  } else if (silent) {
    if (!stale && state_.kind == Kind::kHalfOpen) state_.kind = Kind::kOpen;  // the next one is the probe
  } else {
    state_.kind = Kind::kClosed;
    in_row_ = 0;
    pause_s_ = options_.pause_s;
  }
}

void Breaker::open() {
  state_.kind = Kind::kOpen;
  ++state_.opened;
  probe_at_s_ = clock_.now_s() + pause_s_;
  pause_s_ = std::min(2 * pause_s_, options_.pause_s_max);
}

BreakerState Breaker::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::optional<Error> Breaker::trouble() const {
  const std::lock_guard lock(mutex_);
  if (state_.kind == Kind::kClosed) return std::nullopt;
  return last_;
}

}  // namespace shale
