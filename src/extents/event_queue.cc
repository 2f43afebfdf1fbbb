#include "extents/event_queue.h"

#include <sys/eventfd.h>

#include <utility>

namespace shale {
namespace {

std::size_t bytes_of(const StoreEvent& event) {
  return sizeof(StoreEvent) + event.tenant.size() + event.keys.size() * sizeof(BlockKey) +
         event.tokens.size() * sizeof(event.tokens[0]);
}

}  // namespace

EventQueue::EventQueue(std::size_t events_max) : events_max_(events_max), fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void EventQueue::push(StoreEvent event) {
  {
    const std::lock_guard lock(mutex_);
    if (events_max_ == 0) return;
    bytes_ += bytes_of(event);
    events_.push_back(std::move(event));
    while (events_.size() > events_max_ || (bytes_ > kBytesMax && events_.size() > 1)) {
      pop_oldest();
      ++lost_;
      lost_untold_ = true;
    }
  }
  signal();
}

std::vector<StoreEvent> EventQueue::take(std::size_t max) {
  const std::lock_guard lock(mutex_);
  std::vector<StoreEvent> taken;
  if (lost_untold_ && max > 0) {
    taken.push_back({.kind = StoreEvent::Kind::kLost});
    lost_untold_ = false;
  }
  while (taken.size() < max && !events_.empty()) taken.push_back(pop_oldest());
  if (!events_.empty()) signal();  // who takes them has read what told of these
  return taken;
}

StoreEvent EventQueue::pop_oldest() {
  StoreEvent event = std::move(events_.front());
  events_.pop_front();
  bytes_ -= bytes_of(event);
  return event;
}

void EventQueue::signal() const {
  if (fd_) eventfd_write(fd_.get(), 1);
}

std::uint64_t EventQueue::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

}  // namespace shale
