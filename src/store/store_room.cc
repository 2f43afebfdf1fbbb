// Room on tiers: what goes where when one is full, what expires, what is pinned.
#include <algorithm>

#include "store/store_core.h"

namespace shale {
namespace {

using Type = IndexRecord::Type;

constexpr double kExpireEveryS = 2;
constexpr double kLeaseS = 60, kRenewEveryS = 20;  // a pin of a process that dies lapses
constexpr double kAskAgainAfterS = 1;
constexpr std::size_t kOffersMin = 4096;

}  // namespace

bool StoreCore::has_room(std::uint32_t tier, std::uint64_t bytes) const {
  const Tier& to = tiers[tier].tier();
  const std::uint64_t capacity = to.capacity_bytes();
  return capacity == kUnlimited || (bytes <= capacity && to.used_bytes() <= capacity - bytes);
}

bool StoreCore::make_room(std::uint32_t tier, std::uint64_t bytes) {
  if (has_room(tier, bytes)) return true;
  TierState& state = tiers[tier];
  const std::uint64_t capacity = state.tier().capacity_bytes();
  if (bytes > capacity || state.config.shared || (state.folder && !state.leads)) return false;
  const double wall = wall_s();
  const auto gone = [&](ExtentId id) { return !index.at(id).on(tier); };
  const auto movable = [&](ExtentId id) {
    const Extent& extent = index.at(id);
    const bool stays = tier + 1 < tier_count() || (extent.tiers & ~(1u << tier)) != 0;
    return extent.uses == 0 && (stays || !extent.pinned(wall));
  };
  while (state.tier().used_bytes() + bytes > capacity + state.leaving_bytes) {
    const auto victim = state.order.take(index, movable, gone);
    if (!victim) break;
    demote(tier, *victim);
  }
  return has_room(tier, bytes);
}

// To the next tier below that will have it, unless it lies on another one already; out of the store where there is
// none.
void StoreCore::demote(std::uint32_t tier, ExtentId id) {
  const Extent& extent = index.at(id);
  ++tiers[tier].counts.demoted;
  if ((extent.tiers & ~(1u << tier)) != 0) return remove_from(id, tier);
  for (std::uint32_t below = tier + 1; below < tier_count(); ++below) {
    if (tiers[below].tier().read_only() || !make_room(below, extent.bytes)) continue;
    tiers[tier].leaving_bytes += extent.bytes;
    return add_job(make_move_job(*this, id, tier, below));
  }
  if (!extent.pinned(wall_s())) return remove_from(id, tier);
  tiers[tier].order.offer(id, extent);
}

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
  state.leaving_bytes += extent.bytes;
  add_job(make_remove_job(*this, tier, extent));
  clear_on(id, tier);
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

void StoreCore::pin(ExtentId id, bool on) {
  Extent& extent = index.at(id);
  if (!on && extent.pins == 0) return;
  extent.pins = static_cast<std::uint16_t>(extent.pins + (on ? 1 : -1));
  if (extent.pins > 0) {
    pinned.insert(id);
  } else {
    pinned.erase(id);
  }
  IndexRecord record;
  record.type = Type::kLease;
  record.name = extent.name;
  record.until_s = extent.pins > 0 ? wall_s() + kLeaseS : 0;
  record.expires_s = extent.expires_s;
  for (std::uint32_t t = 0; t < tier_count(); ++t) {
    if (extent.on(t)) log(t, record);
  }
}

void StoreCore::renew_leases() {
  if (clock.now_s() < next_renewal_s_) return;
  next_renewal_s_ = clock.now_s() + kRenewEveryS;
  for (const ExtentId id : pinned) {
    const Extent& extent = index.at(id);
    IndexRecord record;
    record.type = Type::kLease;
    record.name = extent.name;
    record.until_s = wall_s() + kLeaseS;
    record.expires_s = extent.expires_s;
    for (std::uint32_t t = 0; t < tier_count(); ++t) {
      if (extent.on(t)) log(t, record);
    }
  }
}

bool StoreCore::recently_asked(std::uint64_t tag) const {
  const auto question = asked.find(tag);
  return asking.contains(tag) || (question != asked.end() && question->second + kAskAgainAfterS > clock.now_s());
}

void StoreCore::forget_asked() {
  const double now = clock.now_s();
  std::erase_if(asked, [&](const auto& question) { return question.second + kAskAgainAfterS < now; });
}

void StoreCore::tidy_orders() {
  for (std::uint32_t t = 0; t < tier_count(); ++t) {
    if (tiers[t].order.size() <= 2 * tiers[t].counts.extents + kOffersMin) continue;
    tiers[t].order = DemotionOrder(options.frequency_half_life_s);
    index.for_each([&](ExtentId id, const Extent& extent) {
      if (extent.on(t)) tiers[t].order.offer(id, extent);
    });
  }
}

}  // namespace shale
