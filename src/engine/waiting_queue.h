// Requests that have not begun. The tenant that was served least goes first; within a tenant the highest priority;
// among equals a scheduler chooses, the same one that the simulator asks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "cache/cache.h"
#include "engine/request_state.h"
#include "scheduling/schedulers.h"

namespace shale {

// Not thread-safe.
class WaitingQueue final : private PrefixLookup {
 public:
  // `scheduler` is one of scheduler_names(). The scheduler may look up the cache's pool; the cache outlives it. Prompts
  // have no numbered blocks to follow, so every choice looks them up anew, which touches nothing.
  WaitingQueue(std::string scheduler, const SchedulerOptions& options, const Cache& cache)
      : scheduler_(std::move(scheduler)), options_(options), cache_(cache) {
    options_.rescore = true;
  }

  std::size_t size() const { return runs_.size(); }
  void add(std::unique_ptr<RequestState> run);  // requires its share
  // The request whose turn it is. It stays so until it is taken or withdrawn, a request of a higher priority comes, or
  // its tenant was served. Requires size() > 0.
  RequestState& next();
  // Removes and returns it. Null where no such request waits.
  std::unique_ptr<RequestState> withdraw(RequestId id);

 private:
  // Requests of a tenant of equal priority. The one whose turn it is has left the scheduler.
  struct Line {
    std::unique_ptr<Scheduler> scheduler;
    RequestState* next = nullptr;
  };
  struct Tenant {
    const FairShares::Share* share = nullptr;
    std::map<int, Line, std::greater<>> lines = {};  // by priority; none is empty
    double service() const { return share->service; }
  };

  std::uint32_t resident_prefix(const WaitingRequest& request) const override;

  std::string scheduler_;
  SchedulerOptions options_;
  const Cache& cache_;
  std::map<std::string, Tenant, std::less<>> tenants_;                     // that have requests here
  std::unordered_map<std::uint32_t, std::unique_ptr<RequestState>> runs_;  // by the scheduler's number of a request
};

}  // namespace shale
