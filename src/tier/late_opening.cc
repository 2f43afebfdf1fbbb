#include "tier/late_opening.h"

#include <chrono>

namespace shale {
namespace {

constexpr std::chrono::seconds kAgainAfter(2), kPatience(2);

}  // namespace

Status LateOpening::begin(bool late) {
  if (!late) {
    SHALE_TRY(reach_());
    done_ = true;
    SHALE_TRY(count_());
    counted_ = true;
    trouble_.reset();
    return {};
  }
  thread_ = std::jthread([this](const std::stop_token& stop) {
    try_until_it_succeeds(reach_, done_, stop);
    try_until_it_succeeds(count_, counted_, stop);
  });
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPatience, [this] { return counted_ || failed_; });
  if (failed_ && trouble_ && trouble_->code == ErrorCode::kInvalidArgument) return std::unexpected(*trouble_);
  return {};
}

void LateOpening::try_until_it_succeeds(const Step& step, std::atomic<bool>& succeeded, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const Status ended = step();
    std::unique_lock lock(mutex_);
    succeeded = ended.has_value();
    failed_ = failed_ || !ended;
    trouble_ = ended ? std::nullopt : std::optional(ended.error());
    changed_.notify_all();
    if (ended) return;
    changed_.wait_for(lock, stop, kAgainAfter, [] { return false; });
  }
}

Status LateOpening::reached() const {
  if (done_) return {};
  const std::lock_guard lock(mutex_);
  return trouble_ ? Status(std::unexpected(*trouble_)) : Status();
}

std::optional<Error> LateOpening::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

}  // namespace shale
