// Storage behind a network that is away when its tier is made, or that takes long to count.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "core/error.h"
#include "tier/tier.h"

namespace shale {

// Two steps, each tried again and again until it succeeds: `reach` asks whether it answers, `count` what lies there.
// A member that is to be declared after all that they use.
class LateOpening {
 public:
  using Step = std::function<Status()>;
  LateOpening(Step reach, Step count) : reach_(std::move(reach)), count_(std::move(count)) {}
  // Once. The error of the first that fails; if `late`, both go on beside after two seconds or a failure, but for one
  // that says that what was asked for is wrong.
  Status begin(bool late);
  // No further try begins.
  void stop() { thread_.request_stop(); }
  bool done() const { return done_; }  // reached
  bool counted() const { return counted_; }
  // How much of a bound, kUnlimited where there is none, is room: nothing before it is reached and, with one, counted.
  std::uint64_t room(std::uint64_t bound) const { return (bound == kUnlimited ? done_ : counted_) ? bound : 0; }
  // Why it is not reached, while it is not.
  Status reached() const;
  // Why the step that it is at failed last, or that it has not been reached yet.
  std::optional<Error> trouble() const;

 private:
  void try_until_it_succeeds(const Step& step, std::atomic<bool>& succeeded, const std::stop_token& stop);

  const Step reach_, count_;
  std::atomic<bool> done_ = false, counted_ = false;
  mutable std::mutex mutex_;
  bool failed_ = false;                                                           // at least once; guarded
  std::optional<Error> trouble_ = Error{ErrorCode::kIo, "has not answered yet"};  // guarded
  std::condition_variable_any changed_;
  std::jthread thread_;
};

}  // namespace shale
