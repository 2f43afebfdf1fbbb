// Repetitions: forward steps in which the model repeats a span (span_repetition.h). Requests that wait for one come
// before what is merely to be stored; those who decode wait no longer than for a chunk of a prompt.
#include <algorithm>
#include <utility>

#include "engine/engine_state.h"

namespace shale {

RequestState* Engine::State::waits_for_repetition() const {
  const auto& running = scheduler.running();
  const auto waits = std::ranges::find_if(running, [](const auto& run) { return !run->over && run->repetition; });
  return waits == running.end() ? nullptr : waits->get();
}

bool Engine::State::step_repetition() {
  RequestState* const run = waits_for_repetition();
  SpanRepetition* const next = run ? run->repetition.get() : storing.repetition();
  if (!next || (parked && !run)) return false;
  // Others' prompts have every other turn.
  const auto& running = scheduler.running();
  const bool others_prefill = std::ranges::any_of(
      running, [](const auto& each) { return !each->over && !each->loading() && each->prefilling(); });
  if (std::exchange(repeated_last, false) && others_prefill) return false;
  repeated_last = true;
  unpark();
  const auto decoding = static_cast<std::uint32_t>(std::ranges::count_if(
      running, [](const auto& each) { return !each->over && !each->loading() && !each->prefilling(); }));
  const std::uint32_t depth = next->depth();
  const std::uint32_t tokens = std::min(next->left(), decoding > 0      ? batches.tokens_between(decoding, depth)
                                                      : running.empty() ? alone_tokens()
                                                                        : options.chunk_tokens);
  static_cast<void>(blocks.ensure_free(cache.pool().shape().pages_for(tokens) + 1));
  const double begun_s = clock.now_s();
  Status status = next->step(model, tokens);
  const double seconds = clock.now_s() - begun_s;
  if (decoding > 0) batches.took_between(tokens, depth, seconds);
  if (running.empty()) took_alone(tokens, seconds);
  ++stats.steps;
  if (status && !next->over()) return true;
  if (!run) {
    storing.store_repeated();
    return true;
  }
  if (status) status = storing.compress_repeated(*run);
  if (!status) finish(*run, StopReason::kError, std::move(status).error());
  return true;
}

}  // namespace shale
