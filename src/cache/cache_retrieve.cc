#include <algorithm>
#include <cassert>
#include <utility>

#include "cache/cache_state.h"

namespace shale {

namespace {

bool serves(const StoredObject& object, const Demand& demand) {
  return demand.named() && object.serves(*demand.method, demand.keep);
}

}  // namespace

// The copy that serves this request best, by the planner's own measure; null when none is acceptable. A hit that ends
// inside an entry takes exact copies only: over a lossy beginning, all that is computed next would be lossy too, and be
// kept from being stored.
const StoredObject* Cache::State::choose_copy(const EntryIndex::Link& link, const Demand& demand) const {
  const Entry& entry = *link.entry;
  const bool whole = link.matched == entry.tokens.size();
  if (demand.named() && whole) {
    const auto named =
        std::ranges::find_if(entry.objects, [&](const StoredObject& object) { return serves(object, demand); });
    return named == entry.objects.end() ? entry.full_copy() : &*named;
  }
  const StoredObject* best = nullptr;
  double best_worth = 0;
  for (const StoredObject& object : entry.objects) {
    if ((demand.exact || !whole) && !object.method().is_full()) continue;
    const std::optional<double> known = quality(entry.key, object.method(), object.keep());
    if (!known) continue;  // never measured: no surprises
    const auto tokens = static_cast<std::uint32_t>(entry.tokens.size());
    const double worth =
        options.alpha * *known - candidates->load_s(object.method(), object.keep(), tokens, object.tier);
    if (!best || worth > best_worth) {
      best = &object;
      best_worth = worth;
    }
  }
  return best;
}

// Evicts from the prefix tree when the pool has no room.
Result<ObjectDecoder> Cache::State::start_decoder(const Manifest& manifest, double keep, Bits bits,
                                                  std::uint32_t tokens, Sequence& into) {
  const auto start = [&] {
    return ObjectDecoder::start(manifest, keep, tokens, into, bits, options.model.windows, options.tables);
  };
  auto decoder = start();
  const std::uint32_t slabs = pool.shape().pages_for(static_cast<std::uint32_t>(manifest.tokens.size())) + 1;
  if (decoder || decoder.error().code != ErrorCode::kFull || !tree->make_room(slabs)) return decoder;
  return start();
}

// Entries from the first that the pool does not cover, as long as each loads faster than it computes.
Cache::State::Sources Cache::State::choose_sources(std::span<const std::int32_t> wanted, const Demand& demand) {
  const std::vector<EntryIndex::Link> chain = index.match(wanted);
  const double now_s = clock.now_s();
  for (const EntryIndex::Link& link : chain) {
    if (2 * std::size_t{link.matched} >= link.entry->tokens.size()) link.entry->access(now_s);
  }

  // A copy that a request names comes before exact pages; without one, the engine makes it from exact pages.
  const StoredObject* first = chain.empty() || !demand.named() ? nullptr : choose_copy(chain.front(), demand);
  const bool named = first && serves(*first, demand);
  const std::uint32_t in_pool = named ? 0 : tree->match(wanted);

  Sources sources{.pool_tokens = in_pool, .loads = {}};
  std::uint32_t covered = in_pool;
  for (const EntryIndex::Link& link : chain) {
    const std::uint32_t end = link.entry->first_position + link.matched;
    if (end <= in_pool) continue;
    const StoredObject* object = choose_copy(link, demand);
    if (!object) break;
    // What to read of a copy: what a request named, else all that is stored.
    const bool as_named = serves(*object, demand);
    const double keep = as_named ? demand.keep : object->keep();
    const Bits bits = as_named ? *object->serves(*demand.method, keep) : object->bits;
    const auto stored_tokens = static_cast<std::uint32_t>(link.entry->tokens.size());
    const double load_s = candidates->load_s(object->manifest->method_at(bits), keep, stored_tokens, object->tier);
    const bool pays = named || options.load_always || load_s < costs.prefill_s(end - covered, covered);
    if (!pays) break;
    sources.loads.push_back({link, object, keep, bits});
    covered = end;
  }
  // An entry is loaded from its first token on.
  if (!sources.loads.empty()) sources.pool_tokens = sources.loads.front().link.entry->first_position;
  return sources;
}

bool Cache::State::start_load(const LoadChoice& choice, Sequence& sequence, Retrieval& retrieval) {
  const Manifest& manifest = *choice.object->manifest;
  auto decoder = start_decoder(manifest, choice.keep, choice.bits, choice.link.matched, sequence);
  if (!decoder) return false;
  Retrieval::Load load{.pin = EntryPin(*choice.link.entry),
                       .object = *choice.object,
                       .method = manifest.method_at(choice.bits),
                       .decoder = std::move(*decoder),
                       .reads = {},
                       .loaded = std::vector<bool>(manifest.layer_groups())};
  Tier& tier = *tiers[choice.object->tier];
  SourceUsed source{.where = tier.name(),
                    .method = manifest.method_at(choice.bits),
                    .keep = manifest.strata_tokens.size() <= 1 ? 1 : kKeepGrid[load.decoder.strata() - 1],
                    .tokens = choice.link.matched,
                    .key = manifest.key};
  const Hash128 name = choice.object->name();
  choice.link.entry->being_read();  // forgets reads that have ended
  // The group that computation needs first is asked for first.
  load.reads.resize(manifest.chunks.size());
  for (std::uint32_t group = 0; group < manifest.layer_groups(); ++group) {
    for (const std::uint32_t chunk : load.decoder.chunks()) {
      if (manifest.group_of(manifest.chunks[chunk]) != group) continue;
      load.reads[chunk] = tier.read({name, chunk}, manifest.chunks[chunk].bytes);
      choice.link.entry->reads.emplace_back(load.reads[chunk]);
      source.bytes += manifest.chunks[chunk].bytes;
    }
  }
  retrieval.tokens_ += choice.link.matched;
  retrieval.lossy_ = retrieval.lossy_ || !manifest.method.is_full();
  retrieval.sources_.push_back(std::move(source));
  retrieval.loads_.push_back(std::move(load));
  return true;
}

Retrieval Cache::retrieve(std::span<const std::int32_t> tokens, const Demand& demand, Sequence& sequence) {
  assert(sequence.length() == 0);
  State& s = *state_;
  Retrieval retrieval;
  retrieval.costs_ = &s.costs;
  retrieval.clock_ = &s.clock;
  ++s.stats.lookups;
  if (tokens.size() < 2) return retrieval;

  const auto wanted = tokens.first(tokens.size() - 1);
  const State::Sources sources = s.choose_sources(wanted, demand);
  s.tree->adopt(wanted.first(sources.pool_tokens), sequence, s.clock.now_s());  // of none, too: the request begins
  if (sources.pool_tokens > 0) {
    retrieval.tokens_ = sources.pool_tokens;
    SourceUsed& pool = retrieval.sources_.emplace_back();
    pool.where = kPoolSource;
    pool.tokens = sources.pool_tokens;
  }
  for (const State::LoadChoice& choice : sources.loads) {
    if (!s.start_load(choice, sequence, retrieval)) break;
  }
  for (const SourceUsed& source : retrieval.sources_) s.stats.cached.add(source.where, source.tokens);
  s.stats.hits += retrieval.tokens_ > 0;
  s.plan_due = true;
  return retrieval;
}

void Cache::report_failure(Retrieval retrieval) {
  if (!retrieval.failure()) return;
  const Retrieval::Failure failure = *retrieval.failure();
  retrieval = Retrieval();
  State& s = *state_;
  // Forgotten by this process in any case; what only could not be read now may be sound, and others may read it.
  if (failure.error.code == ErrorCode::kCorrupt) {
    ++s.stats.corrupt_objects;
    if (!remove_object(*s.tiers[failure.tier], failure.object)) ++s.stats.stuck_objects;
  } else {
    ++s.stats.failed_reads;
  }
  if (Entry* entry = s.index.find(failure.key)) {
    entry->forget(failure.object, failure.tier);
    s.forget_if_gone(*entry);
  }
  s.plan_due = true;
}

void Cache::remember(std::span<const std::int32_t> tokens, const Sequence& sequence) {
  assert(!sequence.lossy());
  // Without room for the bookkeeping the pages are simply not shared.
  static_cast<void>(state_->tree->insert(tokens, sequence));
}

std::uint32_t Cache::pool_prefix(std::span<const std::int32_t> tokens) const { return state_->tree->match(tokens); }

bool Cache::make_room(std::uint32_t slabs) { return state_->tree->make_room(slabs); }

std::uint32_t Cache::slabs_evictable() const { return state_->tree->evictable(); }

}  // namespace shale
