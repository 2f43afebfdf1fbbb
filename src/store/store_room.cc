// Room on tiers: what is written and removed there, what expires, what is pinned.
#include <algorithm>
#include <utility>

#include "store/store.h"
#include "store/store_core.h"

namespace shale {
namespace {

using Type = IndexRecord::Type;

constexpr double kExpireEveryS = 2;
constexpr double kRenewEveryS = 20;                        // of leases
constexpr double kCountEveryS = 5, kCountingShare = 0.02;  // of the time, at most

// Removes what a failed write made, and ends it.
class TakeBackJob final : public StoreJob {
 public:
  TakeBackJob(StoreCore& core, std::uint32_t tier, const BlobOwner& owner, std::vector<BlobId> made)
      : core_(core), tier_(tier), owner_(owner), made_(std::move(made)) {}

  std::optional<std::uint32_t> waits_on() const override { return core_.keeper_of(tier_); }
  Progress step(Executor&) override {
    TierState& state = core_.tiers[tier_];
    // Where another wrote the same and its manifest is there, these are parts of that.
    bool removed = true;
    if (state.tier().contains(manifest_blob(owner_.tag, owner_.name))) made_.clear();
    for (const BlobId& id : made_) removed = state.tier().remove(id) && removed;
    const std::lock_guard lock(core_.mutex);
    core_.end_write(tier_, owner_, !removed, {});  // what is left is settled when this store has died
    if (!state.config.folder.empty()) state.doubtful.push_back(owner_);
    return Progress::kDone;
  }

 private:
  StoreCore& core_;
  const std::uint32_t tier_;
  const BlobOwner owner_;
  std::vector<BlobId> made_;
};

void note_written(TierState& state, const Hash128& object) {
  const auto own = state.own_objects.find(object);
  if (own != state.own_objects.end() && std::exchange(own->second.writing, false)) --state.changes;
}

}  // namespace

// To a tier without a folder others write without a word, and remove there: one that was full is counted again.
void StoreCore::follow(std::uint32_t tier) {
  if (!tiers[tier].config.folder.empty()) return maintain_folder(tier);
  const double start_s = clock.now_s();
  TierState& state = tiers[tier];
  {
    const std::lock_guard lock(mutex);
    if (closing_ || start_s < state.count_again_s || !std::exchange(state.found_full, false)) return;
  }
  const bool counted = state.tier().count_again();
  const std::lock_guard lock(mutex);
  state.count_again_s = clock.now_s() + std::max(kCountEveryS, (clock.now_s() - start_s) / kCountingShare);
  if (counted) placer.room_changed();
}

void StoreCore::resize(ExtentId id, float keep, std::uint64_t bytes) {
  Extent& extent = index.at(id);
  if (extent.keep == keep && extent.bytes == bytes) return;
  for (std::uint32_t t = 0; t < tier_count(); ++t) {
    if (extent.on(t)) count_bytes(extent, t, bytes - extent.bytes);
  }
  ++extent.version;
  extent.keep = keep;
  extent.bytes = bytes;
  if (extent.tiers != 0) placer.changed(id);
}

// Of copies that keep more it is as if they did not. What lies nowhere is as it is found.
void StoreCore::hold_no_more(ExtentId id, const ExtentFacts& facts) {
  const Extent& extent = index.at(id);
  if (facts.keep < extent.keep || extent.tiers == 0) resize(id, facts.keep, facts.bytes);
}

void StoreCore::set_expiry(Extent& extent, double expires_s) {
  expiries.erase({extent.expires_s, extent.name});
  extent.expires_s = expires_s;
  if (expires_s != 0) expiries.emplace(expires_s, extent.name);
}

// Where the time to live that it has is over, or was of copies that are gone.
void StoreCore::live_on(ExtentId id, double expires_s) {
  Extent& extent = index.at(id);
  const bool over = extent.expires_s != 0 && extent.expires_s <= wall_s();
  if (extent.expires_s == expires_s || (!over && extent.tiers != 0)) return;
  set_expiry(extent, expires_s);
  log_lease(extent);
}

IndexRecord StoreCore::record_of(ExtentId id) const {
  IndexRecord record;
  record.type = Type::kStored;
  record.realm = index.realms()[index.at(id).realm];
  record.facts = index.facts(id);
  if (!record.facts.exact && !options.placement.believes_others) record.facts.quality = 0;
  return record;
}

// A pin holds for the new copy, too.
void StoreCore::log_stored(ExtentId id, std::uint32_t tier) {
  log(tier, record_of(id));
  if (index.at(id).pins > 0) log(tier, lease_of(index.at(id)));
}

void StoreCore::remove_from(ExtentId id, std::uint32_t tier) {
  const Extent& extent = index.at(id);
  TierState& state = tiers[tier];
  log(tier, {.type = Type::kRemoved, .name = extent.name, .tag = extent.names[0], .bytes = extent.bytes});
  ++state.counts.removed;
  remove(tier, {{extent.name, extent.names[0]}, extent.bytes, index.realms()[extent.realm].tenant});
  clear_on(id, tier);
}

void StoreCore::remove(std::uint32_t tier, Removal removal) {
  tiers[tier].removals.begin(removal);
  add_job(make_remove_job(*this, tier, std::move(removal)));
}

void StoreCore::remove_owed(std::uint32_t tier) {
  if (closing_) return;  // whoever opens it next removes what the log says
  if (auto removal = tiers[tier].removals.begin_again(clock.now_s())) {
    add_job(make_remove_job(*this, tier, std::move(*removal)));
  }
}

void StoreCore::log_settled(std::uint32_t tier, const BlobOwner& owner) {
  log(tier, {.type = Type::kSettled, .name = owner.name, .tag = owner.tag});
}

bool StoreCore::begin_write(std::uint32_t tier, const BlobOwner& owner, std::uint64_t bytes) {
  TierState& state = tiers[tier];
  const bool busy = state.removing.contains(owner.name) || state.removals.tries(owner.name);
  if (busy || !state.writing.try_emplace(owner.name, BegunWrite{owner.tag, bytes}).second) return false;
  state.removals.forget(owner.name);
  ++state.changes;
  log(tier, {.type = Type::kWriting, .name = owner.name, .tag = owner.tag, .bytes = bytes});
  return true;
}

std::unique_ptr<ExtentWriter> StoreCore::go_on_writing(std::uint32_t tier, std::shared_ptr<const ExtentBlobs> blobs) {
  {
    const std::lock_guard lock(mutex);
    if (!tiers[tier].open) return end_write(tier, {blobs->name, blobs->tag}, false, {}), nullptr;
  }
  auto writer = std::make_unique<ExtentWriter>(tiers[tier].tier(), blobs);
  const std::lock_guard lock(mutex);
  tiers[tier].writing.at(blobs->name).reserved = true;
  return writer;
}

void StoreCore::end_write(std::uint32_t tier, const BlobOwner& owner, bool written, std::vector<BlobId> left) {
  if (!left.empty()) return add_job(std::make_shared<TakeBackJob>(*this, tier, owner, std::move(left)));
  TierState& state = tiers[tier];
  state.writing.erase(owner.name);
  --state.changes;
  if (!written) log_settled(tier, owner);
}

bool Store::begin_own(std::uint32_t tier, const Hash128& object, std::uint64_t bytes) {
  {
    const std::lock_guard lock(core_->mutex);
    if (!core_->has_room(tier, bytes)) return false;
    TierState& state = core_->tiers[tier];
    ++state.changes;
    state.own_objects[object] = {.bytes = bytes, .writing = true};
    core_->log(tier, {.type = Type::kWriting, .name = object, .bytes = bytes});
  }
  core_->flush_soon(tier);
  return true;
}

void Store::written_own(std::uint32_t tier, const Hash128& object) {
  const std::lock_guard lock(core_->mutex);
  note_written(core_->tiers[tier], object);
}

// It is being removed before it is no longer being written: what waits for room there sees one or the other.
void Store::end_own(std::uint32_t tier, const Hash128& object) {
  const std::lock_guard lock(core_->mutex);
  TierState& state = core_->tiers[tier];
  if (state.own_objects.contains(object)) core_->remove(tier, {.owner = {object, 0}});
  note_written(state, object);
}

void StoreCore::expire() {
  if (clock.now_s() < next_expiry_s_) return;
  next_expiry_s_ = clock.now_s() + kExpireEveryS;
  const double wall = wall_s();
  for (auto due = expiries.begin(); due != expiries.end() && due->first <= wall;) {
    const auto [expires_s, name] = *due++;
    if (const auto found = index.find(name); !found || expire(*found)) expiries.erase({expires_s, name});
  }
}

// False where some of it is left that may have to be removed later: in use, pinned, or another store's to remove, which
// may die before it does.
bool StoreCore::expire(ExtentId id) {
  if (index.at(id).uses > 0 || index.at(id).pinned(wall_s())) return false;
  bool removed = false, left = false;
  use(id);
  for (std::uint32_t t = 0; t < tier_count(); ++t) {
    if (!index.at(id).on(t) || tiers[t].tier().read_only()) continue;
    const bool may = tiers[t].config.folder.empty() || tiers[t].leads;
    if (may) remove_from(id, t);
    (may ? removed : left) = true;
  }
  unuse(id);
  counts.expired_extents += removed ? 1 : 0;
  return !left;
}

void StoreCore::log_where(const Extent& extent, const IndexRecord& record) {
  for (std::uint32_t t = 0; t < tier_count(); ++t) {
    if (extent.on(t)) log(t, record);
  }
}

IndexRecord StoreCore::lease_of(const Extent& extent) const {
  const double until_s = extent.pins > 0 ? wall_s() + kLeaseS : 0;
  return {.type = Type::kLease, .name = extent.name, .until_s = until_s, .expires_s = extent.expires_s};
}

void StoreCore::log_lease(const Extent& extent) { log_where(extent, lease_of(extent)); }

void StoreCore::pin(ExtentId id, bool on) {
  Extent& extent = index.at(id);
  if (!on && extent.pins == 0) return;
  extent.pins = static_cast<std::uint16_t>(extent.pins + (on ? 1 : -1));
  extent.pins > 0 ? static_cast<void>(pinned.insert(id)) : static_cast<void>(pinned.erase(id));
  placer.changed(id);
  log_lease(extent);
}

void StoreCore::renew_leases() {
  if (clock.now_s() < next_renewal_s_) return;
  next_renewal_s_ = clock.now_s() + kRenewEveryS;
  for (const ExtentId id : pinned) log_lease(index.at(id));
}

}  // namespace shale
