// Repetitions: forward steps in which the model repeats a span (spans/span_repetition.h). Requests that wait for one
// come before what is merely to be stored; those who decode wait no longer than for a chunk of a prompt.
#include <algorithm>
#include <utility>

#include "engine/engine_state.h"

namespace shale {

RequestState* Engine::State::waits_for_repetition() const {
  const auto& running = scheduler.running();
  const auto waits = std::ranges::find_if(running, [](const auto& run) { return !run->over && run->repetition; });
  return waits == running.end() ? nullptr : waits->get();
}

// Whoever waits for it takes others' pages, as for its prompt.
bool Engine::State::ensure_free(RequestState* run, std::uint32_t blocks_needed) {
  if (!run) return cache.evict_until_free(blocks_needed);
  while (!blocks.ensure_free(blocks_needed)) {
    if (!preempt_one(*run)) return false;
  }
  return true;
}

bool Engine::State::step_repetition() {
  RequestState* const run = waits_for_repetition();
  SpanRepetition* const next = run ? run->repetition.get() : storing.repetition();
  const bool had_last_turn = std::exchange(repeated, false);
  if (!next || (parked && !run)) return false;
  const auto& running = scheduler.running();
  const auto count = [&](bool prefilling) {
    return static_cast<std::uint32_t>(std::ranges::count_if(running, [prefilling](const auto& each) {
      return !each->over && !each->loading() && each->prefilling() == prefilling;
    }));
  };
  const bool others_prefill = count(true) > 0;
  if (had_last_turn && others_prefill) return false;  // they have a step of their own in between
  const std::uint32_t decoding = count(false), depth = next->depth();
  const bool waited_for = run || others_prefill || scheduler.next();  // in whole chunks then, as prompts are computed
  const std::uint32_t room = decoding > 0 ? batches.tokens_between(decoding, depth)
                             : waited_for ? options.chunk_tokens
                                          : idle_step.tokens();
  const std::uint32_t tokens = std::min(next->left(), room);
  if (!ensure_free(run, cache.pool().shape().pages_for(tokens) + 1)) {
    if (run) {
      preempt(*run);
      return true;
    }
    if (!running.empty()) return false;  // they end, and give theirs back
  }
  repeated = true;
  unpark();
  const double begun_s = clock.now_s();
  Status status = next->step(model, tokens);
  if (status) {
    const double seconds = clock.now_s() - begun_s;
    ++stats.steps;
    if (decoding > 0) batches.took_between(tokens, depth, seconds);
    if (decoding == 0 && !waited_for) idle_step.took(tokens, seconds);
    if (!next->over()) return true;
  }
  if (!run) {
    storing.store_repeated();
    return true;
  }
  if (status) status = storing.compress_repeated(*run);
  if (!status) finish(*run, StopReason::kError, std::move(status).error());
  return true;
}

}  // namespace shale
