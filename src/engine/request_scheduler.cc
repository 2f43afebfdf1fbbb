#include "engine/request_scheduler.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace shale {
namespace {

using Runs = std::vector<std::unique_ptr<RequestState>>;

void sort(Runs& runs) {
  std::ranges::sort(runs, {}, [](const auto& run) { return run->turn; });
}

void insert(Runs& runs, std::unique_ptr<RequestState> run) {
  runs.push_back(std::move(run));
  sort(runs);
}

}  // namespace

void RequestScheduler::submit(std::unique_ptr<RequestState> run) {
  run->share = &shares_.enter(run->request.tenant, run->request.tenant_weight);
  waiting_.add(std::move(run));
}

std::unique_ptr<RequestState> RequestScheduler::withdraw(RequestId id) {
  std::unique_ptr<RequestState> run = waiting_.withdraw(id);
  if (run) shares_.leave(*run->share);
  return run;
}

bool RequestScheduler::preempted_first() {
  if (preempted_.empty() || (preempted_.front()->spilled && preempted_.front()->spilled->late())) return false;
  if (waiting_.size() == 0) return true;
  const RequestState &first = *preempted_.front(), &next = waiting_.next();
  return first.share != next.share || first.request.priority >= next.request.priority;
}

RequestState* RequestScheduler::next() {
  if (preempted_first()) return preempted_.front().get();
  return waiting_.size() > 0 ? &waiting_.next() : nullptr;
}

// The last turn. Those of a lower priority of its tenant hand theirs on, each to the next, the first to the run.
void RequestScheduler::give_turn(RequestState& run) {
  run.turn = begun_++;
  std::vector<RequestState*> lower;
  for (const Runs* runs : {&running_, &preempted_}) {
    for (const auto& each : *runs) {
      if (each->share == run.share && each->request.priority < run.request.priority) lower.push_back(each.get());
    }
  }
  std::ranges::sort(lower, std::greater(), &RequestState::turn);
  for (RequestState* each : lower) std::swap(run.turn, each->turn);
}

void RequestScheduler::start(RequestState& next) {
  if (next.begun) {
    insert(running_, std::move(preempted_.front()));
    preempted_.erase(preempted_.begin());
    return;
  }
  std::unique_ptr<RequestState> run = waiting_.withdraw(next.id);
  shares_.leave(*run->share);
  give_turn(*run);
  run->begun = true;
  insert(running_, std::move(run));
  sort(preempted_);
}

void RequestScheduler::preempt(RequestState& run) {
  const auto place = std::ranges::find(running_, &run, [](const auto& each) { return each.get(); });
  insert(preempted_, std::move(*place));
  running_.erase(place);
}

void RequestScheduler::reap() {
  for (Runs* runs : {&running_, &preempted_}) {
    std::erase_if(*runs, [](const auto& run) { return run->over; });
  }
}

bool RequestScheduler::is_running(const RequestState* run) const {
  return std::ranges::any_of(running_, [run](const auto& each) { return each.get() == run; });
}

}  // namespace shale
