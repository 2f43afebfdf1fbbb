#include "store/extent_placer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "scoring/observations.h"
#include "store/store_core.h"

namespace shale {
namespace {

constexpr std::size_t kRevisedARound = 256;  // groups of which something was noted
constexpr std::size_t kLookedAtAtOnce = 8;   // others: speeds and qualities change without a note
constexpr unsigned kMovesMax = 64;           // under way; nothing more is decided beyond that
constexpr double kQuietS = 5;                // after a move that could not be made
// A leader keeps so much of a folder's tier free, so that those who may not make room find some.
constexpr std::uint64_t kHeadroomMax = std::uint64_t{64} << 20;
constexpr std::uint64_t kHeadroomShare = 16;  // of the capacity, at most

// To a faster tier, or back from a lossy form.
bool rises(const Variant& from, const Variant& to) {
  return to.tier != kDropped && (to.tier < from.tier || (from.method != kFullMethod && to.method == kFullMethod));
}

// Speeds are measured all the time: what they change by less than this is no news.
bool as_it_was(const PlacedEntry& now, const PlacedEntry& before) {
  constexpr double kNews = 0.1;
  return now.current == before.current && now.pinned == before.pinned &&
         now.full_copy_bytes == before.full_copy_bytes &&
         std::ranges::equal(now.candidates, before.candidates, [](const Candidate& a, const Candidate& b) {
           return a.method == b.method && a.keep == b.keep && a.tier == b.tier && a.bytes == b.bytes &&
                  a.quality == b.quality && std::abs(a.ttft_s - b.ttft_s) <= kNews * b.ttft_s;
         });
}

}  // namespace

Status ExtentPlacer::open() {
  const StorePlacement& options = core_.options.placement;
  SHALE_ASSIGN(planner_, make_planner(options.planner, options.options));
  methods_.push_back(Method::full());
  for (const Method& method : options.methods) {
    SHALE_TRY(method.check());
    if (method.is_full()) return fail(ErrorCode::kInvalidArgument, "extents are kept as full anyway");
    methods_.push_back(method);
  }
  for (const Method& method : methods_) {
    needs_no_ranking_.push_back(method.scorer.empty());
    if (method.scorer.empty()) continue;
    SHALE_ASSIGN(const auto scorer, make_scorer(method.scorer, core_.options.scorers));
    needs_no_ranking_.back() = missing_needs(scorer->needs(), 1, Observations(), core_.options.model).empty();
  }
  std::vector<TierRoom> rooms;
  for (const TierState& tier : core_.tiers) rooms.push_back({tier.tier().capacity_bytes()});
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

void ExtentPlacer::access(ExtentId id) {
  const GroupId group = core_.index.at(id).group;
  if (group == kNoGroup || !groups_[group].slot) return;
  state_->access(*groups_[group].slot, core_.clock.now_s());
  more_ = true;
}

void ExtentPlacer::in_pool(ExtentId id, double share) {
  const GroupId group = core_.index.at(id).group;
  if (group == kNoGroup || !groups_[group].slot) return;
  state_->in_pool(*groups_[group].slot, share);
  more_ = true;
}

// Tells the state what the group can become now.
void ExtentPlacer::revise(GroupId number) {
  Group& group = groups_[number];
  for (const ExtentId id : group.members) {
    Extent& extent = core_.index.at(id);
    if (extent.exact || !core_.options.placement.quality) continue;
    const auto quality = core_.options.placement.quality(extent.run, core_.method_of(extent), grid_keep(extent.keep));
    if (quality) extent.quality = static_cast<float>(*quality);
  }
  if (!group.wanted && !present(group)) {
    if (group.slot) state_->remove(*std::exchange(group.slot, std::nullopt));
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
  PlacedEntry entry = offer(group, std::nullopt);
  if (group.quiet_until_s > core_.clock.now_s()) quiet_.emplace(group.quiet_until_s, number);
  if (group.slot && as_it_was(entry, state_->entry(*group.slot))) return;
  more_ = true;
  if (group.slot) return state_->update(*group.slot, std::move(entry));
  group.slot = state_->add(std::move(entry), core_.clock.now_s());
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
    std::uint64_t capacity = tier.tier().capacity_bytes();
    if (capacity != kUnlimited && may_remove(t)) {
      const std::uint64_t counted =
          state_->used_bytes(t) + (t + 1 == core_.tier_count() ? state_->full_copy_bytes() : 0);
      std::uint64_t others = 0;
      for (const auto& [name, bytes] : tier.others_writing) others += bytes;
      const std::uint64_t used = tier.tier().used_bytes();
      if (tier.changes == 0 && queue_.empty()) tier.uncounted_bytes = used - std::min(used, counted + others);
      const std::uint64_t headroom = tier.folder ? std::min(kHeadroomMax, capacity / kHeadroomShare) : 0;
      capacity -= std::min(capacity, tier.uncounted_bytes + others + headroom);
    } else {
      capacity = kUnlimited;
    }
    if (std::exchange(tier.placed_capacity, capacity) != capacity) state_->set_capacity(t, capacity);
  }
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
  return more_ || !queue_.empty() || (!quiet_.empty() && quiet_.begin()->first <= core_.clock.now_s());
}

bool ExtentPlacer::settle() {
  if (moving_ >= kMovesMax) return false;
  revise_some();
  note_capacities();
  for (std::uint32_t t = 0; t < core_.tier_count(); ++t) {
    if (state_->used_bytes(t) > core_.tiers[t].placed_capacity) remove_spares(t);
  }
  // What rises competes with requests for the tier it comes from, and can wait.
  const bool quiet = promoting_ == 0 && core_.loads_under_way() == 0;
  more_ = state_->settle(quiet ? kPromotionsARound : 0);
  drop_copies();
  return quiet ? due() : !queue_.empty();
}

Problem ExtentPlacer::problem() const { return state_->problem(core_.clock.now_s()); }

std::uint32_t ExtentPlacer::place_new(ExtentId id) {
  const GroupId number = join(id);
  Group& group = groups_[number];
  const std::uint64_t bytes = core_.index.at(id).bytes;
  const bool beside = group.wanted || present(group);
  for (std::uint32_t t = 0; t < core_.tier_count(); ++t) {
    if (core_.tiers[t].tier().read_only()) continue;
    if (core_.has_room(t, bytes)) {
      if (beside) return t;
    } else {
      remove_spares(t);
    }
  }
  if (group.wanted) return kDropped;
  note_capacities();
  PlacedEntry entry = offer(group, id);
  if (group.slot) {
    state_->update(*group.slot, std::move(entry));
  } else {
    group.slot = state_->add(std::move(entry), core_.clock.now_s());
    if (by_slot_.size() <= *group.slot) by_slot_.resize(*group.slot + 1);
    by_slot_[*group.slot] = number;
  }
  state_->place(*group.slot);
  const Candidate& placed = state_->placed(*group.slot);
  drop_copies();
  if (placed.tier == kDropped || placed.method != number_of(core_.index.at(id))) {
    queue(number);  // to where it was
    return kDropped;
  }
  group.wanted = Variant{placed.method, placed.keep, placed.tier};
  state_->pin(*group.slot, true);
  return placed.tier;
}

void ExtentPlacer::written(ExtentId id) {
  const GroupId number = join(id);
  Group& group = groups_[number];
  if (!group.job) group.wanted.reset();
  queue(number);
}

void ExtentPlacer::start_move(PlacementSlot slot, const PlacedEntry&, const Candidate& from, const Candidate& to) {
  const GroupId number = by_slot_[slot];
  Group& group = groups_[number];
  const Variant wanted{to.method, to.keep, to.tier};
  group.wanted = wanted;
  group.from = {from.method, from.keep, from.tier};
  group.job = true;
  ++moving_;
  promoting_ += rises(group.from, wanted);
  if (from.tier != kDropped) ++core_.tiers[from.tier].changes;
  state_->pin(slot, true);
  const auto held = wanted.tier == kDropped ? std::nullopt : holder(number, wanted.method, wanted.keep);
  const bool there = held && core_.index.at(*held).on(wanted.tier);
  if (there && grid_keep(core_.index.at(*held).keep) > wanted.keep) {
    core_.add_job(make_trim_job(core_, number, *held, wanted));
  } else {
    core_.add_job(make_place_job(core_, number, wanted));
  }
}

// What is about to be made of a full copy needs it until then.
void ExtentPlacer::drop_full_copy(PlacementSlot slot, const PlacedEntry&) {
  groups_[by_slot_[slot]].no_full_copy = true;
  copies_dropped_.push_back(by_slot_[slot]);
}

void ExtentPlacer::drop_copies() {
  const std::uint32_t lowest = core_.tier_count() - 1;
  for (const GroupId number : std::exchange(copies_dropped_, {})) {
    Group& group = groups_[number];
    if (group.job || !std::exchange(group.no_full_copy, false) || !may_remove(lowest)) continue;
    const std::vector<ExtentId> members = group.members;
    for (const ExtentId id : members) {
      const Extent& extent = core_.index.at(id);
      const bool others = std::ranges::any_of(members, [&](ExtentId other) {
        return (core_.index.at(other).tiers & ~(other == id ? 1u << lowest : 0u)) != 0;
      });
      if (extent.exact && extent.on(lowest) && others) core_.remove_from(id, lowest);
    }
    queue(number);
  }
}

std::vector<std::pair<ExtentId, std::uint32_t>> ExtentPlacer::given_up(const Group& group, const Variant& made) const {
  std::vector<std::pair<ExtentId, std::uint32_t>> given;
  const std::uint32_t lowest = core_.tier_count() - 1;
  for (const ExtentId id : group.members) {
    const Extent& extent = core_.index.at(id);
    const std::size_t before = given.size();
    bool stays = false;
    for (std::uint32_t t = 0; t <= lowest; ++t) {
      if (!extent.on(t)) continue;
      const bool is_made =
          t == made.tier && numbers_.at(extent.method) == made.method && extent.keep > made.keep - 1e-6;
      const bool full_copy = extent.exact && t == lowest && made.tier < lowest && !group.no_full_copy;
      if (is_made || full_copy || !may_remove(t)) {
        stays = true;
      } else {
        given.emplace_back(id, t);
      }
    }
    if (!stays && extent.pinned(core_.wall_s())) given.resize(before);
  }
  return given;
}

bool ExtentPlacer::being_read(GroupId group, const Variant& made) const {
  return std::ranges::any_of(given_up(groups_[group], made),
                             [&](const auto& copy) { return core_.index.at(copy.first).uses > 0; });
}

bool ExtentPlacer::make_way(GroupId group, const Variant& made, bool everywhere) {
  bool any = false;
  for (const auto& [id, tier] : given_up(groups_[group], made)) {
    if (tier != made.tier && !everywhere) continue;
    core_.remove_from(id, tier);
    any = true;
  }
  return any;
}

void ExtentPlacer::count_move(const Variant& from, const Variant& to) {
  if (to.tier == kDropped) {
    ++core_.counts.dropped_extents;
    return;
  }
  StoreTierStats& counts = core_.tiers[to.tier].counts;
  if (from.tier != kDropped && from.tier < to.tier) ++core_.tiers[from.tier].counts.demoted;
  if (rises(from, to)) ++counts.promoted;
  if (to.method != kFullMethod && (from.method != to.method || from.keep > to.keep)) ++counts.compressed;
}

// Whether it is known what answers over the extent are worth: what a planner may have chosen.
bool ExtentPlacer::measured(const Extent& extent) const {
  const auto& quality = core_.options.placement.quality;
  return extent.exact || (quality && quality(extent.run, core_.method_of(extent), grid_keep(extent.keep)).has_value());
}

void ExtentPlacer::finish(GroupId number, const Variant& made, bool done) {
  Group& group = groups_[number];
  --moving_;
  promoting_ -= rises(group.from, *group.wanted);
  if (group.from.tier != kDropped) --core_.tiers[group.from.tier].changes;
  group.wanted.reset();
  group.job = false;
  if (done) {
    count_move(group.from, made);
    for (const auto& [id, tier] : given_up(group, made)) {
      // A form that nobody measured was asked for: it lies beside what has the blocks' place, until room is short.
      const bool asked_for = !measured(core_.index.at(id));
      if (made.tier == kDropped || !asked_for) core_.remove_from(id, tier);
    }
  } else {
    group.quiet_until_s = core_.clock.now_s() + kQuietS;
  }
  group.no_full_copy = false;
  queue(number);
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
