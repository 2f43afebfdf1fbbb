#include "engine/storing.h"

#include <algorithm>
#include <utility>

#include "engine/repetition.h"

namespace shale {

EntryKey Storing::parent_of(const Run& run, std::size_t segment) const {
  EntryKey key;
  for (std::size_t i = 0; i < segment; ++i) key = cache_.key_of(key, run.request.segments[i].tokens);
  return key;
}

EntryKey Storing::key_of(const Run& run, std::size_t segment) const {
  return cache_.key_of(parent_of(run, segment), run.request.segments[segment].tokens);
}

Cache::NewEntry Storing::entry_of(Run& run, std::size_t segment) const {
  Cache::NewEntry entry;
  entry.parent = parent_of(run, segment);
  entry.first_position = segment == 0 ? 0 : run.segment_end[segment - 1];
  entry.tokens = run.request.segments[segment].tokens;
  entry.observations = std::move(run.segment_observations[segment]);
  if (run.computed_from <= entry.first_position) entry.recompute_s = run.segment_seconds[segment];
  entry.label = run.request.segments[segment].label;
  return entry;
}

Capture* Storing::capture_for(Run& run) const {
  if (!run.prefilling_prompt() || run.sequence.lossy()) return nullptr;
  const std::size_t segment = run.segment_at(run.sequence.length());
  if (!run.request.segments[segment].store) return nullptr;
  std::unique_ptr<Capture>& capture = run.captures[segment];
  if (!capture) {
    const auto tokens = static_cast<std::uint32_t>(run.request.segments[segment].tokens.size());
    capture = std::make_unique<Capture>(model_.info(), run.segment_end[segment] - tokens, tokens, run.needs);
  }
  return capture.get();
}

Status Storing::segment_computed(Run& run, std::size_t segment) {
  if (const auto capture = std::exchange(run.captures[segment], nullptr)) {
    run.segment_observations[segment] = capture->take();
  }
  const bool named = run.request.demand.named() && run.request.segments[segment].store;
  return named && !run.sequence.lossy() ? compress(run, segment) : Status();
}

// Gathers what the request's method reads of a segment whose exact pages are in place: what was seen while computing
// it, what was stored with it, and what the model can be asked for now. False where the segment has to be computed
// again for the rest.
Result<bool> Storing::observe(Run& run, Cache::NewEntry& entry) {
  SHALE_ASSIGN(const ScorerNeeds needs, cache_.needs(*run.request.demand.method));
  ScorerNeeds of_computing = needs;
  of_computing.repeat_attention = false;
  const auto tokens = static_cast<std::uint32_t>(entry.tokens.size());
  const auto lacks = [&](const ScorerNeeds& some) { return !cache_.missing(some, tokens, entry.observations).empty(); };
  if (lacks(needs)) entry.observations.merge(run.stored_observations.take());
  if (lacks(of_computing)) return run.computed_from <= entry.first_position;
  if (lacks(needs)) {
    SHALE_ASSIGN(Observations repeated,
                 observe_repetition(model_, tokenizer_, run.sequence, entry.tokens, chunk_tokens_));
    entry.observations.merge(std::move(repeated));
  }
  return true;
}

Status Storing::compress(Run& run, std::size_t segment) {
  const Demand& demand = run.request.demand;
  Cache::NewEntry entry = entry_of(run, segment);
  SHALE_ASSIGN(const bool observed, observe(run, entry));
  if (!observed) {
    run.begin_again();
    return {};
  }
  SHALE_ASSIGN(const ObjectBytes object, cache_.compress(entry, *demand.method, run.sequence, model_.executor()));
  Sequence compressed(cache_.pool());
  if (entry.first_position > 0) {
    compressed.adopt_prefix(run.sequence.slabs(entry.first_position), entry.first_position);
  }
  SHALE_TRY(cache_.decompress(object, demand.keep, compressed, model_.executor()));

  // Kept where the next process finds it.
  const auto& tiers = cache_.tiers();
  const auto kept = std::ranges::find_if(tiers, [](const auto& tier) { return tier->persistent(); });
  entry.placed_as = Configuration{.method = *demand.method,
                                  .keep = demand.keep,
                                  .tier = kept == tiers.end() ? 0 : static_cast<std::uint32_t>(kept - tiers.begin())};
  cache_.remember(std::span(run.prompt).first(run.sequence.length()), run.sequence);
  cache_.store(std::move(entry), run.sequence);
  run.sequence = std::move(compressed);
  run.response.lossy = true;
  return {};
}

void Storing::prompt_done(Run& run) {
  if (run.sequence.lossy()) return;
  if (run.request.remember) cache_.remember(run.prompt, run.sequence);
  for (std::size_t segment = 0; segment < run.request.segments.size(); ++segment) {
    const bool computed_here = run.computed_from < run.segment_end[segment];
    if (run.request.segments[segment].store && computed_here) cache_.store(entry_of(run, segment), run.sequence);
  }
}

void Storing::answer_done(Run& run) {
  const bool exact = !run.sequence.lossy() && !run.sequence.parted();
  if (!exact || run.sequence.length() == 0 || run.prefilling()) return;
  // The last token drawn was never computed: the sequence ends before it.
  std::vector<Token> tokens = run.prompt;
  tokens.insert(tokens.end(), run.drawn.begin(), run.drawn.end());
  tokens.resize(run.sequence.length());
  if (run.request.remember) cache_.remember(tokens, run.sequence);
  if (!run.request.store_answer || run.drawn.empty()) return;
  // The last segment, grown by the answer.
  Cache::NewEntry turn = entry_of(run, run.request.segments.size() - 1);
  turn.tokens.assign(tokens.begin() + turn.first_position, tokens.end());
  turn.observations = {};
  turn.recompute_s = 0;
  cache_.store(std::move(turn), run.sequence);
}

}  // namespace shale
