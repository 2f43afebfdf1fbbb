#include <algorithm>
#include <utility>

#include "cache/cache_state.h"
#include "eviction/policies.h"

namespace shale {

namespace {

constexpr std::size_t kPrefillsRemembered = 32;

}  // namespace

std::optional<double> Cache::State::quality(const EntryKey& key, const Method& method, double keep) const {
  if (method.is_full()) return 1.0;
  if (!catalogue) return std::nullopt;
  const auto known = catalogue->quality_for(key, method, keep);
  return known ? std::optional(known->expected) : std::nullopt;
}

void Cache::State::recall_costs() {
  if (!catalogue) return;
  if (const auto records = catalogue->prefills()) {
    for (const PrefillRecord& record : *records) costs.prefill(record.tokens, record.depth, record.seconds);
  }
  for (const std::string_view quantizer : quantizer_names()) {
    if (const auto rate = catalogue->decode_bytes_per_s(quantizer)) costs.expect_decode(quantizer, *rate);
  }
  for (const auto& tier : tiers) {
    const auto delay = catalogue->delay(tier->name(), tier->emulated());
    if (delay) tier->expect({delay->latency_s, delay->read_bytes_per_s, delay->write_bytes_per_s});
  }
}

void Cache::State::skip_unusable(Tier& tier, const StoredManifest& stored) {
  stats.corrupt_objects += stored.error->code == ErrorCode::kCorrupt;
  if (!stored.abandoned || tier.read_only()) return;
  if (Status removed = remove_object(tier, stored.object); !removed) {
    ++stats.stuck_objects;
    if (!warning) warning = std::move(removed).error();
  }
}

Status Cache::State::scan(std::uint32_t tier_index) {
  Tier& tier = *tiers[tier_index];
  SHALE_ASSIGN(const std::vector<StoredManifest> found, scan_objects(tier));
  for (const StoredManifest& stored : found) {
    if (stored.error) {
      skip_unusable(tier, stored);
      continue;
    }
    const Manifest& manifest = *stored.manifest;
    if (manifest.fingerprint.hash != fingerprint.hash || manifest.shape != pool.shape()) continue;
    Entry& entry = index.add(manifest.key, manifest.parent, manifest.first_position, manifest.tokens);
    entry.frequency = entry.accesses_here = Frequency(options.frequency_half_life_s);
    entry.objects.push_back({tier_index, stored.manifest, stored.strata, stored.bits});
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
  for (auto tier = tiers.begin(); tier != tiers.end(); ++tier) {
    const auto same = [&](const auto& other) { return other->name() == (*tier)->name(); };
    if (std::any_of(tiers.begin(), tier, same)) {
      return fail(ErrorCode::kInvalidArgument, "two tiers are called '{}': give one another name", (*tier)->name());
    }
  }
  SHALE_ASSIGN(std::unique_ptr<Planner> planner, make_planner(options.planner, options.planner_options));
  SHALE_ASSIGN(std::unique_ptr<EvictionPolicy> policy,
               make_eviction_policy(options.eviction, {.capacity_blocks = pool.slabs_total()}));
  std::unique_ptr<State> state(new State{.options = std::move(options),
                                         .fingerprint = std::move(fingerprint),
                                         .pool = pool,
                                         .tiers = std::move(tiers),
                                         .catalogue = std::move(catalogue),
                                         .clock = clock});
  State& s = *state;
  s.stats.cached = CachedTokens(s.tiers);
  s.planner = std::move(planner);
  s.tree = std::make_unique<PrefixTree>(pool, std::move(policy));
  SHALE_ASSIGN(s.candidates, Candidates::create(
                                 s.options.methods, pool.shape(), s.tiers, s.costs,
                                 [&s](const EntryKey& key, const Method& method, double keep) {
                                   return s.quality(key, method, keep);
                                 },
                                 s.options.tables));
  for (const Method& method : s.candidates->methods()) {
    SHALE_ASSIGN(const ScorerNeeds needs, s.needs_of(method));
    const std::string missing =
        missing_needs({.rope = needs.rope, .calibration = needs.calibration}, s.options.model.given());
    if (!missing.empty()) return fail(ErrorCode::kInvalidArgument, "{} needs {}", method.text(), missing);
    s.needs = s.needs | needs;
  }
  s.context.emplace(
      JobContext{pool, s.tiers, s.fingerprint, s.options.scorers, s.options.model, s.options.tables, s.stats});
  s.recall_costs();
  for (std::uint32_t tier = 0; tier < s.tiers.size(); ++tier) SHALE_TRY(s.scan(tier));
  s.adopt_placements();
  return std::unique_ptr<Cache>(new Cache(std::move(state)));
}

Cache::Cache(std::unique_ptr<State> state) : state_(std::move(state)) {}

// What a catalogue that cannot be written does not learn is advice: nothing else is lost.
Cache::~Cache() {
  state_->jobs.clear();
  if (state_->catalogue) static_cast<void>(state_->catalogue->together([&] { return state_->remember(); }));
}

Status Cache::State::remember() {
  for (const PrefillRecord& record : prefills) SHALE_TRY(catalogue->record_prefill(record));
  for (const auto& [quantizer, bytes_per_s] : costs.decode_rates()) {
    SHALE_TRY(catalogue->record_decode(quantizer, bytes_per_s));
  }
  for (const auto& tier : tiers) {
    const TierSpeed speed = tier->speed();
    if (speed.samples == 0) continue;
    SHALE_TRY(
        catalogue->record_delay(tier->name(), tier->emulated(),
                                {speed.latency_s, speed.read_bytes_per_s, speed.write_bytes_per_s, speed.samples}));
  }
  const double now_s = clock.now_s();
  for (const Entry* entry : std::as_const(index).all()) {
    const Frequency& here = entry->accesses_here;
    if (here.count() == 0) continue;
    SHALE_TRY(catalogue->record_entry({.key = entry->key,
                                       .tokens = static_cast<std::uint32_t>(entry->tokens.size()),
                                       .frequency = here.value(here.last_access_s()),
                                       .accesses = here.count(),
                                       .age_s = now_s - here.last_access_s(),
                                       .recompute_s = entry->recompute_s,
                                       .label = entry->label},
                                      options.frequency_half_life_s));
  }
  return {};
}

const std::optional<Error>& Cache::warning() const { return state_->warning; }
const Fingerprint& Cache::fingerprint() const { return state_->fingerprint; }
PagePool& Cache::pool() { return state_->pool; }
const PagePool& Cache::pool() const { return state_->pool; }
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

void Cache::note_decode(std::string_view quantizer, std::uint64_t bytes, double seconds) {
  state_->costs.decoded(quantizer, bytes, seconds);
}

}  // namespace shale
