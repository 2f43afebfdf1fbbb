// Preemption: a run leaves the pool for others, its bytes wait on a tier, and it comes back. Nothing here waits for a
// tier.
#include <algorithm>
#include <utility>

#include "engine/engine_state.h"

namespace shale {
namespace {

constexpr double kOverdueMaxS = 60;  // for the bytes of a preempted run that cannot be computed again

}  // namespace

// What it drew depends on nothing but exact pages.
bool Engine::State::can_compute_again(const RequestState& run) const {
  return !run.budget && !run.sequence.lossy() && !run.response.lossy;
}

// Preempts the last of the runs after `needy` that can be; false when there is none.
bool Engine::State::preempt_one(const RequestState& needy) {
  const auto& running = scheduler.running();
  for (std::size_t i = running.size(); i-- > 0 && running[i].get() != &needy;) {
    RequestState& run = *running[i];
    if (run.over || run.sequence.pages() == 0) continue;
    if (!run.fetching() && run.sequence.has_overlay() && !run.drawn.empty()) continue;
    preempt(run);
    return true;
  }
  return false;
}

// The run leaves the pool until there is room again. The pages of one that is alone are what the pool cannot hold.
void Engine::State::preempt(RequestState& run) {
  unpark(run);
  const bool alone = std::ranges::all_of(scheduler.running(), [&run](const auto& each) {
    return each.get() == &run || each->over || each->sequence.pages() == 0;
  });
  // What has drawn nothing yet can be looked up again.
  const bool only_found =
      run.fetching() || run.sequence.pages() == 0 || (run.sequence.has_overlay() && run.drawn.empty());
  if (alone || (!only_found && run.sequence.has_overlay())) {
    return finish(
        run, StopReason::kError,
        Error{ErrorCode::kFull, "the page pool ran out while the request was running: enlarge the pool (--pool)"});
  }
  ++stats.preempted;
  if (only_found) {
    run.begin_again();
  } else {
    const Hash128 name = Hasher().add("spilled").add(nonce).add(run.id).add(stats.preempted).finish();
    run.spilled = std::make_unique<SpilledSequence>(run.sequence, cache, name);
    run.retrieval = Retrieval();
    run.sequence.clear();
  }
  scheduler.preempt(run);
}

// The bytes of a preempted run; false until they are there and there is room. One whose bytes are lost begins again.
bool Engine::State::bring_back(RequestState& run) {
  run.spilled->recall();
  if (!run.spilled->ready()) return false;
  const std::uint32_t needed = blocks.blocks_to_begin(run);
  static_cast<void>(blocks.ensure_free(needed));
  Status status = run.spilled->restore(run.sequence);
  while (!status && status.error().code == ErrorCode::kFull) {
    if (!scheduler.running().empty()) return false;
    if (!blocks.give_up_one(needed)) break;  // single pages may do
    status = run.spilled->restore(run.sequence);
  }
  let_spilled_go(run);
  if (status) return true;
  if (can_compute_again(run)) {
    ++stats.computed_again;
    run.begin_again();
  } else {
    finish(run, StopReason::kError, std::move(status).error());
  }
  return true;
}

// Goes once nothing is being written any more, and nobody waits for that.
void Engine::State::let_spilled_go(RequestState& run) {
  if (run.spilled && run.spilled->poll()) let_go.push_back(std::move(run.spilled));
  run.spilled = nullptr;
}

bool Engine::State::move_spilled() {
  bool moving = false;
  for (const auto& run : scheduler.preempted()) {
    if (run->over || !run->spilled) continue;
    moving = run->spilled->poll() || moving;
    if (!can_compute_again(*run)) {
      if (run->spilled->overdue_s() > kOverdueMaxS) {
        finish(*run, StopReason::kError,
               Error{ErrorCode::kIo, fmt::format("the request was preempted, and the {} tier has not brought its bytes "
                                                 "back for a minute: send it again, or enlarge the pool (--pool)",
                                                 run->spilled->tier_name())});
      }
      continue;
    }
    // Where no tier has room, computing it again costs no memory meanwhile; where one does not answer, no patience.
    if (!run->spilled->in_memory() && !run->spilled->late()) continue;
    ++stats.computed_again;
    let_spilled_go(*run);
    run->begin_again();
  }
  std::erase_if(let_go, [](const auto& spilled) { return !spilled->poll(); });
  return moving || !let_go.empty();
}

}  // namespace shale
