// Room on tiers: what is written and removed there, what expires, what is pinned.
#include <algorithm>
#include <utility>

#include "store/store.h"
#include "store/store_core.h"

namespace shale {
namespace {

using Type = IndexRecord::Type;

constexpr double kExpireEveryS = 2;
constexpr double kLeaseS = 60, kRenewEveryS = 20;  // a pin of a process that dies lapses
constexpr double kAskAgainAfterS = 1;

}  // namespace

bool StoreCore::has_room(std::uint32_t tier, std::uint64_t bytes) const {
  const std::uint64_t capacity = tiers[tier].capacity_bytes();
  return capacity == kUnlimited || (bytes <= capacity && tiers[tier].tier().used_bytes() <= capacity - bytes);
}

void StoreCore::resize(ExtentId id, float keep, std::uint64_t bytes) {
  Extent& extent = index.at(id);
  for (std::uint32_t t = 0; t < tier_count(); ++t) {
    if (extent.on(t)) count_bytes(extent, t, bytes - extent.bytes);
  }
  extent.keep = keep;
  extent.bytes = bytes;
  if (extent.tiers != 0) placer.changed(id);
}

IndexRecord StoreCore::record_of(ExtentId id) const {
  IndexRecord record;
  record.type = Type::kStored;
  record.realm = index.realms()[index.at(id).realm];
  record.facts = index.facts(id);
  if (!record.facts.exact && !options.placement.believes_others) record.facts.quality = 0;
  return record;
}

void StoreCore::log_stored(ExtentId id, std::uint32_t tier) { log(tier, record_of(id)); }

void StoreCore::remove_from(ExtentId id, std::uint32_t tier) {
  const Extent& extent = index.at(id);
  TierState& state = tiers[tier];
  IndexRecord record;
  record.type = Type::kRemoved;
  record.name = extent.name;
  record.tag = extent.names[0];
  record.bytes = extent.bytes;
  log(tier, std::move(record));
  ++state.counts.removed;
  add_job(make_remove_job(*this, tier, {extent.name, extent.names[0]}, index.realms()[extent.realm].tenant));
  clear_on(id, tier);
}

void StoreCore::log_writing(std::uint32_t tier, const BlobOwner& owner, std::uint64_t bytes) {
  IndexRecord record;
  record.type = Type::kWriting;
  record.name = owner.name;
  record.tag = owner.tag;
  record.bytes = bytes;
  log(tier, std::move(record));
}

void StoreCore::log_settled(std::uint32_t tier, const BlobOwner& owner) {
  IndexRecord record;
  record.type = Type::kSettled;
  record.name = owner.name;
  record.tag = owner.tag;
  log(tier, std::move(record));
}

bool StoreCore::begin_write(std::uint32_t tier, const BlobOwner& owner, std::uint64_t bytes) {
  TierState& state = tiers[tier];
  if (state.removing.contains(owner.name) || !state.writing.emplace(owner.name, owner.tag).second) return false;
  ++state.changes;
  log_writing(tier, owner, bytes);
  return true;
}

void StoreCore::end_write(std::uint32_t tier, const BlobOwner& owner, bool written) {
  TierState& state = tiers[tier];
  state.writing.erase(owner.name);
  --state.changes;
  if (!written) log_settled(tier, owner);
}

void Store::begin_own(std::uint32_t tier, const Hash128& object, std::uint64_t bytes) {
  {
    const std::lock_guard lock(core_->mutex);
    TierState& state = core_->tiers[tier];
    ++state.changes;
    state.own_objects[object] = {.bytes = bytes, .writing = true};
    core_->log_writing(tier, {object, 0}, bytes);
  }
  core_->flush_soon(tier);
}

void Store::written_own(std::uint32_t tier, const Hash128& object) {
  const std::lock_guard lock(core_->mutex);
  TierState& state = core_->tiers[tier];
  const auto own = state.own_objects.find(object);
  if (own != state.own_objects.end() && std::exchange(own->second.writing, false)) --state.changes;
}

void Store::end_own(std::uint32_t tier, const Hash128& object) {
  written_own(tier, object);
  const std::lock_guard lock(core_->mutex);
  if (core_->tiers[tier].own_objects.contains(object)) core_->add_job(make_remove_job(*core_, tier, {object, 0}));
}

void StoreCore::expire() {
  if (clock.now_s() < next_expiry_s_) return;
  next_expiry_s_ = clock.now_s() + kExpireEveryS;
  const double wall = wall_s();
  std::vector<std::pair<double, Hash128>> later;  // in use, or pinned
  for (; !expiries.empty() && expiries.top().first <= wall; expiries.pop()) {
    const auto found = index.find(expiries.top().second);
    if (!found || index.at(*found).expires_s == 0 || index.at(*found).expires_s > wall) continue;
    const ExtentId id = *found;
    if (index.at(id).uses > 0 || index.at(id).pinned(wall)) {
      later.push_back(expiries.top());
      continue;
    }
    ++counts.expired_extents;
    use(id);
    for (std::uint32_t t = 0; t < tier_count(); ++t) {
      const bool may = !tiers[t].tier().read_only() && (tiers[t].config.folder.empty() || tiers[t].leads);
      if (index.at(id).on(t) && may) remove_from(id, t);
    }
    unuse(id);
  }
  for (const auto& expiry : later) expiries.push(expiry);
}

void StoreCore::log_where(const Extent& extent, const IndexRecord& record) {
  for (std::uint32_t t = 0; t < tier_count(); ++t) {
    if (extent.on(t)) log(t, record);
  }
}

void StoreCore::log_lease(const Extent& extent) {
  IndexRecord record;
  record.type = Type::kLease;
  record.name = extent.name;
  record.until_s = extent.pins > 0 ? wall_s() + kLeaseS : 0;
  record.expires_s = extent.expires_s;
  log_where(extent, record);
}

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

bool StoreCore::recently_asked(std::uint64_t tag) const {
  const auto question = asked.find(tag);
  return asking.contains(tag) || (question != asked.end() && question->second + kAskAgainAfterS > clock.now_s());
}

void StoreCore::forget_asked() {
  const double now = clock.now_s();
  std::erase_if(asked, [&](const auto& question) { return question.second + kAskAgainAfterS < now; });
}

}  // namespace shale
