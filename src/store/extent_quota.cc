// What a tenant's extents may take together (StoreOptions::tenant_bytes): its own make room for what it saves.
#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>

#include "store/extent_placer.h"
#include "store/store_core.h"

namespace shale {
namespace {

// Saturating: 0 where there is room.
std::uint64_t beyond(std::uint64_t bytes, std::uint64_t bytes_max) { return bytes > bytes_max ? bytes - bytes_max : 0; }

}  // namespace

// Of all its copies that count.
std::uint64_t ExtentPlacer::bytes_of(const Group& group) const {
  unsigned counted = 0;
  for (std::uint32_t t = 0; t < core_.tier_count(); ++t) counted |= unsigned{!core_.tiers[t].config.shared} << t;
  std::uint64_t bytes = 0;
  for (const ExtentId id : group.members) {
    const Extent& extent = core_.index.at(id);
    bytes += extent.bytes * static_cast<std::uint64_t>(std::popcount(extent.tiers & counted));
  }
  return bytes;
}

// Seconds of computing that those who will ask are spared.
double ExtentPlacer::worth(const Group& group) const {
  const double wall = core_.wall_s();
  double frequency = 0;
  for (const ExtentId id : group.members) frequency = std::max(frequency, frequency_of(core_.index.at(id), wall));
  return frequency * recompute_s(group);
}

// Whether this store may remove all copies that count, and nobody uses them.
bool ExtentPlacer::may_go(const Group& group) const {
  if (group.wanted || group.members.empty()) return false;
  const double wall = core_.wall_s();
  return std::ranges::all_of(group.members, [&](ExtentId id) {
    const Extent& extent = core_.index.at(id);
    bool removable = extent.uses == 0 && !extent.pinned(wall);
    for (std::uint32_t t = 0; t < core_.tier_count(); ++t) {
      removable = removable && (!extent.on(t) || core_.tiers[t].config.shared || may_remove(t));
    }
    return removable;
  });
}

void ExtentPlacer::remove_copies(GroupId number) {
  for (const ExtentId id : std::vector(groups_[number].members)) {
    core_.use(id);
    for (std::uint32_t t = 0; t < core_.tier_count(); ++t) {
      if (core_.index.at(id).on(t) && !core_.tiers[t].config.shared) core_.remove_from(id, t);
    }
    core_.unuse(id);
  }
}

// Removes groups of the tenant, those worth least a byte first, until so many bytes are free that were not. Nothing,
// and false, where that would take one worth as much as `worth_max` a byte.
bool ExtentPlacer::drop_for_room(TenantState& tenant, std::uint64_t bytes, GroupId spared, double worth_max) {
  if (bytes == 0) return true;
  std::vector<std::tuple<double, GroupId, std::uint64_t>> own;
  for (GroupId number = 0; number < groups_.size(); ++number) {
    const Group& group = groups_[number];
    if (number == spared || !may_go(group)) continue;
    if (core_.index.at(group.members.front()).realm != tenant.number) continue;
    const std::uint64_t taken = bytes_of(group);
    if (taken > 0) own.emplace_back(worth(group) / static_cast<double>(taken), number, taken);
  }
  std::ranges::sort(own);
  std::size_t gone = 0;
  for (std::uint64_t freed = 0; freed < bytes; freed += std::get<2>(own[gone++])) {
    if (gone == own.size() || std::get<0>(own[gone]) >= worth_max) return false;
  }
  for (std::size_t i = 0; i < gone; ++i) remove_copies(std::get<1>(own[i]));
  tenant.counts.dropped_for_room += gone;
  return true;
}

bool ExtentPlacer::admit(ExtentId id, TenantState& tenant) {
  if (tenant.counts.bytes_max == 0) return true;
  const GroupId number = join(id);
  const std::uint64_t bytes = core_.index.at(id).bytes;
  const std::uint64_t taken = core_.bytes_of(tenant) + tenant.bytes_promised + bytes;
  const double own_worth = worth(groups_[number]) / static_cast<double>(bytes);
  if (bytes > tenant.counts.bytes_max) return false;
  if (!drop_for_room(tenant, beyond(taken, tenant.counts.bytes_max), number, own_worth)) return false;
  tenant.bytes_promised += bytes;
  return true;
}

// Moves, other processes and an earlier one's bounds put a tenant beyond its own. While something of it moves, it lies
// in two places.
void ExtentPlacer::keep_quotas() {
  for (const auto& [name, bytes_max] : core_.options.tenant_bytes) {
    TenantState& tenant = core_.tenant(name);
    const std::uint64_t over = beyond(core_.bytes_of(tenant), bytes_max);
    if (over == 0) continue;
    const bool moves = std::ranges::any_of(groups_, [&](const Group& group) {
      return group.job && !group.members.empty() && core_.index.at(group.members.front()).realm == tenant.number;
    });
    if (!moves) drop_for_room(tenant, over, kNoGroup, std::numeric_limits<double>::infinity());
  }
}

}  // namespace shale
