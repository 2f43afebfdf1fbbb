// Who runs: requests begin while their pages fit beside what runs, and make room for those before them when the pool
// runs out; then they wait on a tier and go on with the same bytes.
#include <algorithm>
#include <utility>

#include "engine/engine_state.h"

namespace shale {
namespace {

constexpr std::uint32_t kResumeMargin = 8;  // slabs to grow into, so that a run that goes on does not stop at once

// By priority, then as they began.
bool before(const std::unique_ptr<Run>& a, const std::unique_ptr<Run>& b) {
  return a->request.priority != b->request.priority ? a->request.priority > b->request.priority : a->turn < b->turn;
}

void insert(std::vector<std::unique_ptr<Run>>& runs, std::unique_ptr<Run> run) {
  const auto place = std::ranges::upper_bound(runs, run, before);
  runs.insert(place, std::move(run));
}

}  // namespace

// While the prompt is computed.
std::uint32_t Engine::State::slabs_to_begin(const Run& run) const {
  if (run.budget || run.request.demand.named()) return slabs_for(run);
  return cache.pool().shape().pages_for(static_cast<std::uint32_t>(run.known())) + 1;
}

std::uint32_t Engine::State::slabs_in_use(const Run& run) const {
  const std::uint32_t held = cache.pool().shape().slabs_for_pages(run.sequence.pages()) + 1;
  return run.prefilling() ? std::max(held, slabs_to_begin(run)) : held;
}

bool Engine::State::fits(std::uint32_t slabs) const {
  std::uint64_t used = slabs;
  for (const auto& run : running) used += slabs_in_use(*run);
  return used <= cache.pool().slabs_total();
}

void Engine::State::admit() {
  resume();
  while (waiting.size() > 0 && running.size() < options.sequences_max) {
    Run& next = waiting.next();
    if (!suspended.empty() && suspended.front()->request.priority >= next.request.priority) return;
    if (!running.empty() && !fits(slabs_to_begin(next))) return;
    next.turn = begun++;
    insert(running, waiting.take());
    begin(next);
  }
}

void Engine::State::resume() {
  while (!suspended.empty() && running.size() < options.sequences_max) {
    Run& next = *suspended.front();
    const std::uint32_t slabs =
        next.spilled ? cache.pool().shape().slabs_for_pages(next.spilled->pages()) : slabs_to_begin(next);
    if (!running.empty() && !fits(slabs + kResumeMargin)) return;
    if (!cache.make_room(slabs)) cache.drain(model.executor());
    static_cast<void>(cache.make_room(slabs));
    Status status = next.spilled ? next.spilled->read(next.sequence) : fetch(next);
    if (!status && status.error().code == ErrorCode::kFull && !running.empty()) return;
    ++stats.resumed;
    insert(running, std::move(suspended.front()));
    suspended.erase(suspended.begin());
    next.spilled.reset();
    if (status) continue;
    if (!can_compute_again(next)) {
      finish(next, StopReason::kError, status.error());
    } else {
      ++stats.computed_again;
      next.sequence.clear();
      next.computed_from = 0;
    }
  }
}

// What it drew depends on nothing but exact pages.
bool Engine::State::can_compute_again(const Run& run) const {
  return !run.budget && !run.sequence.lossy() && !run.response.lossy;
}

// The last of the runs after `needy` that can makes room; false when there is none.
bool Engine::State::preempt(const Run& needy) {
  for (std::size_t i = running.size(); i-- > 0 && running[i].get() != &needy;) {
    Run& run = *running[i];
    if (run.over || run.sequence.pages() == 0 || run.sequence.has_strata()) continue;
    if (!run.retrieval.ensure_all(model.executor())) continue;
    make_way(run);
    return true;
  }
  return false;
}

// The run leaves the pool until there is room again. The pages of one that is alone are what the pool cannot hold.
void Engine::State::make_way(Run& run) {
  const bool alone = std::ranges::all_of(
      running, [&run](const auto& each) { return each.get() == &run || each->over || each->sequence.pages() == 0; });
  Status loaded = run.retrieval.ensure_all(model.executor());
  if (alone || run.sequence.has_strata() || !loaded) {
    return finish(run, StopReason::kError,
                  Error{ErrorCode::kFull, "the page pool ran out while the request was under way: enlarge the pool"});
  }
  auto spilled = SpilledSequence::write(run.sequence, cache.tiers(), name_of(run));
  if (!spilled && !can_compute_again(run)) return finish(run, StopReason::kError, spilled.error());
  ++stats.preempted;
  if (spilled) {
    run.spilled.emplace(std::move(*spilled));
  } else {
    ++stats.computed_again;
    run.computed_from = 0;
  }
  run.retrieval = Retrieval();
  run.sequence.clear();
  const auto place = std::ranges::find(running, &run, [](const auto& each) { return each.get(); });
  insert(suspended, std::move(*place));
  running.erase(place);
}

Hash128 Engine::State::name_of(const Run& run) const {
  return Hasher().add("spilled").add(nonce).add(run.id).add(stats.preempted).finish();
}

}  // namespace shale
