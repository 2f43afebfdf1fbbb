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

void transfer(Runs& from, Runs& to, const RequestState& run) {
  const auto place = std::ranges::find(from, &run, [](const auto& each) { return each.get(); });
  insert(to, std::move(*place));
  from.erase(place);
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

RequestState* RequestScheduler::next() {
  RequestState* waits = waiting_.size() > 0 ? &waiting_.next() : nullptr;
  const auto late = [](const auto& run) { return run->spilled && run->spilled->late(); };
  const auto first = std::ranges::find_if_not(preempted_, late);
  if (first == preempted_.end()) return waits;
  const RequestState& run = **first;
  const bool goes_before = !waits || run.share != waits->share || run.request.priority >= waits->request.priority;
  return goes_before ? first->get() : waits;
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
    transfer(preempted_, running_, next);
    return;
  }
  std::unique_ptr<RequestState> run = waiting_.withdraw(next.id);
  shares_.leave(*run->share);
  give_turn(*run);
  run->begun = true;
  insert(running_, std::move(run));
  sort(preempted_);
}

void RequestScheduler::preempt(RequestState& run) { transfer(running_, preempted_, run); }

void RequestScheduler::reap() {
  for (Runs* runs : {&running_, &preempted_}) {
    std::erase_if(*runs, [](const auto& run) { return run->over; });
  }
}

bool RequestScheduler::is_running(const RequestState* run) const {
  return std::ranges::any_of(running_, [run](const auto& each) { return each.get() == run; });
}

}  // namespace shale
