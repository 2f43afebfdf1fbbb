// Which variant of every extent lies on which tier: the store's side of a PlacementState.
//
//   StoreCore ── changed, access, place_new ──> ExtentPlacer ── add, update, access, place, settle ──> PlacementState
//        <── jobs that copy, encode and cut ──┘      <── start_move, drop_full_copy ──────────────────┘
//
// Extents of the same blocks are a *group*, a cached prefix of the state. A group's present variant is the one that
// answers requests best; the exact extent on the lowest tier that lies beside it is its full copy.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "codec/method.h"
#include "extents/extent_index.h"
#include "extents/store_placement.h"
#include "placement/given_up.h"

namespace shale {

class StoreCore;
class StoreJob;
struct ExtentBlobs;
struct TenantState;

using GroupId = std::uint32_t;

// Everything with the core's mutex held.
class ExtentPlacer final : public PlacementBackend {
 public:
  explicit ExtentPlacer(StoreCore& core);
  // kInvalidArgument for unknown planners and methods.
  Status open();
  // Whether its planner stores anything.
  bool stores() const { return planner_->stores(); }

  // The extent was added to the index, or lies elsewhere, or is pinned or not: its group is looked at again.
  void changed(ExtentId id);
  // It is about to leave the index.
  void forget(ExtentId id);
  void access(ExtentId id, double share);
  // So much of it lies in the owner's memory: at least, for what is held. The larger of two shares says whether it is
  // lossy; of equal ones, the exact one.
  void in_pool(ExtentId id, double share, PoolNews news, bool lossy);
  // A tier has more or less for this store to place.
  void room_changed() { more_ = true; }
  // Where a new extent that is about to be written goes, and as what: another variant than itself only where it
  // `may_become` one. For blocks that have a place nothing else is demoted; where that is as good, it goes beside it.
  // kDropped: others are worth more. The group keeps its place until written() says how it ended.
  Variant place_new(ExtentId id, bool may_become);
  void written(ExtentId id);
  // Store::set_quota().
  void set_quota(TenantState& tenant, std::uint64_t bytes_max);
  // Whether the tenant, whose extent it is, may have another copy of it, which is about to be written; its own are
  // dropped for it. The bytes are promised then, until the caller takes that back.
  bool admit(ExtentId id, TenantState& tenant);
  // Makes of the extent's blobs what place_new() said that it becomes, and writes that in its stead. Whether it was
  // written, once that is known.
  std::shared_ptr<const std::optional<bool>> become(ExtentId id, std::shared_ptr<const ExtentBlobs> blobs);
  // Whether its blocks lie anywhere, in whatever form.
  bool lies(ExtentId id) const;

  // Whether as many new extents are on their way as may be.
  bool crowded() const;
  // Whether it had better wait before it is placed: for those, or because its blocks are on their way elsewhere.
  bool waits(ExtentId id) { return crowded() || groups_[join(id)].job; }

  // A round: looks again at what has changed, demotes and promotes a few. True where there is more to do at once.
  bool settle();
  // Looks at tiers, and at a few groups, of which nothing was noted; now and then.
  void look_at_some();
  bool due() const;  // whether a round would do anything
  std::uint64_t moves_left() const { return std::uint64_t{moving_} + becoming_ + hanging_ + due(); }
  Problem problem() const;
  Status check_integrity() const;
  // For something that the state does not count, or not yet, without anything that it counts giving way.
  bool has_room(std::uint32_t tier, std::uint64_t bytes) const;
  // Whether this store may delete there.
  bool may_remove(std::uint32_t tier) const;
  std::uint64_t full_copy_bytes() const { return state_->full_copy_bytes(); }

  const Method& method(std::uint32_t number) const { return methods_[number]; }
  // The member that lies, at that keep or a larger one, as the variant would; the fastest. Nothing where there is none.
  std::optional<ExtentId> holder(GroupId group, std::uint32_t method, double keep) const;
  // The exact member from which all others can be made.
  std::optional<ExtentId> exact(GroupId group) const { return holder(group, kFullMethod, 1); }
  // A job has ended. Where the group is now as the variant says, what it gives up is removed.
  void finish(GroupId group, const Variant& made, bool done);
  bool hangs(GroupId group) const { return groups_[group].hangs; }
  // Whether what the group would give up is being read.
  bool being_read(GroupId group, const Variant& made) const;
  // Whether nothing of the group lies anywhere else than this extent on this tier.
  bool only_here(GroupId group, ExtentId id, std::uint32_t tier) const;
  // Removes what the group gives up on the variant's own tier, or everywhere, and nobody reads but the job that has the
  // bytes of `source` in hand. True where there was any.
  bool drop_for_room(GroupId group, const Variant& made, bool everywhere, ExtentId source);

  void start_move(PlacementSlot slot, const PlacedPrefix& prefix, const Candidate& from, const Candidate& to) override;
  void drop_full_copy(PlacementSlot slot, const PlacedPrefix& prefix) override;

 private:
  struct Group {
    std::uint64_t hash = 0;
    std::vector<ExtentId> members;
    std::optional<PlacementSlot> slot;
    std::optional<Variant> wanted;                   // while a save or a job makes it, and nothing else is decided
    ExtentId saved = 0;                              // whose save that is, where there is no job
    Variant from;                                    // of the job's
    bool job = false, rises = false, hangs = false;  // the last: the job waits for a silent tier
    bool queued = false;                             // to be looked at again
    bool no_full_copy = false;                       // the job at hand is to give it up
    double quiet_until_s = 0;                        // after a job failed
  };
  // A way for a group to lie, before tiers.
  struct Form {
    std::uint32_t method = kFullMethod;
    double keep = 1;
    double quality = 1;
    std::uint64_t bytes = 0;
    bool movable = true;  // what is damaged, or lies on a silent tier, stays where it is, or goes
  };

  GroupId join(ExtentId id);
  void queue(GroupId group);
  void revise(GroupId group);
  void tell(GroupId group, PlacedPrefix prefix);
  void leave(Group& group);
  void revise_some();
  void note_capacities();
  void remove_spares(std::uint32_t tier);
  std::uint32_t promotions_now() const;

  // extent_quota.cc
  std::uint64_t bytes_of(const Group& group) const;
  double worth(const Group& group, double wall_s) const;
  bool may_go(const Group& group) const;
  void remove_copies(GroupId group);
  struct Droppable;
  std::vector<Droppable> by_worth(const TenantState& tenant) const;
  bool drop_for_room(TenantState& tenant, std::uint64_t bytes, GroupId spared);
  void keep_quotas();

  // extent_moves.cc
  void note_silence();
  bool would_hang(GroupId group) const;
  void begin_job(Group& group, const Variant& from, bool rises);
  void count_job(const Group& group, unsigned by);
  unsigned* changes_by(const Group& group);
  unsigned& in_flight(const Group& group);
  void drop_copies();
  std::vector<std::pair<ExtentId, std::uint32_t>> given_up(const Group& group, const Variant& made) const;
  bool is_read(ExtentId id, std::uint32_t jobs) const;
  void count_move(const Group& group, const Variant& to);
  bool measured(const Extent& extent) const;

  // extent_candidates.cc
  // An extent that is about to be written, and whether others may be made of it at once.
  struct New {
    ExtentId id;
    bool may_become;
  };
  double recompute_s(const Group& group) const;
  PlacedPrefix offer(const Group& group, const std::optional<New>& fresh);
  // How often and when it was used, and its exact copy below. True where it may not be dropped.
  bool note_accesses(const Group& group, const Variant& current, PlacedPrefix& placed) const;
  std::vector<Form> forms(const Group& group, const std::optional<New>& fresh);
  std::optional<Variant> present(const Group& group) const;
  double importance(const Group& group);
  bool can_become(const Extent& exact, std::uint32_t method) const;
  std::uint32_t number_of(const Extent& extent);
  std::uint64_t estimated_bytes(std::uint32_t method, double keep, const Extent& like);

  StoreCore& core_;
  std::unique_ptr<Planner> planner_;
  std::unique_ptr<PlacementState> state_;
  std::vector<Method> methods_;         // full first; those that were saved otherwise after those that were asked for
  std::vector<bool> needs_no_ranking_;  // by method: its scorer, if any, reads what the exact extent has
  std::unordered_map<std::uint16_t, std::uint32_t> numbers_;  // of the index's texts
  std::deque<Group> groups_;
  std::vector<GroupId> free_;
  std::unordered_map<std::uint64_t, GroupId> by_hash_;
  std::vector<GroupId> by_slot_;
  std::deque<GroupId> queue_;
  std::multimap<double, GroupId> quiet_;
  std::set<GroupId> spares_;             // have variants beside their present one and its full copy
  std::vector<GroupId> copies_dropped_;  // by the state's call at hand
  GivenUp given_up_;                     // groups, by hash
  std::map<std::tuple<std::uint32_t, std::uint32_t, double>, std::uint64_t> sizes_;  // by method, blocks and keep
  std::size_t revised_ = 0;                     // the group that was looked at last though nothing was noted
  unsigned becoming_ = 0, moving_ = 0;          // groups with jobs: of new extents, and all others
  unsigned promoting_ = 0;                      // of these, to a faster tier or a better form
  unsigned hanging_ = 0;                        // groups whose jobs hang, which count as nothing else
  std::set<std::string, std::less<>> bounded_;  // tenants with a quota
  double promoted_s_ = 0;                       // when promotions were looked at last
  bool more_ = false;                           // the state has more to look at
  bool promotions_wait_ = false;                // for loads, and for those in flight
};

// A copy, or an encoding by another method, of what the group has, then the rest goes.
std::shared_ptr<StoreJob> make_place_job(StoreCore& core, GroupId group, const Variant& to);
// An encoding by another method of an exact extent that lies nowhere yet. `made`: whether it lies there, at the end.
std::shared_ptr<StoreJob> make_become_job(StoreCore& core, GroupId group, const Variant& to, ExtentId exact,
                                          std::shared_ptr<const ExtentBlobs> blobs,
                                          std::shared_ptr<std::optional<bool>> made);
// Importance tiers beyond the variant's keep are deleted where the extent lies.
std::shared_ptr<StoreJob> make_trim_job(StoreCore& core, GroupId group, ExtentId id, const Variant& to);

}  // namespace shale
