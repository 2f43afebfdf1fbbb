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
    const StoredObject* object = named == entry.objects.end() ? entry.full_copy() : &*named;
    return object && is_late(object->tier) ? nullptr : object;
  }
  const StoredObject* best = nullptr;
  double best_worth = 0;
  for (const StoredObject& object : entry.objects) {
    if ((demand.exact || !whole) && !object.method().is_full()) continue;
    if (is_late(object.tier)) continue;
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

// Until the read that it owed is there, or it has had time to come back.
bool Cache::State::is_late(std::uint32_t tier) const {
  const LateTier& late = late_tiers[tier];
  if (clock.now_s() >= late.until_s) return false;
  const auto read = late.read.lock();
  return read && !read->ready();
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

// Entries from the first that the pool does not cover, as long as each is there before it would be computed, by its
// turn behind what is being read and what is being computed.
Cache::State::Sources Cache::State::choose_sources(std::span<const std::int32_t> wanted, const Demand& demand,
                                                   const Backlog& backlog) {
  const std::vector<EntryIndex::Link> chain = index.match(wanted);
  const double now_s = clock.now_s();
  for (const EntryIndex::Link& link : chain) {
    if (2 * std::size_t{link.matched} >= link.entry->tokens.size()) touch(*link.entry, now_s);
  }

  // A copy that a request names comes before exact pages; without one, the engine makes it from exact pages.
  const StoredObject* first = chain.empty() || !demand.named() ? nullptr : choose_copy(chain.front(), demand);
  const bool named = first && serves(*first, demand);
  const std::uint32_t in_pool = named ? 0 : tree->match(wanted);
  if (!named) note_in_pool(chain, in_pool);

  Sources sources{.pool_tokens = in_pool, .loads = {}};
  std::uint32_t covered = in_pool;
  std::vector<std::uint64_t> asked_bytes(tiers.size());
  for (const EntryIndex::Link& link : chain) {
    const std::uint32_t end = link.entry->first_position + link.matched;
    if (end <= in_pool) continue;
    if (backlog.pool_only) break;
    const StoredObject* object = choose_copy(link, demand);
    if (!object) break;
    // What to read of a copy: what a request named, else all that is stored.
    const bool as_named = serves(*object, demand);
    const double keep = as_named ? demand.keep : object->keep();
    const Bits bits = as_named ? *object->serves(*demand.method, keep) : object->bits;
    const auto stored_tokens = static_cast<std::uint32_t>(link.entry->tokens.size());
    const Method method = object->manifest->method_at(bits);
    std::uint64_t& asked = asked_bytes[object->tier];
    const std::uint64_t bytes = candidates->bytes(method, keep, stored_tokens);
    const double arrives_s = std::max(sources.arrives_s, tiers[object->tier]->read_eta_s(asked + bytes)) +
                             costs.decode_s(method.quantizer, bytes);
    const double computed_s = std::max(sources.arrives_s, backlog.compute_s) + costs.prefill_s(end - covered, covered);
    const bool pays = named || options.load_always || arrives_s < computed_s;
    if (!pays) break;
    sources.loads.push_back({link, object, keep, bits});
    sources.arrives_s = arrives_s;
    asked += bytes;
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
                       .missing = std::vector<std::uint32_t>(manifest.layer_groups())};
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
      ++load.missing[group];
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

Retrieval Cache::retrieve(std::span<const std::int32_t> tokens, const Demand& demand, Sequence& sequence,
                          const Backlog& backlog) {
  assert(sequence.length() == 0);
  State& s = *state_;
  Retrieval retrieval;
  retrieval.costs_ = &s.costs;
  retrieval.clock_ = &s.clock;
  ++s.stats.lookups;
  if (tokens.size() < 2) return retrieval;

  const auto wanted = tokens.first(tokens.size() - 1);
  const State::Sources sources = s.choose_sources(wanted, demand, backlog);
  retrieval.begun_s_ = s.clock.now_s();
  retrieval.expected_s_ = sources.arrives_s;
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

void Cache::give_up(Retrieval retrieval) {
  constexpr double kLeftAloneS = 10;
  State& s = *state_;
  ++s.stats.late_loads;
  for (const Retrieval::Load& load : retrieval.loads_) {
    const auto owed = std::ranges::find_if(load.reads, [](const auto& read) { return read && !read->ready(); });
    if (owed != load.reads.end()) s.late_tiers[load.object.tier] = {*owed, s.clock.now_s() + kLeftAloneS};
  }
}

void Cache::remember(std::span<const std::int32_t> tokens, const Sequence& sequence) {
  assert(!sequence.lossy());
  // Without room for the bookkeeping the pages are simply not shared.
  if (state_->tree->insert(tokens, sequence)) {
    state_->note_in_pool(state_->index.match(tokens), static_cast<std::uint32_t>(tokens.size()));
  }
}

std::uint32_t Cache::pool_prefix(std::span<const std::int32_t> tokens) const { return state_->tree->match(tokens); }

std::uint32_t Cache::pool_slabs_in_use(std::span<const std::int32_t> tokens) const {
  return state_->tree->in_use(tokens);
}

// What the pool gives up is worth more on a tier.
bool Cache::make_room(std::uint32_t slabs) {
  const bool made = state_->tree->make_room(slabs);
  state_->plan_due = state_->plan_due || state_->tree->evictions() != state_->evictions_looked_at;
  return made;
}

std::uint32_t Cache::slabs_evictable() const { return state_->tree->evictable(); }

}  // namespace shale
