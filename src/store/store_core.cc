#include "store/store_core.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/sha256.h"
#include "core/stopwatch.h"

namespace shale {
namespace {

constexpr double kMaintenanceEveryS = 0.2;
constexpr double kThreadPieceS = 5e-3;
constexpr std::size_t kSpareBytesAThread = std::size_t{48} << 20;  // of buffers, for the extent that it encodes next
constexpr std::chrono::microseconds kBusyNap{300};                 // while something is in flight
constexpr std::chrono::microseconds kIdleNap{100'000}, kKeeperNap{20'000};

StoreOptions with_clock(StoreOptions options) {
  if (!options.wall_clock) options.wall_clock = wall_clock_s;
  return options;
}

}  // namespace

StoreCore::StoreCore(StoreOptions asked_for, std::vector<StoreTier> with_tiers, const Clock& with_clock_)
    : options(with_clock(std::move(asked_for))),
      clock(with_clock_),
      name_space(sha256(std::as_bytes(std::span(options.name_space)))),
      staging(options.staging_bytes),
      buffers(BufferPool::make(kSpareBytesAThread * std::max(1U, options.threads))),
      manifests(options.manifest_cache_bytes),
      events(options.events_max) {
  for (StoreTier& tier : with_tiers) {
    tiers.emplace_back(std::move(tier));
    tiers.back().counts.name = tiers.back().tier().name();
  }
  errands_.resize(tiers.size());
}

Status StoreCore::open() {
  SHALE_TRY(placer.open());
  for (std::uint32_t t = 0; t < tier_count(); ++t) {
    if (tiers[t].config.folder.empty()) continue;
    if (Status opened = open_folder(t); !opened && !tiers[t].config.late) return opened;
  }
  has_keeper_ = std::ranges::any_of(tiers, [](const TierState& tier) { return tier.tier().persistent(); });
  for (unsigned i = 0; i < options.threads; ++i) threads_.emplace_back([this] { run(); });
  for (std::uint32_t t = 0; has_keeper_ && t < tier_count(); ++t) {
    if (!tiers[t].tier().persistent() && !tiers[t].config.shared) continue;
    const unsigned keepers = tiers[t].config.shared ? 4 : 1;  // so that look-ups do not wait for each other's trips
    for (unsigned i = 0; i < keepers; ++i) threads_.emplace_back([this, t, i] { keep(t, i == 0); });
  }
  return {};
}

StoreCore::~StoreCore() {
  {
    const std::lock_guard lock(mutex);
    closing_ = true;
  }
  wake_.notify_all();
  keeper_wake_.notify_all();
  threads_.clear();
  has_keeper_ = false;
  for (auto& errands : errands_) std::ranges::move(std::exchange(errands, {}), std::back_inserter(jobs));
  std::ranges::move(std::exchange(saves, {}), std::back_inserter(jobs));
  InlineExecutor executor;
  while (step_jobs(jobs, executor, clock.now_s() + kThreadPieceS) || !jobs.empty()) {
    clock.sleep_until_s(clock.now_s() + 1e-4);
  }
  for (std::uint32_t t = 0; t < tier_count(); ++t) flush_log(t);
}

TenantState& StoreCore::tenant(std::string_view name) {
  const auto known = tenants.find(name);
  if (known != tenants.end()) return known->second;
  TenantState state;
  state.realm = realm_of(options, name);
  state.number = index.realm({state.realm, std::string(name)}).value_or(kNoRealm);
  state.counts.tenant = name;
  return tenants.emplace(std::string(name), std::move(state)).first->second;
}

std::uint64_t StoreCore::bytes_of(const TenantState& tenant) const {
  return tenant.number < realm_bytes.size() ? realm_bytes[tenant.number] : 0;
}

void StoreCore::count_bytes(const Extent& extent, std::uint32_t tier, std::uint64_t more) {
  tiers[tier].known_bytes += more;
  if (tiers[tier].config.shared) return;
  if (realm_bytes.size() <= extent.realm) realm_bytes.resize(extent.realm + 1u);
  realm_bytes[extent.realm] += more;
}

void StoreCore::set_on(ExtentId id, std::uint32_t tier) {
  Extent& extent = index.at(id);
  if (extent.on(tier)) return;
  extent.tiers = static_cast<std::uint8_t>(extent.tiers | 1u << tier);
  index.show_chunks(id);  // this copy is sound; a damaged one elsewhere goes when it is read
  TierState& state = tiers[tier];
  count_bytes(extent, tier, extent.bytes);
  state.unread.erase(extent.name);
  state.removals.forget(extent.name);
  forget_writing(tier, extent.name);
  ++state.counts.extents;
  state.counts.chunks += extent.chunks;
  placer.changed(id);
  set_expiry(extent, extent.expires_s);
}

void StoreCore::clear_on(ExtentId id, std::uint32_t tier) {
  Extent& extent = index.at(id);
  if (!extent.on(tier)) return;
  extent.tiers = static_cast<std::uint8_t>(extent.tiers & ~(1u << tier));
  ++extent.version;
  if (extent.tiers == 0) index.show_chunks(id);  // what is saved next is sound
  TierState& state = tiers[tier];
  count_bytes(extent, tier, -extent.bytes);
  --state.counts.extents;
  state.counts.chunks -= extent.chunks;
  placer.changed(id);
  forget_unused(id);
}

void StoreCore::forget_unused(ExtentId id) {
  const Extent& extent = index.at(id);
  if (extent.uses > 0 || extent.tiers != 0) return;
  placer.forget(id);
  pinned.erase(id);  // another one may have the number next
  expiries.erase({extent.expires_s, extent.name});
  index.remove(id);
}

void StoreCore::unuse(ExtentId id) {
  --index.at(id).uses;
  forget_unused(id);
}

void StoreCore::access(ExtentId id, double share) {
  Extent& extent = index.at(id);
  const double now = wall_s();
  extent.frequency = static_cast<float>(share + extent.frequency_at(now, options.frequency_half_life_s));
  extent.accessed_s = now;
  placer.access(id, share);
  log_where(extent, {.type = IndexRecord::Type::kUsed, .name = extent.name, .frequency = extent.frequency});
}

void StoreCore::add_job(std::shared_ptr<StoreJob> job) {
  if (const auto tier = job->waits_on(); has_keeper_ && tier) {
    errands_[*tier].push_back(std::move(job));
    keeper_wake_.notify_all();
    return;
  }
  jobs.push_back(std::move(job));
  wake_.notify_one();
}

void StoreCore::add_save(std::shared_ptr<StoreJob> job) {
  saves.push_back(std::move(job));
  ++counts.saves_left;
  wake_.notify_one();
}

void StoreCore::report(ExtentId id, std::uint8_t version, std::uint32_t tier, ErrorCode code,
                       std::uint32_t chunks_failed) {
  const std::lock_guard lock(mutex);
  if (code == ErrorCode::kNotFound) ++counts.stale_extents;
  const Extent& extent = index.at(id);
  if (extent.version != version) return;  // somebody has said so, or what lies there now is not what was read
  if (code == ErrorCode::kNotFound) return remove_from(id, tier);
  if (code == ErrorCode::kIo) return lose_sight(id, tier);
  if (code != ErrorCode::kCorrupt && code != ErrorCode::kMismatch) return;
  const std::uint32_t all = (1u << extent.chunks) - 1;
  chunks_failed &= all & ~std::uint32_t{extent.damaged};
  counts.damaged_chunks += static_cast<std::uint64_t>(std::popcount(chunks_failed));
  if (chunks_failed == 0) return;
  // What only this store cannot read is others' to keep. Where the extent lies somewhere else too, that copy is asked
  // next; else its sound chunks stay.
  const bool others = code == ErrorCode::kMismatch && !tiers[tier].is_private();
  const bool elsewhere = (extent.tiers & ~(1u << tier)) != 0;
  if (!others && (elsewhere || (chunks_failed | extent.damaged) == all)) return remove_from(id, tier);
  for (std::uint32_t chunk = 0; chunk < extent.chunks; ++chunk) {
    if ((chunks_failed >> chunk & 1) == 0) continue;
    index.hide_chunk(id, chunk);
    if (!others) log(tier, {.type = IndexRecord::Type::kDamaged, .name = extent.name, .chunk = chunk});
  }
  placer.changed(id);
}

// It may be sound: others may read it there, and so may this store, later.
void StoreCore::lose_sight(ExtentId id, std::uint32_t tier) {
  if (!tiers[tier].config.folder.empty()) {
    tiers[tier].unread[index.at(id).name] = {record_of(id), clock.now_s() + kFindAgainAfterS};
  }
  clear_on(id, tier);
}

void StoreCore::log(std::uint32_t tier, IndexRecord record) {
  if (tiers[tier].config.folder.empty() || !tiers[tier].open) return;
  record.time_s = wall_s();
  tiers[tier].unlogged.push_back(std::move(record));
  ++tiers[tier].logged;
}

void StoreCore::tell(StoreEvent::Kind kind, std::uint32_t tier, std::string tenant, const ExtentManifest& manifest) {
  if (options.events_max == 0) return;
  StoreEvent event{.kind = kind,
                   .tier = tier,
                   .tenant = std::move(tenant),
                   .parent = manifest.parent,
                   .first_block = manifest.first_position / manifest.geometry.block_tokens,
                   .keys = manifest.keys,
                   .block_tokens = manifest.geometry.block_tokens,
                   .exact = manifest.method.is_full()};
  if (kind == StoreEvent::Kind::kStored) event.tokens = manifest.token_ids;
  events.push(std::move(event));
}

void StoreCore::flush_log(std::uint32_t tier) {
  if (tiers[tier].config.folder.empty()) return;
  const std::lock_guard folder_lock(*tiers[tier].folder_mutex);
  if (!tiers[tier].folder) return;
  const Tier::Call call(tiers[tier].tier());
  std::vector<IndexRecord> records;
  std::uint64_t logged = 0;
  {
    const std::lock_guard lock(mutex);
    records.swap(tiers[tier].unlogged);
    logged = tiers[tier].logged;
  }
  for (const IndexRecord& record : records) tiers[tier].folder->append(record);
  (void)tiers[tier].folder->flush();  // what others do not learn of, they find out
  const std::lock_guard lock(mutex);
  tiers[tier].flushed = logged;
}

std::uint64_t StoreCore::flush_soon(std::uint32_t tier) {
  if (!has_keeper_) flush_log(tier);
  const std::lock_guard lock(mutex);
  keeper_wake_.notify_all();
  return tiers[tier].logged;
}

bool StoreCore::flushed(std::uint32_t tier, std::uint64_t records) const {
  const std::lock_guard lock(mutex);
  return !has_keeper_ || tiers[tier].config.folder.empty() || tiers[tier].flushed >= records;
}

void StoreCore::add_load(LoadPump& load) {
  const std::lock_guard lock(loads_mutex_);
  loads_.push_back(&load);
  wake_.notify_one();
}

void StoreCore::remove_load(LoadPump& load) {
  const std::lock_guard lock(loads_mutex_);
  std::erase(loads_, &load);
  --load_count_;
}

bool StoreCore::idle() const {
  const std::lock_guard lock(mutex);
  const bool no_errands = std::ranges::all_of(errands_, [](const auto& of_tier) { return of_tier.empty(); });
  return saves.empty() && jobs.empty() && no_errands && jobs_out_ == 0 && !placer.due();
}

void StoreCore::run() {
  InlineExecutor executor;
  for (;;) {
    const bool worked = work(executor, kThreadPieceS);
    std::unique_lock lock(mutex);
    if (closing_) return;
    if (worked) continue;
    const bool idle = saves.empty() && jobs.empty() && jobs_out_ == 0 && load_count_ == 0;
    wake_.wait_for(lock, idle ? kIdleNap : kBusyNap);
  }
}

// A thread of a tier: all that may wait for this tier or, by the first, its folder, and nothing that computes. One that
// hangs holds up no other.
void StoreCore::keep(std::uint32_t tier, bool first) {
  stand_back(StandBack::kForReads);
  InlineExecutor executor;
  TierState& state = tiers[tier];
  for (double look_s = 0;;) {
    maintain();
    if (first && clock.now_s() >= look_s) {
      look_s = clock.now_s() + kMaintenanceEveryS;
      follow(tier);
    }
    flush_log(tier);
    const bool worked = step_jobs(errands_[tier], executor, clock.now_s());
    std::unique_lock lock(mutex);
    if (closing_) return;
    if (worked || !state.unlogged.empty()) continue;
    keeper_wake_.wait_for(lock, errands_[tier].empty() ? kKeeperNap : kBusyNap);
  }
}

// Saves first: until they have read it, they hold memory that their callers want back. All others get a step at least.
bool StoreCore::work(Executor& executor, double budget_s) {
  const double until_s = clock.now_s() + budget_s;
  maintain();  // all keepers may hang
  const bool arrived = pump_loads();
  const bool decided = settle();
  const bool saved = step_jobs(saves, executor, until_s);
  return step_jobs(jobs, executor, until_s) || saved || arrived || decided;
}

bool StoreCore::settle() {
  const std::lock_guard lock(mutex);
  if (!placer.due()) return false;
  const Stopwatch planning(clock, counts.planning_seconds);
  return placer.settle();
}

// Each goes on until it waits, so that what it holds is soon free; ends when all wait or the time is over.
bool StoreCore::step_jobs(std::deque<std::shared_ptr<StoreJob>>& queue, Executor& executor, double until_s) {
  bool worked = false;
  std::size_t waiting = 0;
  for (;;) {
    std::shared_ptr<StoreJob> job;
    {
      const std::lock_guard lock(mutex);
      if (queue.empty() || waiting >= queue.size()) return worked;
      job = std::move(queue.front());
      queue.pop_front();
      ++jobs_out_;
    }
    const StoreJob::Progress progress = job->step(executor);
    {
      const std::lock_guard lock(mutex);
      --jobs_out_;
      if (progress == StoreJob::Progress::kWorked) queue.push_front(std::move(job));
      if (progress == StoreJob::Progress::kWaiting) queue.push_back(std::move(job));
      if (progress == StoreJob::Progress::kDone && &queue == &saves) --counts.saves_left;
    }
    waiting = progress == StoreJob::Progress::kWaiting ? waiting + 1 : 0;
    worked = worked || progress != StoreJob::Progress::kWaiting;
    if (worked && clock.now_s() >= until_s) return worked;
  }
}

bool StoreCore::pump_loads() {
  bool arrived = false;
  {
    const std::lock_guard lock(loads_mutex_);
    for (LoadPump* load : loads_) arrived = load->pump() || arrived;
  }
  if (arrived) signal();
  return arrived;
}

// Everything that time alone brings about.
void StoreCore::maintain() {
  const std::lock_guard lock(mutex);
  if (clock.now_s() < next_maintenance_s_) return;
  next_maintenance_s_ = clock.now_s() + kMaintenanceEveryS;
  // What was used while the clock was ahead was used by now.
  if (const double wall = wall_s(); std::exchange(wall_seen_s_, wall) > wall) index.cap_accesses(wall);
  expire();
  renew_leases();
  for (std::uint32_t t = 0; t < tier_count(); ++t) remove_owed(t);
  asked.forget(clock.now_s());
  placer.look_at_some();
}

}  // namespace shale
