#include <algorithm>
#include <thread>

#include "cache/cache_state.h"
#include "core/stopwatch.h"

namespace shale {
namespace {

constexpr std::size_t kJobsPlannedBeside = 4;  // that may be queued while more moves are decided

}  // namespace

// After a job on the entry has ended.
void Cache::State::settle(Entry& entry) {
  if (entry.pins == 0 && !entry.objects.empty()) {
    // A copy that could not be made is not the entry's placement. What to do instead is seen at the next access: asked
    // at once, the planner would only say the same again.
    Configuration& placed = planned[entry.key].placed;
    if (placed.tier == kDropped || !entry.find(placed.method, placed.tier)) {
      const auto fastest = std::ranges::min_element(entry.objects, {}, &StoredObject::tier);
      placed = {fastest->method(), fastest->keep(), fastest->tier};
    }
  }
  forget_if_gone(entry);
}

bool Cache::work(Executor& executor) {
  State& s = *state_;
  const bool plans = s.plan_due && s.jobs.size() <= kJobsPlannedBeside &&
                     s.clock.now_s() - s.planned_at_s >= s.options.plan_interval_s;
  if (plans) plan();
  const Stopwatch background(s.clock, s.stats.background_seconds);
  return s.jobs.work(executor, [&s](Entry& entry) { s.settle(entry); });
}

bool Cache::give_up_storing() {
  State& s = *state_;
  const double now_s = s.clock.now_s();
  const bool given_up = s.jobs.give_up(
      [&](const Entry& entry) { return entry.frequency.value(now_s) * s.candidates->recompute_s(entry); },
      [&s](Entry& entry) { s.settle(entry); });
  s.stats.given_up += given_up;
  return given_up;
}

std::uint32_t Cache::slabs_waiting_to_be_stored() const { return state_->jobs.slabs_kept(); }

void Cache::drain(Executor& executor) {
  using namespace std::chrono_literals;
  State& s = *state_;
  const auto settle = [&s](Entry& entry) { s.settle(entry); };
  while (!s.jobs.empty()) {
    if (!s.jobs.work(executor, settle)) std::this_thread::sleep_for(200us);  // only I/O is left
  }
}

bool Cache::idle() const { return state_->jobs.empty(); }

}  // namespace shale
