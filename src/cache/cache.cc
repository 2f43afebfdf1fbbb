#include "cache/cache.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <thread>
#include <unordered_map>
#include <utility>

#include "eviction/policies.h"

namespace shale {

namespace {

constexpr std::size_t kPrefillsRemembered = 32;

// What to read of a copy: what a request named, else all that is stored.
double keep_of(const StoredObject& object, const Demand& demand) {
  return demand.named() && object.method() == *demand.method ? demand.keep : object.keep();
}

}  // namespace

struct Cache::State {
  CacheOptions options;
  Fingerprint fingerprint;
  PagePool& pool;
  std::vector<std::unique_ptr<Tier>> tiers;
  std::unique_ptr<Catalogue> catalogue;
  const Clock& clock;

  EntryIndex index = {};
  CostModel costs = {};
  CacheStats stats = {};
  std::unique_ptr<Planner> planner = {};
  std::optional<Candidates> candidates = {};
  std::unique_ptr<PrefixTree> tree = {};
  std::optional<JobContext> context = {};
  // What each entry's placed copy is, or will be once its jobs are done.
  std::unordered_map<EntryKey, Configuration> planned = {};
  std::deque<std::unique_ptr<Job>> jobs = {};  // in order: what frees room comes before what takes it
  std::deque<PrefillRecord> prefills = {};     // of this process, for the next one
  bool plan_due = false;
  double planned_at_s = 0;

  std::uint32_t lowest() const { return static_cast<std::uint32_t>(tiers.size() - 1); }
  std::optional<double> quality(const EntryKey& key, const Method& method, double keep) const;
  Status scan(std::uint32_t tier);
  void adopt_placements();
  bool has_source(const Entry& entry) const;
  std::vector<const Entry*> planned_entries() const;
  void apply(const Problem& problem, const Plan& plan, std::span<const Entry* const> entries);
  void queue_move(Entry& entry, const Configuration& to);
  void trim_bases(const Problem& problem, std::span<const std::uint32_t> placement,
                  std::span<const Entry* const> entries);
  void forget_if_gone(Entry& entry);
  void count(const SourceUsed& source);
  Result<ObjectDecoder> start_decoder(const Manifest& manifest, double keep, std::uint32_t tokens, Sequence& into);
  const StoredObject* choose_copy(const Entry& entry, const Demand& demand) const;
};

// ---------------------------------------------------------------------------------------------------------------------
// Opening

std::optional<double> Cache::State::quality(const EntryKey& key, const Method& method, double keep) const {
  if (method.is_full()) return 1.0;
  if (!catalogue) return std::nullopt;
  const auto known = catalogue->quality_for(key, method, keep);
  return known ? std::optional(known->quality) : std::nullopt;
}

Status Cache::State::scan(std::uint32_t tier_index) {
  Tier& tier = *tiers[tier_index];
  SHALE_ASSIGN(const std::vector<StoredManifest> found, scan_objects(tier));
  for (const StoredManifest& stored : found) {
    if (stored.error) {
      // On a shared tier, chunks without a manifest may be another process's write under way.
      const bool damaged = stored.error->code == ErrorCode::kCorrupt || stored.error->code == ErrorCode::kNotFound;
      if (!damaged || tier.read_only() || tier.kind() == TierKind::kRemote) continue;
      ++stats.corrupt_objects;
      SHALE_TRY(remove_object(tier, stored.object));
      continue;
    }
    const Manifest& manifest = *stored.manifest;
    if (manifest.fingerprint.hash != fingerprint.hash || manifest.shape != pool.shape()) continue;
    Entry& entry = index.add(manifest.key, manifest.parent, manifest.first_position, manifest.tokens);
    entry.frequency = Frequency(options.frequency_half_life_s);
    entry.objects.push_back({tier_index, stored.manifest, stored.strata});
    candidates->know(manifest.method);
  }
  return {};
}

// The placed copy of each entry found: the fastest that is not merely the base.
void Cache::State::adopt_placements() {
  const double now_s = clock.now_s();
  for (Entry* entry : index.all()) {
    const auto placed = std::ranges::min_element(entry->objects, {}, &StoredObject::tier);
    planned[entry->key] = {placed->method(), placed->keep(), placed->tier};
    entry->frequency.access(now_s);
    if (!catalogue) continue;
    if (const auto record = catalogue->entry(entry->key)) {
      entry->recompute_s = record->recompute_s;
      entry->label = record->label;
      entry->frequency.resume(record->frequency, now_s - record->age_s, record->accesses);
    }
  }
}

Result<std::unique_ptr<Cache>> Cache::open(CacheOptions options, Fingerprint fingerprint, PagePool& pool,
                                           std::vector<std::unique_ptr<Tier>> tiers,
                                           std::unique_ptr<Catalogue> catalogue, const Clock& clock) {
  if (tiers.empty()) return fail(ErrorCode::kInvalidArgument, "a cache needs at least one tier");
  SHALE_ASSIGN(std::unique_ptr<Planner> planner, make_planner(options.planner, options.planner_options));
  SHALE_ASSIGN(std::unique_ptr<EvictionPolicy> policy, make_eviction_policy(options.eviction));
  std::unique_ptr<State> state(new State{.options = std::move(options),
                                         .fingerprint = std::move(fingerprint),
                                         .pool = pool,
                                         .tiers = std::move(tiers),
                                         .catalogue = std::move(catalogue),
                                         .clock = clock});
  State& s = *state;
  s.planner = std::move(planner);
  s.tree = std::make_unique<PrefixTree>(pool, std::move(policy));
  SHALE_ASSIGN(s.candidates, Candidates::create(s.options.methods, pool.shape(), s.tiers, s.costs,
                                                [&s](const EntryKey& key, const Method& method, double keep) {
                                                  return s.quality(key, method, keep);
                                                }));
  s.context.emplace(JobContext{pool, s.tiers, s.fingerprint, s.options.scorers, s.stats});
  if (s.catalogue) {
    if (const auto records = s.catalogue->prefills()) {
      for (const PrefillRecord& record : *records) s.costs.prefill(record.tokens, record.depth, record.seconds);
    }
  }
  for (std::uint32_t tier = 0; tier < s.tiers.size(); ++tier) SHALE_TRY(s.scan(tier));
  s.adopt_placements();
  return std::unique_ptr<Cache>(new Cache(std::move(state)));
}

Cache::Cache(std::unique_ptr<State> state) : state_(std::move(state)) {}

Cache::~Cache() {
  state_->jobs.clear();
  if (!state_->catalogue) return;
  for (const PrefillRecord& record : state_->prefills) static_cast<void>(state_->catalogue->record_prefill(record));
  const double now_s = state_->clock.now_s();
  for (const Entry* entry : std::as_const(state_->index).all()) {
    // Usage counts are advice; a catalogue that cannot be written loses nothing else.
    static_cast<void>(state_->catalogue->record_entry({.key = entry->key,
                                                       .tokens = static_cast<std::uint32_t>(entry->tokens.size()),
                                                       .frequency = entry->frequency.value(now_s),
                                                       .accesses = entry->frequency.count(),
                                                       .age_s = 0,
                                                       .recompute_s = entry->recompute_s,
                                                       .label = entry->label}));
  }
}

const Fingerprint& Cache::fingerprint() const { return state_->fingerprint; }
PagePool& Cache::pool() { return state_->pool; }
std::span<const std::unique_ptr<Tier>> Cache::tiers() const { return state_->tiers; }
Catalogue* Cache::catalogue() { return state_->catalogue.get(); }
const CostModel& Cache::costs() const { return state_->costs; }
EntryIndex& Cache::index() { return state_->index; }
const Candidates& Cache::candidates() const { return *state_->candidates; }
const CacheOptions& Cache::options() const { return state_->options; }
const CacheStats& Cache::stats() const { return state_->stats; }

void Cache::note_prefill(std::uint32_t tokens, std::uint32_t depth, double seconds) {
  state_->costs.prefill(tokens, depth, seconds);
  if (state_->prefills.size() == kPrefillsRemembered) state_->prefills.pop_front();
  state_->prefills.push_back({tokens, depth, seconds});
}

// ---------------------------------------------------------------------------------------------------------------------
// Retrieving

void Cache::State::count(const SourceUsed& source) {
  if (!source.kind) {
    stats.tokens_pool += source.tokens;
    return;
  }
  switch (*source.kind) {
    case TierKind::kMemory:
      stats.tokens_memory += source.tokens;
      return;
    case TierKind::kDisk:
      stats.tokens_disk += source.tokens;
      return;
    case TierKind::kRemote:
      stats.tokens_remote += source.tokens;
      return;
  }
}

// The copy that serves this request best, by the planner's own measure; null when none is acceptable.
const StoredObject* Cache::State::choose_copy(const Entry& entry, const Demand& demand) const {
  if (demand.named()) {
    const auto named = std::ranges::find_if(entry.objects, [&](const StoredObject& object) {
      return object.method() == *demand.method && object.strata >= object.manifest->strata_for(demand.keep);
    });
    return named == entry.objects.end() ? entry.full_copy() : &*named;
  }
  const StoredObject* best = nullptr;
  double best_worth = 0;
  for (const StoredObject& object : entry.objects) {
    if (demand.exact && !object.method().is_full()) continue;
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
Result<ObjectDecoder> Cache::State::start_decoder(const Manifest& manifest, double keep, std::uint32_t tokens,
                                                  Sequence& into) {
  auto decoder = ObjectDecoder::start(manifest, keep, tokens, into);
  const std::uint32_t slabs = pool.shape().pages_for(static_cast<std::uint32_t>(manifest.tokens.size())) + 1;
  if (decoder || decoder.error().code != ErrorCode::kFull || !tree->make_room(slabs)) return decoder;
  return ObjectDecoder::start(manifest, keep, tokens, into);
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
  const double now_s = s.clock.now_s();

  const std::vector<EntryIndex::Link> chain = s.index.match(wanted);
  // A copy that a request names comes before exact pages; without one, the engine makes it from exact pages.
  const bool named = !chain.empty() && demand.named() && s.choose_copy(*chain.front().entry, demand) &&
                     s.choose_copy(*chain.front().entry, demand)->method() == *demand.method;
  const std::uint32_t in_pool = named ? 0 : s.tree->match(wanted);
  for (const EntryIndex::Link& link : chain) link.entry->frequency.access(now_s);

  // Entries from the first that the pool does not cover, as long as each loads faster than it computes.
  struct Choice {
    EntryIndex::Link link;
    const StoredObject* object;
  };
  std::vector<Choice> choices;
  std::uint32_t covered = in_pool;
  for (const EntryIndex::Link& link : chain) {
    const std::uint32_t end = link.entry->first_position + link.matched;
    if (end <= in_pool) continue;
    const StoredObject* object = s.choose_copy(*link.entry, demand);
    if (!object) break;
    const double keep = keep_of(*object, demand);
    const auto stored_tokens = static_cast<std::uint32_t>(link.entry->tokens.size());
    const double load_s = s.candidates->load_s(object->method(), keep, stored_tokens, object->tier);
    if (!named && load_s >= s.costs.prefill_s(end - covered, covered)) break;
    choices.push_back({link, object});
    covered = end;
  }
  const std::uint32_t from_pool = choices.empty() ? in_pool : choices.front().link.entry->first_position;
  if (from_pool > 0) {
    s.tree->adopt(wanted.first(from_pool), sequence);
    retrieval.tokens_ = from_pool;
    SourceUsed source;
    source.where = "pool";
    source.tokens = from_pool;
    retrieval.sources_.push_back(std::move(source));
  }

  for (const Choice& choice : choices) {
    const Manifest& manifest = *choice.object->manifest;
    const double keep = keep_of(*choice.object, demand);
    auto decoder = s.start_decoder(manifest, keep, choice.link.matched, sequence);
    if (!decoder) break;
    Retrieval::Load load{.pin = EntryPin(*choice.link.entry),
                         .object = *choice.object,
                         .decoder = std::move(*decoder),
                         .reads = {},
                         .loaded = std::vector<bool>(manifest.layer_groups())};
    Tier& tier = *s.tiers[choice.object->tier];
    SourceUsed source{.where = tier.name(),
                      .kind = tier.kind(),
                      .method = manifest.method,
                      .keep = manifest.strata_tokens.size() <= 1 ? 1 : kKeepGrid[load.decoder.strata() - 1],
                      .tokens = choice.link.matched,
                      .key = manifest.key};
    // The group that computation needs first is asked for first.
    load.reads.resize(std::size_t{load.decoder.strata()} * manifest.layer_groups());
    for (std::uint32_t group = 0; group < manifest.layer_groups(); ++group) {
      for (std::uint32_t stratum = 0; stratum < load.decoder.strata(); ++stratum) {
        const std::uint32_t chunk = manifest.chunk_index(stratum, group);
        load.reads[chunk] = tier.read({choice.object->name(), chunk});
        source.bytes += manifest.chunks[chunk].bytes;
      }
    }
    retrieval.tokens_ += choice.link.matched;
    retrieval.lossy_ = retrieval.lossy_ || !manifest.method.is_full();
    retrieval.sources_.push_back(std::move(source));
    retrieval.loads_.push_back(std::move(load));
  }
  for (const SourceUsed& source : retrieval.sources_) s.count(source);
  s.stats.hits += retrieval.tokens_ > 0;
  s.plan_due = true;
  return retrieval;
}

void Cache::report_failure(Retrieval retrieval) {
  if (!retrieval.failure()) return;
  const Retrieval::Failure failure = *retrieval.failure();
  retrieval = Retrieval();
  State& s = *state_;
  ++(failure.error.code == ErrorCode::kCorrupt ? s.stats.corrupt_objects : s.stats.failed_reads);
  // Where it cannot be removed (read-only), forgetting it is enough for this process.
  static_cast<void>(remove_object(*s.tiers[failure.tier], failure.object));
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

bool Cache::make_room(std::uint32_t slabs) { return state_->tree->make_room(slabs); }

// ---------------------------------------------------------------------------------------------------------------------
// Storing

EntryKey Cache::key_of(const NewEntry& entry) const {
  return entry_key(state_->fingerprint, entry.parent, entry.tokens);
}

EntryKey Cache::store(NewEntry new_entry, const Sequence& sequence) {
  State& s = *state_;
  const EntryKey key = key_of(new_entry);
  const auto tokens = static_cast<std::uint32_t>(new_entry.tokens.size());
  const bool known = s.index.find(key) != nullptr;
  if (sequence.lossy() || (!known && tokens < s.options.entry_tokens_min)) return key;

  Entry& entry = s.index.add(key, new_entry.parent, new_entry.first_position, new_entry.tokens);
  if (!known) {
    entry.frequency = Frequency(s.options.frequency_half_life_s);
    entry.frequency.access(s.clock.now_s());
  }
  if (new_entry.recompute_s > 0) entry.recompute_s = new_entry.recompute_s;
  if (!new_entry.label.empty()) entry.label = new_entry.label;

  // The planner's choice, after everybody else made room for it; a forced one stands.
  std::vector<CopyTarget> targets;
  Configuration& placed = s.planned[key];
  if (new_entry.placed_as) {
    s.candidates->know(new_entry.placed_as->method);
    placed = *new_entry.placed_as;
    placed.tier = std::min<std::uint32_t>(placed.tier, s.lowest());
  } else if (!known || placed.tier == kDropped) {
    const EntryPin source(entry);  // its pages are at hand: every configuration can be made
    Problem all = problem();
    const std::vector<const Entry*> entries = s.planned_entries();
    const auto own = static_cast<std::size_t>(std::ranges::find(entries, &entry) - entries.begin());
    PlacedEntry& self = all.entries[own];
    self.pinned = false;
    self.current = s.planner->insert(all, self);
    placed = s.candidates->configuration(self.candidates[self.current]);
    const Plan plan = s.planner->relieve(all);
    s.apply(all, plan, entries);
  }
  if (placed.tier != kDropped && !entry.find(placed.method, placed.tier)) {
    targets.push_back({placed.method, placed.keep, placed.tier});
  }
  // The base: where the planner keeps nothing (the baseline `prefill`), there is none either.
  const bool is_base = placed.method.is_full() && placed.tier == s.lowest();
  if (placed.tier != kDropped && !is_base && !entry.full_copy()) targets.push_back({Method::full(), 1, s.lowest()});
  if (targets.empty()) {
    s.forget_if_gone(entry);
    return key;
  }

  StoredQueries queries = std::move(new_entry.queries);
  for (float& value : queries.values) value = to_float(to_half(value));  // as a later encoding will read them
  Sequence held = sequence.fork();
  held.truncate(new_entry.first_position + tokens);
  s.jobs.push_back(make_store_job(*s.context, entry, std::move(held), new_entry.first_position, std::move(queries),
                                  std::move(targets)));
  return key;
}

bool Cache::needs_queries(const Method& method) {
  if (method.scorer.empty()) return false;
  const auto scorer = make_scorer(method.scorer);
  return scorer && (*scorer)->needs().last_queries > 0;
}

StoredQueries Cache::stored_queries(const EntryKey& key) {
  const Entry* entry = state_->index.find(key);
  const StoredObject* full = entry ? entry->full_copy() : nullptr;
  if (!full) return {};
  const auto bytes = state_->tiers[full->tier]->read({full->name(), kQueriesPart})->take();
  if (!bytes) return {};
  return parse_queries((*bytes)->bytes()).value_or(StoredQueries{});
}

Result<ObjectBytes> Cache::compress(const NewEntry& entry, const Method& method, const Sequence& from,
                                    Executor& executor) {
  State& s = *state_;
  const std::uint32_t page_tokens = s.pool.shape().page_tokens;
  std::vector<SlabId> slabs = from.slabs(entry.first_position + static_cast<std::uint32_t>(entry.tokens.size()));
  slabs.erase(slabs.begin(), slabs.begin() + std::min<std::size_t>(slabs.size(), entry.first_position / page_tokens));
  Manifest identity;
  identity.key = key_of(entry);
  identity.parent = entry.parent;
  identity.fingerprint = s.fingerprint;
  identity.shape = s.pool.shape();
  identity.first_position = entry.first_position;
  identity.tokens = entry.tokens;
  identity.method = method;
  SHALE_ASSIGN(ObjectEncoder encoder, ObjectEncoder::start(s.pool, std::move(slabs), entry.first_position % page_tokens,
                                                           std::move(identity), s.options.scorers, entry.queries.values,
                                                           entry.queries.query_heads, entry.queries.window));
  while (encoder.step(executor)) {
  }
  const auto encoded = std::make_shared<const ObjectEncoder::Encoded>(encoder.finish());
  return object_bytes(encoded, static_cast<std::uint32_t>(encoded->manifest.strata_tokens.size()));
}

Status Cache::decompress(const ObjectBytes& object, double keep, Sequence& into, Executor& executor) {
  State& s = *state_;
  const Manifest& manifest = *object.manifest;
  SHALE_ASSIGN(ObjectDecoder decoder,
               s.start_decoder(manifest, keep, static_cast<std::uint32_t>(manifest.tokens.size()), into));
  const std::uint32_t chunks = decoder.strata() * manifest.layer_groups();
  for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
    SHALE_TRY(decoder.decode(chunk, object.chunks[chunk]->bytes(), executor));
  }
  return {};
}

// ---------------------------------------------------------------------------------------------------------------------
// Managing

// Whether every configuration can still be made of the entry: from a copy, or from one that a queued job will write.
bool Cache::State::has_source(const Entry& entry) const { return entry.full_copy() || entry.pins > 0; }

std::vector<const Entry*> Cache::State::planned_entries() const {
  std::vector<const Entry*> entries = index.all();
  std::erase_if(entries, [&](const Entry* entry) { return !planned.contains(entry->key); });
  std::ranges::sort(entries, {}, &Entry::key);  // the same problem is the same plan
  return entries;
}

Problem Cache::problem() const {
  const State& s = *state_;
  Problem problem{.alpha = s.options.alpha, .tiers = {}, .entries = {}};
  for (const auto& tier : s.tiers) problem.tiers.push_back({tier->capacity_bytes()});
  const double now_s = s.clock.now_s();
  for (const Entry* entry : s.planned_entries()) {
    problem.entries.push_back(s.candidates->offer(*entry, s.planned.at(entry->key), s.has_source(*entry), now_s));
  }
  return problem;
}

void Cache::State::queue_move(Entry& entry, const Configuration& to) {
  std::vector<CopyCut> cuts;
  for (const StoredObject& object : entry.objects) {
    const bool base = object.method().is_full() && object.tier == lowest();
    const bool stays = object.method() == to.method && object.tier == to.tier;
    if (to.tier == kDropped || (!base && !stays)) cuts.push_back({object.method(), object.tier, 0});
    if (stays && to.keep < object.keep())
      cuts.push_back({object.method(), object.tier, object.manifest->strata_for(to.keep)});
  }
  const StoredObject* there = to.tier == kDropped ? nullptr : entry.find(to.method, to.tier);
  if (to.tier == kDropped || (there && there->keep() >= to.keep)) {
    jobs.push_back(make_cut_job(*context, entry, std::move(cuts)));
  } else {
    jobs.push_back(make_copy_job(*context, entry, {to.method, to.keep, to.tier}, std::move(cuts)));
  }
}

void Cache::State::apply(const Problem& problem, const Plan& plan, std::span<const Entry* const> entries) {
  trim_bases(problem, placement_after(problem, plan), entries);
  for (const Move& move : plan.moves) {
    Entry& entry = *index.find(entries[move.entry]->key);
    const Configuration to = candidates->configuration(problem.entries[move.entry].candidates[move.to]);
    planned[entry.key] = to;
    if (!entry.objects.empty()) queue_move(entry, to);
  }
}

// Bases that no longer fit beside what is placed on a bounded lowest tier go, least useful first.
void Cache::State::trim_bases(const Problem& problem, std::span<const std::uint32_t> placement,
                              std::span<const Entry* const> entries) {
  if (tiers[lowest()]->capacity_bytes() == kUnlimited) return;
  const std::vector<std::size_t> fitting = full_copies(problem, placement);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Candidate& placed = problem.entries[i].candidates[placement[i]];
    if (placed.tier == kDropped || placed.tier == lowest() || std::ranges::binary_search(fitting, i)) continue;
    Entry& entry = *index.find(entries[i]->key);
    if (entry.objects.size() > 1 && entry.find(Method::full(), lowest())) {
      jobs.push_back(make_cut_job(*context, entry, {{Method::full(), lowest(), 0}}));
    }
  }
}

void Cache::plan() {
  State& s = *state_;
  s.plan_due = false;
  s.planned_at_s = s.clock.now_s();
  // What other processes measured meanwhile; without it the plan is merely older.
  if (s.catalogue) static_cast<void>(s.catalogue->refresh());
  Problem before = problem();
  const std::vector<const Entry*> entries = s.planned_entries();
  const Plan relief = s.planner->relieve(before);
  s.apply(before, relief, entries);
  if (!relief.moves.empty()) return;
  s.apply(before, s.planner->promote(before), entries);
}

void Cache::State::forget_if_gone(Entry& entry) {
  if (entry.pins > 0 || !entry.objects.empty()) return;
  planned.erase(entry.key);
  index.remove(entry.key);
}

bool Cache::work(Executor& executor) {
  State& s = *state_;
  if (s.jobs.empty()) {
    if (!s.plan_due || s.clock.now_s() - s.planned_at_s < s.options.plan_interval_s) return false;
    plan();
    return !s.jobs.empty();
  }
  const Job::Progress progress = s.jobs.front()->step(executor);
  if (progress != Job::Progress::kDone) return progress == Job::Progress::kWorked;
  Entry& entry = s.jobs.front()->entry();
  s.jobs.pop_front();
  if (entry.pins == 0 && !entry.objects.empty()) {
    // A copy that could not be made is not the entry's placement.
    Configuration& placed = s.planned[entry.key];
    if (placed.tier == kDropped || !entry.find(placed.method, placed.tier)) {
      const auto fastest = std::ranges::min_element(entry.objects, {}, &StoredObject::tier);
      placed = {fastest->method(), fastest->keep(), fastest->tier};
      s.plan_due = true;
    }
  }
  s.forget_if_gone(entry);
  return true;
}

void Cache::drain(Executor& executor) {
  using namespace std::chrono_literals;
  while (!state_->jobs.empty()) {
    if (!work(executor)) std::this_thread::sleep_for(200us);  // only I/O is left of the front job
  }
}

bool Cache::idle() const { return state_->jobs.empty(); }

Status Cache::remove(const EntryKey& key) {
  State& s = *state_;
  Entry* entry = s.index.find(key);
  if (!entry) return fail(ErrorCode::kNotFound, "no entry {} in this cache", key.hex());
  if (entry->pins > 0) return fail(ErrorCode::kBusy, "entry {} is being read or written: try again", key.hex());
  while (!entry->objects.empty()) {
    const StoredObject object = entry->objects.back();
    SHALE_TRY(remove_object(*s.tiers[object.tier], *object.manifest));
    entry->objects.pop_back();
  }
  s.forget_if_gone(*entry);
  return {};
}

Status Cache::check_integrity() const {
  const State& s = *state_;
  SHALE_TRY(s.index.check_integrity());
  SHALE_TRY(s.tree->check_integrity());
  SHALE_TRY(s.pool.check_integrity());
  for (const Entry* entry : std::as_const(s.index).all()) {
    for (const StoredObject& object : entry->objects) {
      if (!s.tiers[object.tier]->contains({object.name(), BlobId::kManifest})) {
        return fail(ErrorCode::kInternal, "entry {} lists an object that {} does not have", entry->key.hex(),
                    s.tiers[object.tier]->name());
      }
    }
  }
  return {};
}

}  // namespace shale
