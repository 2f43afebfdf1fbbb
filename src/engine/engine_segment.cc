#include <algorithm>
#include <utility>

#include "engine/engine_state.h"
#include "engine/repetition.h"

namespace shale {

EntryKey Engine::State::parent_of(const Run& run, std::size_t segment) const {
  EntryKey key;
  for (std::size_t i = 0; i < segment; ++i) {
    key = cache.key_of(key, run.request.segments[i].tokens);
  }
  return key;
}

Cache::NewEntry Engine::State::entry_of(Run& run, std::size_t segment) const {
  Cache::NewEntry entry;
  entry.parent = parent_of(run, segment);
  entry.first_position = segment == 0 ? 0 : run.segment_end[segment - 1];
  entry.tokens = run.request.segments[segment].tokens;
  entry.observations = std::move(run.segment_observations[segment]);
  if (run.computed_from <= entry.first_position) entry.recompute_s = run.segment_seconds[segment];
  entry.label = run.request.segments[segment].label;
  return entry;
}

Status Engine::State::end_segment(Run& run, std::size_t segment) {
  if (run.request.demand.named() && run.request.segments[segment].store && !run.sequence.lossy()) {
    return compress_segment(run, segment);
  }
  return {};
}

// Gathers what the request's method reads of a segment whose exact pages are in place: what was seen while computing
// it, what was stored with it, and what the model can be asked for now. False where the segment has to be computed
// again for the rest.
Result<bool> Engine::State::observe_segment(const Run& run, Cache::NewEntry& entry) {
  SHALE_ASSIGN(const ScorerNeeds needs, cache.needs(*run.request.demand.method));
  ScorerNeeds of_computing = needs;
  of_computing.repeat_attention = false;
  const auto tokens = static_cast<std::uint32_t>(entry.tokens.size());
  const auto lacks = [&](const ScorerNeeds& some) { return !cache.missing(some, tokens, entry.observations).empty(); };
  if (lacks(needs)) entry.observations.merge(cache.stored_observations(cache.key_of(entry.parent, entry.tokens)));
  if (lacks(of_computing)) return run.computed_from <= entry.first_position;
  if (lacks(needs)) {
    SHALE_ASSIGN(Observations repeated,
                 observe_repetition(model, tokenizer, run.sequence, entry.tokens, options.chunk_tokens));
    entry.observations.merge(std::move(repeated));
  }
  return true;
}

void Engine::State::compute_again(Run& run) {
  run.retrieval = Retrieval();
  run.sequence.clear();
  run.computed_from = 0;
  run.response.cached = CachedTokens(cache.tiers());
  run.response.sources.clear();
}

// The method that the request names, applied to a segment that is exact so far; what follows attends to the result.
Status Engine::State::compress_segment(Run& run, std::size_t segment) {
  const Demand& demand = run.request.demand;
  SHALE_TRY(run.retrieval.ensure_all(model.executor()));
  Cache::NewEntry entry = entry_of(run, segment);
  SHALE_ASSIGN(const bool observed, observe_segment(run, entry));
  if (!observed) {
    compute_again(run);
    return {};
  }
  SHALE_ASSIGN(const ObjectBytes object, cache.compress(entry, *demand.method, run.sequence, model.executor()));
  Sequence compressed(cache.pool());
  if (entry.first_position > 0) {
    compressed.adopt_prefix(run.sequence.slabs(entry.first_position), entry.first_position);
  }
  SHALE_TRY(cache.decompress(object, demand.keep, compressed, model.executor()));

  // Kept where the next process finds it.
  const auto& tiers = cache.tiers();
  const auto kept = std::ranges::find_if(tiers, [](const auto& tier) { return tier->persistent(); });
  entry.placed_as = Configuration{.method = *demand.method,
                                  .keep = demand.keep,
                                  .tier = kept == tiers.end() ? 0 : static_cast<std::uint32_t>(kept - tiers.begin())};
  cache.remember(std::span(run.prompt).first(run.sequence.length()), run.sequence);
  cache.store(std::move(entry), run.sequence);
  run.sequence = std::move(compressed);
  run.response.lossy = true;
  return {};
}

// Nobody waits for a first token any more: the prompt's pages are shared, its segments queued for storing.
void Engine::State::first_token(Run& run) {
  run.retrieval = Retrieval();
  if (!run.sequence.lossy()) {
    if (run.request.remember) cache.remember(run.prompt, run.sequence);
    for (std::size_t segment = 0; segment < run.request.segments.size(); ++segment) {
      const bool computed_here = run.computed_from < run.segment_end[segment];
      if (run.request.segments[segment].store && computed_here) cache.store(entry_of(run, segment), run.sequence);
    }
  }
  cut_prompt(run);
  return_windows(run);
}

}  // namespace shale
