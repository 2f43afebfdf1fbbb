// Events for routers of requests, and a descriptor that wakes whoever waits for anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "extents/store_report.h"
#include "io/file_calls.h"

namespace shale {

// Thread-safe. The newest events that nobody takes are kept, as many as were allowed and fit.
class EventQueue {
 public:
  static constexpr std::size_t kBytesMax = std::size_t{16} << 20;

  explicit EventQueue(std::size_t events_max);

  void push(StoreEvent event);
  std::vector<StoreEvent> take(std::size_t max);
  // Makes the descriptor readable.
  void signal() const;
  int fd() const { return fd_.get(); }
  std::uint64_t lost() const;

 private:
  StoreEvent pop_oldest();

  const std::size_t events_max_;
  const FileDescriptor fd_;
  mutable std::mutex mutex_;  // guards what follows
  std::deque<StoreEvent> events_;
  std::size_t bytes_ = 0;
  std::uint64_t lost_ = 0;
  bool lost_untold_ = false;
};

}  // namespace shale
