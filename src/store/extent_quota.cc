// What a tenant's extents may take together (Store::set_quota): its own are dropped for what it saves.
#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "store/extent_placer.h"
#include "store/store_core.h"

namespace shale {

struct ExtentPlacer::Droppable {
  double worth = 0;  // a byte
  std::uint32_t first_block = 0;
  GroupId group = 0;
  std::uint64_t bytes = 0;
};

void ExtentPlacer::set_quota(TenantState& tenant, std::uint64_t bytes_max) {
  tenant.counts.bytes_max = bytes_max;
  if (bytes_max > 0) {
    bounded_.insert(tenant.counts.tenant);
    more_ = true;
  } else {
    bounded_.erase(tenant.counts.tenant);
  }
}

// Bytes of all its copies that count.
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
double ExtentPlacer::worth(const Group& group, double wall_s) const {
  const double half_life_s = core_.options.frequency_half_life_s;
  double frequency = 0;
  for (const ExtentId id : group.members)
    frequency = std::max(frequency, core_.index.at(id).frequency_at(wall_s, half_life_s));
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

// The tenant's groups, least first. An extent cannot be used without what comes before it: each one of a run is worth
// as much as any that follows it.
std::vector<ExtentPlacer::Droppable> ExtentPlacer::by_worth(const TenantState& tenant) const {
  const double wall = core_.wall_s();
  std::unordered_map<Hash128, std::vector<Droppable>> runs;
  for (GroupId number = 0; number < groups_.size(); ++number) {
    if (groups_[number].members.empty()) continue;
    const Extent& any = core_.index.at(groups_[number].members.front());
    if (any.realm != tenant.number) continue;
    const std::uint64_t bytes = bytes_of(groups_[number]);
    const double worth_a_byte = worth(groups_[number], wall) / static_cast<double>(bytes > 0 ? bytes : any.bytes);
    runs[any.run].push_back({worth_a_byte, any.first_block, number, bytes});
  }
  std::vector<Droppable> all;
  for (auto& [run, groups] : runs) {
    std::ranges::sort(groups, std::ranges::greater(), &Droppable::first_block);
    double worth_most = 0;
    for (Droppable& each : groups) each.worth = worth_most = std::max(worth_most, each.worth);
    all.insert(all.end(), groups.begin(), groups.end());
  }
  std::ranges::sort(all, [](const Droppable& a, const Droppable& b) {
    return std::tuple(a.worth, b.first_block, a.group) < std::tuple(b.worth, a.first_block, b.group);
  });
  return all;
}

// Removes groups of the tenant, those worth least a byte first, until so many bytes are free that were not. Nothing,
// and false, where that would take one worth as much as the group for which it is done, if any.
bool ExtentPlacer::drop_for_room(TenantState& tenant, std::uint64_t bytes, GroupId spared) {
  if (bytes == 0) return true;
  std::vector<Droppable> own = by_worth(tenant);
  const auto its = std::ranges::find(own, spared, &Droppable::group);
  const double worth_max = its == own.end() ? std::numeric_limits<double>::infinity() : its->worth;
  std::erase_if(own, [&](const Droppable& each) {
    return each.bytes == 0 || each.group == spared || !may_go(groups_[each.group]);
  });
  std::size_t gone = 0;
  for (std::uint64_t freed = 0; freed < bytes; freed += own[gone++].bytes) {
    if (gone == own.size() || own[gone].worth >= worth_max) return false;
  }
  for (std::size_t i = 0; i < gone; ++i) remove_copies(own[i].group);
  tenant.counts.dropped_for_room += gone;
  return true;
}

bool ExtentPlacer::admit(ExtentId id, TenantState& tenant) {
  if (tenant.counts.bytes_max == 0) return true;
  const GroupId number = join(id);
  const std::uint64_t bytes = core_.index.at(id).bytes;
  const std::uint64_t taken = core_.bytes_of(tenant) + tenant.bytes_promised + bytes;
  if (bytes > tenant.counts.bytes_max) return false;
  if (!drop_for_room(tenant, taken - std::min(taken, tenant.counts.bytes_max), number)) return false;
  tenant.bytes_promised += bytes;
  return true;
}

// Moves, other processes and an earlier one's bounds put a tenant beyond its own. While something of it moves, it lies
// in two places.
void ExtentPlacer::keep_quotas() {
  for (const std::string& name : bounded_) {
    TenantState& tenant = core_.tenant(name);
    const std::uint64_t taken = core_.bytes_of(tenant);
    if (taken <= tenant.counts.bytes_max) continue;
    const bool moves = std::ranges::any_of(groups_, [&](const Group& group) {
      return group.job && !group.hangs && !group.members.empty() &&
             core_.index.at(group.members.front()).realm == tenant.number;
    });
    if (!moves) drop_for_room(tenant, taken - tenant.counts.bytes_max, kNoGroup);
  }
}

}  // namespace shale
