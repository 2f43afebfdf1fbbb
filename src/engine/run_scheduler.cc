#include "engine/run_scheduler.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace shale {
namespace {

using Runs = std::vector<std::unique_ptr<Run>>;

void sort(Runs& runs) {
  std::ranges::sort(runs, {}, [](const auto& run) { return run->turn; });
}

void insert(Runs& runs, std::unique_ptr<Run> run) {
  runs.push_back(std::move(run));
  sort(runs);
}

}  // namespace

void RunScheduler::submit(std::unique_ptr<Run> run) {
  run->share = &shares_.enter(run->request.tenant, run->request.tenant_weight);
  waiting_.add(std::move(run));
}

std::unique_ptr<Run> RunScheduler::withdraw(RequestId id) {
  std::unique_ptr<Run> run = waiting_.withdraw(id);
  if (run) shares_.leave(*run->share);
  return run;
}

bool RunScheduler::preempted_first() {
  if (preempted_.empty() || (preempted_.front()->spilled && preempted_.front()->spilled->late())) return false;
  if (waiting_.size() == 0) return true;
  const Run &first = *preempted_.front(), &next = waiting_.next();
  return first.share != next.share || first.request.priority >= next.request.priority;
}

Run* RunScheduler::next() {
  if (preempted_first()) return preempted_.front().get();
  return waiting_.size() > 0 ? &waiting_.next() : nullptr;
}

// The last turn. Those of a lower priority of its tenant hand theirs on, each to the next, the first to the run.
void RunScheduler::give_turn(Run& run) {
  run.turn = begun_++;
  std::vector<Run*> lower;
  for (const Runs* runs : {&running_, &preempted_}) {
    for (const auto& each : *runs) {
      if (each->share == run.share && each->request.priority < run.request.priority) lower.push_back(each.get());
    }
  }
  std::ranges::sort(lower, std::greater(), &Run::turn);
  for (Run* each : lower) std::swap(run.turn, each->turn);
}

void RunScheduler::start_next() {
  if (preempted_first()) {
    insert(running_, std::move(preempted_.front()));
    preempted_.erase(preempted_.begin());
    return;
  }
  std::unique_ptr<Run> run = waiting_.take();
  give_turn(*run);
  run->begun = true;
  insert(running_, std::move(run));
  sort(preempted_);
}

void RunScheduler::preempt(Run& run) {
  const auto place = std::ranges::find(running_, &run, [](const auto& each) { return each.get(); });
  insert(preempted_, std::move(*place));
  running_.erase(place);
}

void RunScheduler::reap() {
  for (Runs* runs : {&running_, &preempted_}) {
    std::erase_if(*runs, [this](const auto& run) {
      if (run->over) shares_.leave(*run->share);
      return run->over;
    });
  }
}

bool RunScheduler::is_running(const Run* run) const {
  return std::ranges::any_of(running_, [run](const auto& each) { return each.get() == run; });
}

}  // namespace shale
