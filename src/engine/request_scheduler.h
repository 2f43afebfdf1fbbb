// Whose turn it is: requests that wait to begin, that are running, and that were preempted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/request_state.h"
#include "engine/waiting_queue.h"

namespace shale {

// Owns every request from submission to its end. Those running go in the order in which they began, but that within a
// tenant a higher priority goes before a lower one; who comes last is preempted first, the first never. Not
// thread-safe.
class RequestScheduler {
 public:
  RequestScheduler(std::string policy, const SchedulerOptions& options, const Cache& cache)
      : waiting_(std::move(policy), options, cache) {}

  void submit(std::unique_ptr<RequestState> run);
  // Who begins next: the first preempted run, unless its bytes are late or one of its tenant with a higher priority is
  // the first that waits; else that one. Null when there is none.
  RequestState* next();
  // That one begins to run.
  void start_next();
  // The run, which is running, gives its place up until its turn comes again.
  void preempt(RequestState& run);
  // Out of the queue, where it waits there; null otherwise.
  std::unique_ptr<RequestState> withdraw(RequestId id);
  // Drops those that are over.
  void reap();

  // In their order.
  const std::vector<std::unique_ptr<RequestState>>& running() const { return running_; }
  const std::vector<std::unique_ptr<RequestState>>& preempted() const { return preempted_; }
  std::size_t waiting() const { return waiting_.size(); }
  bool is_running(const RequestState* run) const;

 private:
  bool preempted_first();
  void give_turn(RequestState& run);

  FairShares shares_;
  WaitingQueue waiting_;
  std::vector<std::unique_ptr<RequestState>> running_, preempted_;
  std::uint64_t begun_ = 0;
};

}  // namespace shale
