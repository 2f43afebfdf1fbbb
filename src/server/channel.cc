#include "server/channel.h"

#include <utility>

namespace shale {

bool Channel::push(std::string_view piece) {
  const std::lock_guard lock(mutex_);
  if (abandoned_ || text_.size() + piece.size() > text_bytes_max_) return false;
  text_ += piece;
  came_.notify_one();
  return true;
}

void Channel::finish(Response response) {
  const std::lock_guard lock(mutex_);
  response_ = std::move(response);
  came_.notify_one();
}

std::optional<Channel::Part> Channel::next(std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  if (!came_.wait_for(lock, wait, [this] { return !text_.empty() || response_; })) return std::nullopt;
  return Part{std::exchange(text_, {}), std::exchange(response_, std::nullopt)};
}

void Channel::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
}

}  // namespace shale
