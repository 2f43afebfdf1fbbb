// Storage behind a network that is away when its tier is made.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "core/error.h"

namespace shale {

// Opens it, again and again on a thread of its own, until that succeeds. A member that is to be declared after all that
// `open` uses.
class LateOpening {
 public:
  explicit LateOpening(std::function<Status()> open) : open_(std::move(open)) {}
  // Once. Where that fails: the error or, if `late` and nothing is wrong with what was asked for, goes on beside.
  Status begin(bool late);
  // No further try begins.
  void stop() { thread_.request_stop(); }
  bool done() const { return done_; }
  // Why it is not, while it is not.
  Status reached() const;

 private:
  void open_until_it_succeeds(const std::stop_token& stop);

  const std::function<Status()> open_;
  std::atomic<bool> done_ = false;
  mutable std::mutex mutex_;
  Error why_not_;  // guarded
  std::condition_variable_any stopped_;
  std::jthread thread_;
};

}  // namespace shale
