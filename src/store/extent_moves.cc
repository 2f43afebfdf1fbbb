// The moves that the placement decides, from their jobs' beginning to what is given up at their end.
#include <algorithm>
#include <utility>

#include "store/extent_placer.h"
#include "store/store_core.h"

namespace shale {
namespace {

constexpr double kQuietS = 5;  // after a move that could not be made

}  // namespace

// Removals and writes in flight where the group leaves, or, where it lay nowhere, comes to lie.
unsigned* ExtentPlacer::changes_by(const Group& group) {
  const std::uint32_t tier = group.from.tier != kDropped ? group.from.tier : group.wanted->tier;
  return tier != kDropped ? &core_.tiers[tier].changes : nullptr;
}

// New extents hold up no moves, which make their room.
unsigned& ExtentPlacer::in_flight(const Group& group) { return group.from.tier == kDropped ? becoming_ : moving_; }

// Modulo 2^32: or one fewer.
void ExtentPlacer::count_job(const Group& group, unsigned by) {
  if (group.hangs) return void(hanging_ += by);
  in_flight(group) += by;
  if (group.rises) promoting_ += by;
  if (unsigned* changes = changes_by(group)) *changes += by;
}

// A tier that does not answer holds up the jobs that wait for it, and nothing else: what they would move is taken to
// lie where it was, and its place not to be free. Nothing is made of what lies there.
void ExtentPlacer::note_silence() {
  std::uint32_t news = 0;  // of tiers, a bit each
  for (std::uint32_t t = 0; t < core_.tier_count(); ++t) {
    news |= std::uint32_t{state_->set_silent(t, core_.tiers[t].tier().silent())} << t;
  }
  more_ = more_ || news != 0;
  for (GroupId number = 0; news != 0 && number < groups_.size(); ++number) {
    Group& group = groups_[number];
    const bool lies = std::ranges::any_of(group.members, [&](ExtentId id) { return core_.index.at(id).tiers & news; });
    if (lies || group.job) queue(number);
    if (!group.job) continue;
    count_job(group, -1u);
    group.hangs = would_hang(number);
    count_job(group, 1);
  }
}

// Whether what the group wants is to be read from a silent tier, or written there.
bool ExtentPlacer::would_hang(GroupId number) const {
  const Variant& wanted = *groups_[number].wanted;
  if (wanted.tier == kDropped) return false;
  const auto same = holder(number, wanted.method, wanted.keep);
  const auto source = same ? same : exact(number);
  return core_.tiers[wanted.tier].tier().silent() ||
         (source && core_.tiers[core_.index.at(*source).fastest_tier()].tier().silent());
}

// Begins the job that makes what the group wants of what it has been. finish() ends it.
void ExtentPlacer::begin_job(Group& group, const Variant& from, bool rises) {
  group.from = from;
  group.job = true;
  group.rises = rises;
  count_job(group, 1);
}

void ExtentPlacer::start_move(PlacementSlot slot, const PlacedPrefix&, const Candidate& from, const Candidate& to) {
  const GroupId number = by_slot_[slot];
  Group& group = groups_[number];
  const Variant wanted{to.method, to.keep, to.tier};
  group.wanted = wanted;
  if (would_hang(number)) {  // it stays where it is for a while
    group.wanted.reset();
    group.quiet_until_s = core_.clock.now_s() + kQuietS;
    return queue(number);
  }
  begin_job(group, {from.method, from.keep, from.tier}, rises(from, to));
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
void ExtentPlacer::drop_full_copy(PlacementSlot slot, const PlacedPrefix&) {
  groups_[by_slot_[slot]].no_full_copy = true;
  copies_dropped_.push_back(by_slot_[slot]);
}

void ExtentPlacer::drop_copies() {
  const std::uint32_t lowest = core_.tier_count() - 1;
  for (const GroupId number : std::exchange(copies_dropped_, {})) {
    Group& group = groups_[number];
    if (group.job || !std::exchange(group.no_full_copy, false) || !may_remove(lowest)) continue;
    for (const ExtentId id : std::vector(group.members)) {
      const Extent& extent = core_.index.at(id);
      const bool is_copy = extent.exact && extent.on(lowest) && !extent.pinned(core_.wall_s());
      if (is_copy && !only_here(number, id, lowest)) core_.remove_from(id, lowest);
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

// By others than so many jobs, which have its bytes, and a save that writes a copy of those that it holds.
bool ExtentPlacer::is_read(ExtentId id, std::uint32_t jobs) const {
  const Extent& extent = core_.index.at(id);
  return extent.uses > jobs + core_.tiers[core_.tier_count() - 1].writing.count(extent.name);
}

bool ExtentPlacer::being_read(GroupId group, const Variant& made) const {
  return std::ranges::any_of(given_up(groups_[group], made), [&](const auto& copy) { return is_read(copy.first, 0); });
}

bool ExtentPlacer::only_here(GroupId group, ExtentId id, std::uint32_t tier) const {
  return std::ranges::all_of(groups_[group].members, [&](ExtentId other) {
    return (core_.index.at(other).tiers & ~(other == id ? 1u << tier : 0u)) == 0;
  });
}

bool ExtentPlacer::drop_for_room(GroupId group, const Variant& made, bool everywhere, ExtentId source) {
  bool any = false;
  for (const auto& [id, tier] : given_up(groups_[group], made)) {
    if ((tier != made.tier && !everywhere) || is_read(id, id == source ? 1 : 0)) continue;
    core_.remove_from(id, tier);
    any = true;
  }
  return any;
}

void ExtentPlacer::count_move(const Group& group, const Variant& to) {
  const Variant& from = group.from;
  if (to.tier == kDropped) {
    ++core_.counts.dropped_extents;
    return;
  }
  StoreTierStats& counts = core_.tiers[to.tier].counts;
  if (from.tier != kDropped && from.tier < to.tier) ++core_.tiers[from.tier].counts.demoted;
  counts.promoted += group.rises;
  if (to.method != kFullMethod && (from.method != to.method || from.keep > to.keep)) ++counts.compressed;
}

// Whether it is known what answers over the extent are worth: what a planner may have chosen.
bool ExtentPlacer::measured(const Extent& extent) const {
  const auto& quality = core_.options.placement.quality;
  return extent.exact || (quality && quality(extent.run, core_.method_of(extent), grid_keep(extent.keep)) > 0);
}

void ExtentPlacer::finish(GroupId number, const Variant& made, bool done) {
  Group& group = groups_[number];
  count_job(group, -1u);
  group.wanted.reset();
  group.job = group.hangs = false;
  if (done) {
    count_move(group, made);
    for (const auto& [id, tier] : given_up(group, made)) {
      const Extent& extent = core_.index.at(id);
      // A form that nobody measured was asked for: it lies beside what has the blocks' place, until room is short; but
      // not before it, or it would be moved again.
      const bool moved = tier == group.from.tier && numbers_.at(extent.method) == group.from.method;
      const bool before = tier < made.tier || (tier == made.tier && made.method != kFullMethod);
      const bool asked_for = made.tier != kDropped && !measured(extent) && !(moved && before);
      // An exact one beside a lossy one that moved may have been saved since, and is the next move's to decide.
      const bool fresh = extent.exact && group.from.method != kFullMethod && !group.no_full_copy;
      if (!asked_for && !fresh) core_.remove_from(id, tier);
    }
  } else {
    group.quiet_until_s = core_.clock.now_s() + kQuietS;
  }
  group.no_full_copy = false;
  queue(number);
}

}  // namespace shale
