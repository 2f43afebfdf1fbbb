#include "engine/run_scheduler.h"

#include <algorithm>
#include <utility>

namespace shale {
namespace {

bool before(const std::unique_ptr<Run>& a, const std::unique_ptr<Run>& b) {
  return a->request.priority != b->request.priority ? a->request.priority > b->request.priority : a->turn < b->turn;
}

void insert(std::vector<std::unique_ptr<Run>>& runs, std::unique_ptr<Run> run) {
  const auto place = std::ranges::upper_bound(runs, run, before);
  runs.insert(place, std::move(run));
}

}  // namespace

bool RunScheduler::preempted_first() {
  if (preempted_.empty() || (preempted_.front()->spilled && preempted_.front()->spilled->late())) return false;
  return waiting_.size() == 0 || preempted_.front()->request.priority >= waiting_.next().request.priority;
}

Run* RunScheduler::next() {
  if (preempted_first()) return preempted_.front().get();
  return waiting_.size() > 0 ? &waiting_.next() : nullptr;
}

void RunScheduler::start_next() {
  if (preempted_first()) {
    insert(running_, std::move(preempted_.front()));
    preempted_.erase(preempted_.begin());
    return;
  }
  waiting_.next().turn = begun_++;
  waiting_.next().begun = true;
  insert(running_, waiting_.take());
}

void RunScheduler::preempt(Run& run) {
  const auto place = std::ranges::find(running_, &run, [](const auto& each) { return each.get(); });
  insert(preempted_, std::move(*place));
  running_.erase(place);
}

void RunScheduler::reap() {
  std::erase_if(running_, [](const auto& run) { return run->over; });
  std::erase_if(preempted_, [](const auto& run) { return run->over; });
}

bool RunScheduler::is_running(const Run* run) const {
  return std::ranges::any_of(running_, [run](const auto& each) { return each.get() == run; });
}

}  // namespace shale
