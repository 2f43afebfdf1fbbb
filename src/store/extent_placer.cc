#include "store/extent_placer.h"

#include <algorithm>
#include <utility>

#include "scoring/attention_statistics.h"
#include "store/store_core.h"

namespace shale {
namespace {

constexpr std::size_t kRevisedARound = 256;  // groups of which something was noted
constexpr std::size_t kLookedAtAtOnce = 8;   // others: speeds and qualities change without a note
constexpr unsigned kMovesMax = 64;           // in flight, hung ones aside; nothing more is decided beyond that
constexpr double kPromotionPatienceS = 2;    // with loads, before one goes on beside them

}  // namespace

ExtentPlacer::ExtentPlacer(StoreCore& core) : core_(core), given_up_(core.options.frequency_half_life_s) {}

Status ExtentPlacer::open() {
  const StorePlacement& options = core_.options.placement;
  SHALE_ASSIGN(planner_, make_planner(options.planner, options.options));
  methods_.push_back(Method::full());
  for (const Method& method : options.methods) {
    SHALE_TRY(method.check());
    if (method.is_full()) return fail(ErrorCode::kInvalidArgument, "extents are kept as full anyway");
    if (!core_.options.geometry.opaque()) {
      SHALE_TRY(check_encodable(core_.options.geometry, method));
    }
    methods_.push_back(method);
  }
  for (const Method& method : methods_) {
    needs_no_ranking_.push_back(method.scorer.empty());
    if (method.scorer.empty()) continue;
    SHALE_ASSIGN(const auto scorer, make_scorer(method.scorer, core_.options.scorers));
    needs_no_ranking_.back() = missing_needs(scorer->needs(), 1, AttentionStatistics(), core_.options.model).empty();
  }
  std::vector<TierRoom> rooms;
  for (const TierState& tier : core_.tiers) rooms.push_back({tier.placed_capacity});
  state_ = std::make_unique<PlacementState>(*planner_,
                                            PlacementOptions{.alpha = options.alpha,
                                                             .half_life_s = core_.options.frequency_half_life_s,
                                                             .move_s_per_byte = options.move_s_per_byte},
                                            std::move(rooms), *this);
  if (options.on_event) state_->record(options.on_event);
  return {};
}

GroupId ExtentPlacer::join(ExtentId id) {
  Extent& extent = core_.index.at(id);
  if (extent.group != kNoGroup) return extent.group;
  const std::size_t words = extent.chunks + (extent.blocks + 1u) / 2;
  const std::uint64_t hash = hash64(std::as_bytes(std::span(extent.names.get(), words)), extent.blocks);
  number_of(extent);
  const auto known = by_hash_.find(hash);
  GroupId group = known != by_hash_.end() ? known->second : static_cast<GroupId>(groups_.size());
  if (known == by_hash_.end()) {
    if (free_.empty()) {
      groups_.emplace_back();
    } else {
      group = free_.back();
      free_.pop_back();
    }
    groups_[group].hash = hash;
    by_hash_.emplace(hash, group);
  }
  groups_[group].members.push_back(id);
  return extent.group = group;
}

void ExtentPlacer::leave(Group& group) {
  if (!group.slot) return;
  const double now_s = core_.clock.now_s();
  given_up_.note(group.hash, state_->frequency(*group.slot, now_s), now_s);
  state_->remove(*std::exchange(group.slot, std::nullopt));
}

void ExtentPlacer::queue(GroupId group) {
  if (!std::exchange(groups_[group].queued, true)) queue_.push_back(group);
}

void ExtentPlacer::changed(ExtentId id) { queue(join(id)); }

void ExtentPlacer::forget(ExtentId id) {
  const GroupId group = core_.index.at(id).group;
  if (group == kNoGroup) return;
  std::erase(groups_[group].members, id);
  queue(group);
}

void ExtentPlacer::access(ExtentId id, double share) {
  const GroupId group = core_.index.at(id).group;
  if (group == kNoGroup || !groups_[group].slot) return;
  state_->access(*groups_[group].slot, core_.clock.now_s(), share);
  const bool partly_read = core_.options.placement.options.read_keep < 1;
  if (partly_read && core_.index.at(id).importance == 0) queue(group);  // its manifest is about to be read
  more_ = true;
}

void ExtentPlacer::in_pool(ExtentId id, double share, PoolNews news, bool lossy) {
  const GroupId group = core_.index.at(id).group;
  if (group == kNoGroup || !groups_[group].slot) return;
  const PlacementSlot slot = *groups_[group].slot;
  const double before = state_->pool_share(slot);
  if (news == PoolNews::kHeld && share <= before) lossy = state_->pool_lossy(slot) && (lossy || share < before);
  if (news == PoolNews::kHeld) share = std::max(share, before);
  state_->in_pool(slot, share, core_.clock.now_s(), news == PoolNews::kEvicted, lossy);
  more_ = true;
}

// Tells the state what the group can become now.
void ExtentPlacer::revise(GroupId number) {
  Group& group = groups_[number];
  for (const ExtentId id : group.members) {
    Extent& extent = core_.index.at(id);
    if (extent.exact || !core_.options.placement.quality) continue;
    const auto quality = core_.options.placement.quality(extent.run, core_.method_of(extent), grid_keep(extent.keep));
    if (quality || !core_.options.placement.believes_others) {
      extent.quality = static_cast<float>(quality.value_or(0));
    }
  }
  if (!group.wanted && !present(group)) {
    leave(group);
    more_ = true;
    if (!group.members.empty() || group.hash == 0) return;
    by_hash_.erase(group.hash);
    spares_.erase(number);
    group = {};
    free_.push_back(number);
    return;
  }
  if (group.wanted && group.members.empty()) return;  // until the job has ended
  const std::optional<Variant> kept = present(group);
  if (kept && !given_up(group, *kept).empty()) {
    spares_.insert(number);
  } else {
    spares_.erase(number);
  }
  PlacedPrefix prefix = offer(group, std::nullopt);
  if (group.quiet_until_s > core_.clock.now_s()) quiet_.emplace(group.quiet_until_s, number);
  if (group.slot && as_it_was(prefix, state_->prefix(*group.slot))) return;
  more_ = true;
  tell(number, std::move(prefix));
}

void ExtentPlacer::tell(GroupId number, PlacedPrefix prefix) {
  Group& group = groups_[number];
  if (group.slot) return state_->update(*group.slot, std::move(prefix));
  group.slot = state_->add(std::move(prefix), core_.clock.now_s());
  if (by_slot_.size() <= *group.slot) by_slot_.resize(*group.slot + 1);
  by_slot_[*group.slot] = number;
}

void ExtentPlacer::revise_some() {
  for (; !quiet_.empty() && quiet_.begin()->first <= core_.clock.now_s(); quiet_.erase(quiet_.begin())) {
    queue(quiet_.begin()->second);
  }
  for (std::size_t i = 0; i < kRevisedARound && !queue_.empty(); ++i) {
    const GroupId group = queue_.front();
    queue_.pop_front();
    groups_[group].queued = false;
    revise(group);
  }
}

void ExtentPlacer::look_at_some() {
  note_silence();
  for (std::size_t i = 0; i < std::min(kLookedAtAtOnce, groups_.size()); ++i) {
    revised_ = revised_ + 1 < groups_.size() ? revised_ + 1 : 0;
    if (groups_[revised_].slot) revise(static_cast<GroupId>(revised_));
  }
}

// What others may not remove is no room, and what the state does not count takes some: known while nothing is written
// or removed.
void ExtentPlacer::note_capacities() {
  for (std::uint32_t t = 0; t < core_.tier_count(); ++t) {
    TierState& tier = core_.tiers[t];
    std::uint64_t capacity = tier.capacity_bytes();
    if (capacity > 0 && capacity != kUnlimited && may_remove(t)) {
      const std::uint64_t counted =
          state_->used_bytes(t) + (t + 1 == core_.tier_count() ? state_->full_copy_bytes() : 0);
      const std::uint64_t others = tier.others_bytes(), used = tier.tier().used_bytes();
      if (tier.changes == 0 && queue_.empty()) tier.uncounted_bytes = used - std::min(used, counted + others);
      capacity -= std::min(capacity, tier.uncounted_bytes + others + tier.headroom_bytes());
    } else if (capacity > 0) {
      capacity = kUnlimited;
    }
    if (std::exchange(tier.placed_capacity, capacity) != capacity) state_->set_capacity(t, capacity);
  }
}

bool ExtentPlacer::has_room(std::uint32_t tier, std::uint64_t bytes) const {
  return core_.has_room(tier, bytes) && bytes <= state_->free_bytes(tier);
}

// Variants that lie beside their groups' present ones and have no place of their own.
void ExtentPlacer::remove_spares(std::uint32_t tier) {
  if (!may_remove(tier)) return;
  for (const GroupId number : std::vector<GroupId>(spares_.begin(), spares_.end())) {
    const Group& group = groups_[number];
    const std::optional<Variant> kept = present(group);
    if (group.wanted || !kept) continue;
    for (const auto& [id, t] : given_up(group, *kept)) {
      if (t != tier || core_.index.at(id).uses > 0 || core_.index.at(id).pinned(core_.wall_s())) continue;
      const std::uint64_t bytes = core_.index.at(id).bytes;
      core_.tiers[t].uncounted_bytes -= std::min(core_.tiers[t].uncounted_bytes, bytes);
      core_.remove_from(id, t);
    }
  }
  note_capacities();
}

bool ExtentPlacer::due() const {
  const bool over_quiet = !quiet_.empty() && quiet_.begin()->first <= core_.clock.now_s();
  return more_ || !queue_.empty() || over_quiet || (promotions_wait_ && promotions_now() > 0);
}

bool ExtentPlacer::crowded() const { return becoming_ >= kMovesMax; }

bool ExtentPlacer::settle() {
  note_silence();
  if (moving_ >= kMovesMax) return false;
  revise_some();
  note_capacities();
  for (std::uint32_t t = 0; t < core_.tier_count(); ++t) {
    if (state_->used_bytes(t) > core_.tiers[t].placed_capacity) remove_spares(t);
  }
  const std::uint32_t promotions = promotions_now();
  const bool left = state_->settle(promotions);
  if (promotions > 0) promoted_s_ = core_.clock.now_s();
  more_ = left && promotions > 0;
  promotions_wait_ = left && promotions == 0;
  drop_copies();
  keep_quotas();
  return due();
}

// How many a round may look at. What rises competes with requests for the tier that it comes from, and with what rises
// already. It waits for them, but not for ever.
std::uint32_t ExtentPlacer::promotions_now() const {
  if (promoting_ == 0 && core_.loads_in_flight() == 0) return kPromotionsARound;
  return core_.clock.now_s() > promoted_s_ + kPromotionPatienceS ? 1 : 0;
}

Problem ExtentPlacer::problem() const { return state_->problem(core_.clock.now_s()); }

Variant ExtentPlacer::place_new(ExtentId id, bool may_become) {
  note_silence();
  const GroupId number = join(id);
  Group& group = groups_[number];
  const Extent& extent = core_.index.at(id);
  Variant itself{number_of(extent), grid_keep(extent.keep), kDropped};
  const bool lay = group.wanted || present(group);
  for (std::uint32_t t = 0; t < core_.tier_count() && itself.tier == kDropped; ++t) {
    if (core_.tiers[t].tier().read_only()) continue;
    const bool room = has_room(t, extent.bytes);
    if (!room && !core_.tiers[t].tier().silent()) remove_spares(t);
    if (room && lay) itself.tier = t;
  }
  if (group.wanted || (itself.tier != kDropped && !may_become)) return itself;
  note_capacities();
  PlacedPrefix prefix = offer(group, New{id, may_become});
  if (lay) prefix = state_->that_fit(std::move(prefix));
  prefix.frequency += given_up_.frequency(group.hash, core_.clock.now_s());
  tell(number, std::move(prefix));
  state_->place(*group.slot);
  const Candidate& placed = state_->placed(*group.slot);
  drop_copies();
  const bool becomes = placed.method != itself.method;
  const auto same = becomes ? holder(number, placed.method, placed.keep) : std::nullopt;
  const bool there = same && core_.index.at(*same).on(placed.tier);
  if (placed.tier == kDropped || there || (becomes && !may_become)) {
    queue(number);  // to where it was
    return itself;
  }
  group.wanted = Variant{placed.method, placed.keep, placed.tier};
  group.saved = id;
  state_->pin(*group.slot, true);
  return *group.wanted;
}

std::shared_ptr<const std::optional<bool>> ExtentPlacer::become(ExtentId id, std::shared_ptr<const ExtentBlobs> blobs) {
  const GroupId number = core_.index.at(id).group;
  Group& group = groups_[number];
  begin_job(group, Variant(), false);
  auto made = std::make_shared<std::optional<bool>>();
  core_.add_job(make_become_job(core_, number, *group.wanted, id, std::move(blobs), made));
  return made;
}

bool ExtentPlacer::lies(ExtentId id) const { return present(groups_[core_.index.at(id).group]).has_value(); }

void ExtentPlacer::written(ExtentId id) {
  const GroupId number = join(id);
  Group& group = groups_[number];
  if (group.job || (group.wanted && group.saved != id)) return queue(number);
  group.wanted.reset();
  revise(number);  // at once: what comes next may take its place
}

Status ExtentPlacer::check_integrity() const {
  SHALE_TRY(state_->check_integrity());
  for (GroupId number = 0; number < groups_.size(); ++number) {
    const Group& group = groups_[number];
    for (const ExtentId id : group.members) {
      if (core_.index.at(id).group != number) return fail(ErrorCode::kInternal, "group {} has a stranger", number);
    }
    if (group.queued || group.wanted || !group.slot) continue;
    const Candidate& placed = state_->placed(*group.slot);
    if (present(group) != Variant{placed.method, placed.keep, placed.tier}) {
      return fail(ErrorCode::kInternal, "group {} does not lie where the placement says", number);
    }
  }
  return {};
}

}  // namespace shale
