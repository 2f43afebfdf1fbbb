#include <algorithm>
#include <utility>

#include "cache/cache_state.h"
#include "cache/stored_observations.h"
#include "core/stopwatch.h"
#include "scoring/scorer.h"

namespace shale {

EntryKey Cache::key_of(const EntryKey& parent, std::span<const std::int32_t> tokens) const {
  return entry_key(state_->fingerprint, parent, tokens);
}

// Where the new entry goes, after everybody else made room for it.
Configuration Cache::State::place(Entry& entry) {
  const Stopwatch planning(clock, stats.planning_seconds);
  const EntryPin source(entry);  // its pages are at hand: every configuration can be made
  Planned& own = planned[entry.key];
  own.placed = {};
  catch_up();
  revise(entry, false);
  note_in_pool(entry, share_in_pool(entry));
  placement->place(*own.slot);
  return candidates->configuration(placement->placed(*own.slot));
}

EntryKey Cache::store(NewEntry new_entry, const Sequence& sequence) {
  State& s = *state_;
  const EntryKey key = key_of(new_entry.parent, new_entry.tokens);
  const auto tokens = static_cast<std::uint32_t>(new_entry.tokens.size());
  const bool known = s.index.find(key) != nullptr;
  if (sequence.lossy() || (!known && tokens < s.options.entry_tokens_min)) return key;

  Entry& entry = s.index.add(key, new_entry.parent, new_entry.first_position, new_entry.tokens);
  if (!known) {
    entry.frequency = entry.accesses_here = Frequency(s.options.frequency_half_life_s);
    entry.access(s.clock.now_s());
  }
  if (new_entry.recompute_s > 0) entry.recompute_s = new_entry.recompute_s;
  if (!new_entry.label.empty()) entry.label = new_entry.label;

  // A forced placement stands.
  std::vector<CopyTarget> targets;
  Configuration& placed = s.planned[key].placed;
  bool base_fits = true;
  if (new_entry.placed_as) {
    s.candidates->know(new_entry.placed_as->method);
    placed = *new_entry.placed_as;
    placed.keep = placed.method.scorer.empty() ? 1.0 : *std::ranges::lower_bound(kKeepGrid, std::min(placed.keep, 1.0));
    placed.tier = std::min<std::uint32_t>(placed.tier, s.lowest());
  } else if (!known || placed.tier == kDropped) {
    placed = s.place(entry);
    base_fits = s.keeps_everything() || s.placement->entry(*s.planned[key].slot).full_copy_bytes > 0;
  }
  entry.note_change();
  if (placed.tier != kDropped && !entry.find(placed.method, placed.tier)) {
    targets.push_back({placed.method, placed.keep, placed.tier});
  }
  // The base: where the planner keeps nothing (the baseline `prefill`), there is none either, nor where it has no room
  // beside what is placed.
  const bool is_base = placed.method.is_full() && placed.tier == s.lowest();
  if (placed.tier != kDropped && !is_base && base_fits && !entry.full_copy())
    targets.push_back({Method::full(), 1, s.lowest()});
  const bool full_stays = entry.full_copy() && !new_entry.observations.empty();
  if (targets.empty() && !full_stays) {
    s.forget_if_gone(entry);
    return key;
  }
  if (full_stays) s.jobs.push_back(make_observe_job(*s.context, entry, new_entry.observations));
  if (targets.empty()) return key;

  Sequence held = sequence.fork();
  held.truncate(new_entry.first_position + tokens);
  s.jobs.push_back(make_store_job(*s.context, entry, std::move(held), new_entry.first_position,
                                  std::move(new_entry.observations), std::move(targets)));
  return key;
}

Result<ScorerNeeds> Cache::State::needs_of(const Method& method) const {
  for (std::uint32_t stratum = 0; stratum < kKeepGrid.size(); ++stratum) {
    SHALE_ASSIGN(const auto quantizer, make_quantizer(method.quantizer_of(stratum), options.tables));
    if (quantizer->needs_tables()) {
      return fail(ErrorCode::kInvalidArgument, "{} needs tables of the model", quantizer->name());
    }
  }
  if (method.scorer.empty()) return ScorerNeeds{};
  SHALE_ASSIGN(const auto scorer, make_scorer(method.scorer, options.scorers));
  return scorer->needs();
}

const ScorerNeeds& Cache::needs() const { return state_->needs; }
Result<ScorerNeeds> Cache::needs(const Method& method) const { return state_->needs_of(method); }

std::string Cache::missing(const ScorerNeeds& needs, std::uint32_t tokens, const Observations& observations) const {
  return missing_needs(needs, tokens, observations, state_->options.model);
}

StoredObservations Cache::stored_observations(const EntryKey& key) {
  State& s = *state_;
  StoredObservations observations;
  const Entry* entry = s.index.find(key);
  const StoredObject* full = entry ? entry->full_copy() : nullptr;
  if (!full || s.is_late(full->tier)) return observations;
  observations.read_ = s.tiers[full->tier]->read({full->name(), kObservationsPart});
  observations.manifest_ = full->manifest;
  observations.stats_ = &s.stats;
  observations.clock_ = &s.clock;
  observations.begun_s_ = s.clock.now_s();
  return observations;
}

Result<ObjectBytes> Cache::compress(const NewEntry& entry, const Method& method, const Sequence& from,
                                    Executor& executor) {
  State& s = *state_;
  const std::uint32_t page_tokens = s.pool.shape().page_tokens;
  std::vector<SlabId> slabs = from.slabs(entry.first_position + static_cast<std::uint32_t>(entry.tokens.size()));
  slabs.erase(slabs.begin(), slabs.begin() + std::min<std::size_t>(slabs.size(), entry.first_position / page_tokens));
  Manifest identity;
  identity.key = key_of(entry.parent, entry.tokens);
  identity.parent = entry.parent;
  identity.fingerprint = s.fingerprint;
  identity.shape = s.pool.shape();
  identity.first_position = entry.first_position;
  identity.tokens = entry.tokens;
  identity.method = method;
  SHALE_ASSIGN(ObjectEncoder encoder,
               ObjectEncoder::start(s.pool, std::move(slabs), entry.first_position % page_tokens, std::move(identity),
                                    s.options.scorers, entry.observations, s.options.model, s.options.tables));
  while (encoder.step(executor)) {
  }
  const auto encoded = std::make_shared<const ObjectEncoder::Encoded>(encoder.finish());
  return object_bytes(encoded, static_cast<std::uint32_t>(encoded->manifest.strata_tokens.size()));
}

Status Cache::decompress(const ObjectBytes& object, double keep, Sequence& into, Executor& executor) {
  State& s = *state_;
  const Manifest& manifest = *object.manifest;
  SHALE_ASSIGN(ObjectDecoder decoder,
               s.start_decoder(manifest, keep, object.bits, static_cast<std::uint32_t>(manifest.tokens.size()), into));
  for (std::size_t i = 0; i < decoder.chunks().size(); ++i) {
    SHALE_TRY(decoder.decode(decoder.chunks()[i], object.chunks[i]->bytes(), executor));
  }
  return {};
}

}  // namespace shale
