#include "cache/cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "cache/cache_state.h"
#include "codec/views/sequence_view.h"
#include "eviction/policies.h"

namespace shale {
namespace {

constexpr std::size_t kPrefillsMax = 32;
constexpr double kTellPauseMaxS = 60;
constexpr int kTellWaitMs = 5;  // for another process's write
constexpr std::size_t kToldAtOnce = 64;

}  // namespace

Hash128 run_name(const BlockKey& last) {
  Hash128 name;
  static_assert(sizeof name <= sizeof last);
  std::memcpy(&name, last.data(), sizeof name);
  return name;
}

std::string name_space_of(const Fingerprint& fingerprint) { return "shale " + fingerprint.hash.hex(); }

void Cache::State::recall_costs() {
  if (!metadata_store) return;
  if (const auto records = metadata_store->prefills()) {
    for (const PrefillRecord& record : *records) costs.prefill(record.tokens, record.depth, record.seconds);
  }
  for (const std::string_view quantizer : quantizer_names()) {
    if (const auto rate = metadata_store->decode_bytes_per_s(quantizer)) costs.expect_decode(quantizer, *rate);
  }
  for (Tier* tier : tiers) {
    const auto delay = metadata_store->delay(tier->name(), tier->emulated());
    if (!delay) continue;
    TierSpeed speed = tier->speed();
    if (delay->samples > 0) speed.latency_s = delay->latency_s;
    if (delay->read_bytes_per_s > 0) speed.read_bytes_per_s = delay->read_bytes_per_s;
    if (delay->write_bytes_per_s > 0) speed.write_bytes_per_s = delay->write_bytes_per_s;
    tier->expect(speed);
  }
}

// What the planner may choose from, and what that reads of a run, while it is computed and at rest, where it chooses.
Status Cache::State::choose_methods() {
  SHALE_ASSIGN(planner, parse_planner(options.planner));
  if (planner.method && planner.method->is_full()) planner.method.reset();
  const bool halves = pool.shape().element == PageElement::kHalf;
  if (planner.method && !halves) {
    return fail(ErrorCode::kInvalidArgument, "planner {} compresses pages of fp16, and these are int8",
                options.planner);
  }
  SHALE_ASSIGN(const auto made, make_planner(planner.planner, options.planner_options));
  weighs_quality = metadata_store && halves && made->weighs_quality();
  if (planner.method) options.methods = {planner.method->text()};
  for (const std::string& text : options.methods) {
    SHALE_ASSIGN(const Method method, Method::parse(text));
    SHALE_TRY(method.check());
    if (std::ranges::find(methods, method) != methods.end()) continue;
    SHALE_ASSIGN(const ScorerNeeds reads, needs_of(method));
    const std::string missing =
        missing_needs({.rope = reads.rope, .calibration = reads.calibration}, options.model.given());
    if (!missing.empty()) return fail(ErrorCode::kInvalidArgument, "{} needs {}", method.text(), missing);
    methods.push_back(method);
    if (weighs_quality || planner.method) scorer_needs = scorer_needs | reads;
    if (!weighs_quality) continue;
    const bool ranked = std::ranges::find(rankings, method.ranking()) != rankings.end();
    if (!missing_needs(reads, ScorerNeeds{}).empty() && !ranked) rankings.push_back(method.ranking());
  }
  return {};
}

std::optional<double> Cache::State::expected(const Hash128& run, const Method& method, double keep) const {
  const auto known = metadata_store ? metadata_store->quality_for(run, method, keep) : std::nullopt;
  return known ? std::optional(known->expected) : std::nullopt;
}

// What answers are expected to be worth in a form that extents may become. Whoever fixes one for all takes it as it is.
std::optional<double> Cache::State::quality(const Hash128& run, const Method& method, double keep) const {
  const std::optional<double> known = expected(run, method, keep);
  const double served = std::min(planner.keep, planner.read_keep);
  const bool its_own = std::abs(planner.keep - keep) < 1e-6 || std::abs(served - keep) < 1e-6;
  const bool fixed = planner.method == method && its_own;
  if (fixed) return std::max(known.value_or(1), kMeasured);
  return known && *known >= options.quality_floor ? known : std::nullopt;
}

// What was computed behind lossy KV is worth what was expected of that then, whatever lies before it now.
std::optional<double> Cache::State::expected(const SourceUsed& source) const {
  const auto form = source.method.is_full() ? 1 : expected(source.run, source.method, source.keep);
  if (!source.behind_lossy || !form) return form;
  if (!metadata_store) return std::nullopt;
  const auto inherited = metadata_store->inherited(source.run);
  return inherited ? std::optional(std::min(*form, *inherited)) : std::nullopt;
}

std::optional<double> Cache::State::quality(const SourceUsed& source) const {
  const auto form = source.method.is_full() ? 1 : quality(source.run, source.method, source.keep);
  if (!source.behind_lossy || source.computed_behind_lossy() || !form || planner.method) return form;
  const auto known = expected(source);
  return known && *known >= options.quality_floor ? known : std::nullopt;
}

Status Cache::State::open_store(std::vector<StoreTier> with) {
  for (const StoreTier& tier : with) {
    const auto same = [&](const Tier* other) { return other->name() == tier.tier->name(); };
    if (std::ranges::any_of(tiers, same)) {
      return fail(ErrorCode::kInvalidArgument, "two tiers are called '{}': give one another name", tier.tier->name());
    }
    tiers.push_back(tier.tier.get());
  }
  left_alone_until_s.resize(tiers.size());
  StoreOptions store_options;
  store_options.name_space = name_space_of(fingerprint);
  store_options.geometry = geometry_of(pool.shape());
  store_options.packing = KvPacking::kHeadPages;
  store_options.chunk_tokens = options.chunk_tokens;
  store_options.staging_bytes = options.staging_bytes;
  store_options.frequency_half_life_s = options.frequency_half_life_s;
  store_options.threads = 0;
  if (!options.events) store_options.events_max = 0;
  store_options.wall_clock = options.wall_clock;
  store_options.scorers = options.scorers;
  store_options.model = options.model;
  store_options.tables = options.tables;
  StorePlacement& placement = store_options.placement;
  placement.planner = planner.planner;
  placement.options = options.planner_options;
  placement.alpha = options.alpha;
  placement.on_event = options.on_placement;
  placement.believes_others = !options.metric;
  placement.recompute_s = [this](std::uint32_t tokens, std::uint32_t first) { return costs.prefill_s(tokens, first); };
  placement.decode_s = [this](std::string_view quantizer, std::uint64_t bytes) {
    return costs.decode_s(quantizer, bytes);
  };
  if ((metadata_store || planner.method) && !store_options.geometry.opaque()) {
    placement.methods.assign(methods.begin() + 1, methods.end());
    placement.quality = [this](const Hash128& run, const Method& method, double keep) -> std::optional<double> {
      const auto enough = quality(run, method, keep);
      const bool below_floor = !enough && expected(run, method, keep);
      return below_floor ? 0 : enough;
    };
  }
  if (planner.method) {
    placement.options.fixed_method_index = 1;
    placement.options.fixed_keep = planner.keep;
    placement.options.read_keep = planner.read_keep;
  }
  SHALE_ASSIGN(store, Store::open(std::move(store_options), std::move(with), clock));
  for (const auto& [tenant, bytes_max] : options.tenant_bytes) store->set_quota(tenant, bytes_max);
  return {};
}

Result<std::unique_ptr<Cache>> Cache::open(CacheOptions options, Fingerprint fingerprint, PagePool& pool,
                                           std::vector<StoreTier> tiers, std::unique_ptr<MetadataStore> metadata_store,
                                           const Clock& clock) {
  if (tiers.empty()) return fail(ErrorCode::kInvalidArgument, "a cache needs at least one tier");
  SHALE_ASSIGN(std::unique_ptr<EvictionPolicy> policy,
               make_eviction_policy(options.eviction, {.capacity_blocks = pool.blocks_total()}));
  std::unique_ptr<State> state(new State{.options = std::move(options),
                                         .fingerprint = std::move(fingerprint),
                                         .pool = pool,
                                         .metadata_store = std::move(metadata_store),
                                         .clock = clock});
  State& s = *state;
  s.tree = std::make_unique<PrefixTree>(pool, std::move(policy));
  if (const auto& events = s.options.events) {
    if (events->options().block_tokens % pool.shape().block_size != 0) {
      return fail(ErrorCode::kInvalidArgument, "KV events of blocks of {} tokens: give a multiple of the pool's {}",
                  events->options().block_tokens, pool.shape().block_size);
    }
    s.tree->on_evicted([told = events.get()](std::uint64_t name) { told->evicted(name); });
  }
  if (s.metadata_store)
    SHALE_TRY(s.metadata_store->measure_in(s.options.metric ? s.options.metric->name() : kAgreement));
  SHALE_TRY(s.choose_methods());
  SHALE_TRY(s.open_store(std::move(tiers)));
  s.stats.cached = CachedTokens(s.tiers);
  s.recall_costs();
  return std::unique_ptr<Cache>(new Cache(std::move(state)));
}

Cache::Cache(std::unique_ptr<State> state) : state_(std::move(state)) {}

// What a metadata store that cannot be written does not learn is advice: nothing else is lost.
Cache::~Cache() {
  state_->saving.clear();
  record_learned();
  state_->store.reset();
}

void Cache::record_learned() {
  State& s = *state_;
  const auto learn = [&]() -> Status {
    SHALE_TRY(s.record_learned());
    return s.forgot_old ? Status() : s.metadata_store->forget_old();
  };
  if (s.metadata_store && !s.metadata_store->together(learn)) return;
  s.forgot_old = true;
  s.prefills.clear();
  s.used = {};
  s.untold.clear();
}

Status Cache::State::record_learned() {
  for (const PrefillRecord& record : prefills) SHALE_TRY(metadata_store->record_prefill(record));
  for (const auto& [quantizer, bytes_per_s] : costs.decode_rates()) {
    SHALE_TRY(metadata_store->record_decode(quantizer, bytes_per_s));
  }
  for (const Tier* tier : tiers) SHALE_TRY(record_speed(*tier));
  for (const auto& [run, here] : used) {
    SHALE_TRY(record_used(run, here));
    if (const auto kind = metadata_store->kind(run)) SHALE_TRY(metadata_store->record_kind(run, *kind));
  }
  return {};
}

// Without that, what is computed behind lossy forms is of no use to other processes, nor after a crash. What these runs
// are like waits for the end: others read all that was learned again then. A few runs at once, as requests wait
// meanwhile.
void Cache::State::tell_inherited() {
  if (untold.empty() || clock.now_s() < tell_at_s) return;
  const std::size_t count = std::min(untold.size(), kToldAtOnce);
  const std::vector<Hash128> runs(untold.begin(), std::next(untold.begin(), static_cast<std::ptrdiff_t>(count)));
  const int waited_ms = metadata_store->wait_at_most(kTellWaitMs);
  const Status told = metadata_store->together([&]() -> Status {
    for (const Hash128& run : runs) {
      if (const Used* here = used.find(run)) SHALE_TRY(record_used(run, *here));
    }
    return {};
  });
  metadata_store->wait_at_most(waited_ms);
  if (!told) {
    tell_at_s = clock.now_s() + tell_pause_s;
    tell_pause_s = std::min(2 * tell_pause_s, kTellPauseMaxS);
    return;
  }
  for (const Hash128& run : runs) {
    untold.erase(run);
    if (!used.find(run)) continue;
    Frequency& accesses = used.touch(run).accesses;
    accesses.resume(0, accesses.last_access_s(), 0);
  }
  tell_pause_s = kTellEveryS;
  if (untold.empty()) tell_at_s = clock.now_s() + kTellEveryS;
}

// What was not measured here stays as others have measured it: a guess is none.
Status Cache::State::record_speed(const Tier& tier) {
  const TierSpeed speed = tier.speed();
  if (speed.samples == 0 && !speed.write_measured) return {};
  DelayRecord record = metadata_store->delay(tier.name(), tier.emulated()).value_or(DelayRecord());
  if (speed.samples > 0) {
    record.latency_s = speed.latency_s;
    record.samples = speed.samples;
  }
  if (speed.read_measured) record.read_bytes_per_s = speed.read_bytes_per_s;
  if (speed.write_measured) record.write_bytes_per_s = speed.write_bytes_per_s;
  return metadata_store->record_delay(tier.name(), tier.emulated(), record);
}

Status Cache::State::record_used(const Hash128& run, const Used& here) {
  PrefixRecord record{.key = run,
                      .tokens = here.tokens,
                      .frequency = here.accesses.value(here.accesses.last_access_s()),
                      .accesses = here.accesses.count(),
                      .age_s = clock.now_s() - here.accesses.last_access_s(),
                      .recompute_s = here.recompute_s,
                      .label = here.label};
  // What was used and not stored here was described by whoever stored it.
  if (here.label.empty() || here.recompute_s == 0 || here.tokens == 0) {
    if (const auto known = metadata_store->prefix(run)) {
      if (here.label.empty()) record.label = known->label;
      if (here.recompute_s == 0) record.recompute_s = known->recompute_s;
      if (here.tokens == 0) record.tokens = known->tokens;
    }
  }
  SHALE_TRY(metadata_store->record_prefix(record, options.frequency_half_life_s));
  const auto inherited = metadata_store->inherited(run);
  return inherited ? metadata_store->record_inherited(run, *inherited) : Status();
}

Cache::State::Used& Cache::State::use(const Hash128& run) {
  Used& here = used.touch(run, Frequency(options.frequency_half_life_s));
  here.accesses.access(clock.now_s());
  if (used.size() > kUsedMax) used.erase_oldest();
  return here;
}

const Fingerprint& Cache::fingerprint() const { return state_->fingerprint; }
PagePool& Cache::pool() { return state_->pool; }
const PagePool& Cache::pool() const { return state_->pool; }
Store& Cache::store() { return *state_->store; }
const Store& Cache::store() const { return *state_->store; }
std::span<Tier* const> Cache::tiers() const { return state_->tiers; }
MetadataStore* Cache::metadata_store() { return state_->metadata_store.get(); }
CostModel& Cache::costs() { return state_->costs; }
const CostModel& Cache::costs() const { return state_->costs; }
const Clock& Cache::clock() const { return state_->clock; }
const CacheOptions& Cache::options() const { return state_->options; }
std::string_view Cache::metric() const { return state_->options.metric ? state_->options.metric->name() : kAgreement; }
const std::vector<Method>& Cache::methods() const { return state_->methods; }
bool Cache::weighs_quality() const { return state_->weighs_quality; }
const CacheStats& Cache::stats() const { return state_->stats; }

void Cache::note_prefill(std::uint32_t tokens, std::uint32_t depth, double seconds) {
  state_->costs.prefill(tokens, depth, seconds);
  if (state_->prefills.size() == kPrefillsMax) state_->prefills.pop_front();
  state_->prefills.push_back({tokens, depth, seconds});
}

std::string salt_of(std::string_view tenant, std::string_view salt) {
  return tenant.empty() && salt.empty() ? std::string() : fmt::format("{}\n{}", tenant, salt);
}

std::string_view tenant_of(std::string_view salt) {
  const std::size_t end = salt.find('\n');
  return end == salt.npos ? std::string_view() : salt.substr(0, end);
}

std::vector<BlockKey> Cache::State::keys_of(std::span<const std::int32_t> tokens, std::string_view salt) const {
  return block_keys("", tokens, block_tokens(), salt.empty() ? KeyExtras() : KeyExtras{std::string(salt)});
}

std::vector<BlockKey> Cache::State::names_of(std::vector<BlockKey> keys, std::uint32_t reproducible,
                                             std::uint32_t lossy_from) const {
  const static Hash128 kQuick = Hasher().add("not reproducible").finish();
  const static Hash128 kBehindLossy = Hasher().add("behind lossy").finish();
  const std::size_t behind = std::min<std::size_t>(lossy_from / block_tokens(), keys.size());
  const std::size_t quick = std::min<std::size_t>(reproducible / block_tokens(), behind);
  const auto rename = [&](std::size_t begin, std::size_t end, const Hash128& lineage) {
    const auto these = std::span(keys).subspan(begin, end - begin);
    std::ranges::copy(lineage_keys(these, lineage), these.begin());
  };
  rename(quick, behind, kQuick);
  rename(behind, keys.size(), kBehindLossy);
  return keys;
}

std::uint32_t Cache::block_tokens() const { return state_->block_tokens(); }

std::uint32_t Cache::whole_blocks(std::size_t tokens) const {
  return static_cast<std::uint32_t>(tokens - tokens % block_tokens());
}

std::vector<BlockKey> Cache::keys_of(std::span<const std::int32_t> tokens, std::string_view salt) const {
  return state_->keys_of(tokens, salt);
}

Hash128 Cache::run_of(std::span<const std::int32_t> tokens, std::string_view salt) const {
  const std::vector<BlockKey> keys = keys_of(tokens, salt);
  return keys.empty() ? Hash128{} : run_name(keys.back());
}

Status Cache::check_integrity() {
  SHALE_TRY(state_->store->check_integrity());
  SHALE_TRY(state_->tree->check_integrity());
  return state_->pool.check_integrity();
}

}  // namespace shale
