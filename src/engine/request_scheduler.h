// The lists of requests: waiting, running and preempted; and whose turn it is.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/request_state.h"
#include "engine/waiting_queue.h"

namespace shale {

// Owns every request from submission to its end. Running requests are in the order in which they began; within a tenant
// a higher priority comes before a lower one. The last is preempted first, the first never. Not thread-safe.
class RequestScheduler {
 public:
  RequestScheduler(std::string policy, const SchedulerOptions& options, const Cache& cache)
      : waiting_(std::move(policy), options, cache) {}

  void submit(std::unique_ptr<RequestState> run);
  // The request that begins next: the first preempted one whose bytes are not late, unless the first that waits is of
  // its tenant and of a higher priority; else the first that waits. Null when there is none.
  RequestState* next();
  // Lets what next() returned run.
  void start(RequestState& next);
  // Takes a running request's place until its turn comes again.
  void preempt(RequestState& run);
  // Removes and returns a waiting request; null if no such one waits.
  std::unique_ptr<RequestState> withdraw(RequestId id);
  // Drops requests that are over.
  void reap();

  // Requests in their order.
  const std::vector<std::unique_ptr<RequestState>>& running() const { return running_; }
  const std::vector<std::unique_ptr<RequestState>>& preempted() const { return preempted_; }
  std::size_t waiting() const { return waiting_.size(); }
  bool is_running(const RequestState* run) const;

 private:
  void give_turn(RequestState& run);

  FairShares shares_;
  WaitingQueue waiting_;
  std::vector<std::unique_ptr<RequestState>> running_, preempted_;
  std::uint64_t begun_ = 0;
};

}  // namespace shale
