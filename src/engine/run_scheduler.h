// Whose turn it is: requests that wait to begin, that are under way, and that were preempted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/run.h"
#include "engine/waiting_line.h"

namespace shale {

// Owns every request from submission to its end. Those under way go in the order in which they began, but that within a
// tenant a higher priority goes before a lower one; who comes last is preempted first, the first never. Not
// thread-safe.
class RunScheduler {
 public:
  RunScheduler(std::string policy, const SchedulerOptions& options, const Cache& cache)
      : waiting_(std::move(policy), options, cache) {}

  void submit(std::unique_ptr<Run> run);
  // Who begins next: the first preempted run, unless its bytes are late or one of its tenant with a higher priority is
  // the first that waits; else that one. Null when there is none.
  Run* next();
  // That one goes under way.
  void start_next();
  // The run, which is under way, gives its place up until its turn comes again.
  void preempt(Run& run);
  // Out of the queue, where it waits there; null otherwise.
  std::unique_ptr<Run> withdraw(RequestId id);
  // Drops those that are over.
  void reap();

  // In their order.
  const std::vector<std::unique_ptr<Run>>& running() const { return running_; }
  const std::vector<std::unique_ptr<Run>>& preempted() const { return preempted_; }
  std::size_t waiting() const { return waiting_.size(); }
  bool is_running(const Run* run) const;

 private:
  bool preempted_first();
  void give_turn(Run& run);

  FairShares shares_;
  WaitingLine waiting_;
  std::vector<std::unique_ptr<Run>> running_, preempted_;
  std::uint64_t begun_ = 0;
};

}  // namespace shale
