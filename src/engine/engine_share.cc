// Requests that begin alike and come together: one loads what they have in common, the others wait for that, hold no
// blocks meanwhile, and share its own.
#include <algorithm>
#include <utility>

#include "engine/engine_state.h"

namespace shale {
namespace {

// Whose look-up or pages are like nobody else's.
bool keeps_to_itself(const RequestState& run) {
  return run.budget || run.request.policy.named() || !run.request.use_cache;
}

}  // namespace

// Until it is over: it came, failed, was given up, or its request was preempted or is gone.
bool Engine::State::in_flight(const SharedLoad& load) const {
  return load.load != 0 && std::ranges::any_of(scheduler.running(), [&load](const auto& run) {
           return !run->over && run->retrieval.load_number() == load.load;
         });
}

// Whether the run waits for another's load in place of its own.
bool Engine::State::await_load(RequestState& run) {
  if (in_flight(run.awaits)) return true;
  run.awaits = {};
  if (keeps_to_itself(run)) return false;
  std::vector<const Retrieval*> loads;
  for (const auto& each : scheduler.running()) {
    const bool shared = !each->over && each->bytes_missing() && each->request.insert_prefix && !keeps_to_itself(*each);
    if (shared && each.get() != &run) loads.push_back(&each->retrieval);
  }
  if (loads.empty()) return false;
  const Wanted looked_up = wanted(run);
  run.awaits = cache.shared_load(loads, looked_up.tokens, looked_up.policy, backlog(run, false));
  return run.awaiting();
}

// Those whose load of another is over look again: they share what came, and load what did not, one for all.
bool Engine::State::share_loads() {
  bool any = false;
  for (const auto& each : scheduler.running()) {
    RequestState& run = *each;
    if (run.over || run.asking || !run.awaiting() || in_flight(run.awaits)) continue;
    const std::uint32_t awaited = run.awaits.tokens;
    fetch(run, false);
    if (!run.resumed) charge_less(run, 0);
    stats.shared_loads += !run.from_tiers && run.computed_from >= awaited;
    any = true;
  }
  return any;
}

}  // namespace shale
