#include "tier/late_opening.h"

#include <chrono>

namespace shale {
namespace {

constexpr double kOpenAgainAfterS = 2;

}  // namespace

Status LateOpening::begin(bool late) {
  const Status opened = open_();
  done_ = opened.has_value();
  if (opened) return {};
  if (!late || opened.error().code == ErrorCode::kInvalidArgument) return opened;
  why_not_ = opened.error();
  thread_ = std::jthread([this](const std::stop_token& stop) { open_until_it_succeeds(stop); });
  return {};
}

void LateOpening::open_until_it_succeeds(const std::stop_token& stop) {
  while (!done_) {
    std::unique_lock lock(mutex_);
    stopped_.wait_for(lock, stop, std::chrono::duration<double>(kOpenAgainAfterS), [] { return false; });
    lock.unlock();
    if (stop.stop_requested()) return;
    const Status opened = open_();
    lock.lock();
    if (!opened) why_not_ = opened.error();
    done_ = opened.has_value();
  }
}

Status LateOpening::reached() const {
  if (done_) return {};
  const std::lock_guard lock(mutex_);
  return std::unexpected(why_not_);
}

}  // namespace shale
