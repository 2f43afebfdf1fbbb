// Knows where every cached prefix lies and decides where it goes. A change touches the cached prefix that changed and
// those that are demoted for it, never all.
//
//   owner ── add, update, remove, access, in_pool, pin, set_capacity ──> PlacementState ── start_move ──> backend
//         ── place, settle ───────────────────────────────────────────>       │ asks
//                                                                           Planner     what would this cached prefix
//                                                                           do next?
//
// Every cached prefix that is not pinned offers a demotion on its tier and at most one promotion to each tier; each
// tier has a heap of both. Demotions are made in the planner's order, top tier first. A promotion is tried by demoting
// others for it, and taken back if others would have to give up more than the planner allows for it.
//
// Time. Frequencies decay together, with one half-life, so their ratios do not change and neither does any order of
// demotions; the state keeps frequencies as they would be counted at one moment in the past, and decay costs nothing.
// The cost of a promotion does not decay with them, so its step is made again when it is looked at.
//
// The pool is the nearest tier. A request that finds a cached prefix in the block pool waits for no load and gets exact
// KV, wherever else the cached prefix lies (or lossy KV that it accepts, which counts alike): with probability p of
// that, the expected utility of a candidate is
//   p · α + (1 − p) · (α · quality − ttft)   an access
// so all differences between candidates shrink by 1 − p, and the pool counts as a smaller frequency. p is the share of
// the cached prefix that the pool holds now, times the probability that it still does at the next access
// (pool_residence.h), as of when the cached prefix was used last.
//
// Deterministic: the same calls give the same moves. Not thread-safe. Backend and planner must outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "placement/placement.h"
#include "placement/placement_backend.h"
#include "placement/pool_residence.h"
#include "placement/step_heap.h"

namespace shale {

// Of a server, as PlacementOptions::move_s_per_byte: the time that reading a byte, its checksum and writing it take on
// the cores that compute requests.
inline constexpr double kMoveSPerByte = 1e-9;

struct PlacementOptions {
  double alpha = 1;             // seconds per unit of quality
  double half_life_s = 600;     // of the frequency of accesses; infinite: they are counted and do not decay
  double pool_certainty = 0.9;  // at most, that what the pool holds now it holds at the next access; [0, 1]
  // Seconds that requests lose by a byte that rises to a faster tier, and by what is given up for it: a promotion has
  // to save more, over the time for which an access counts, than it costs at once.
  double move_s_per_byte = 0;
};

// A cached prefix is not promoted while the pool holds this share of it: it lies nearer already. Once the pool has
// evicted it, it is looked at again. (If every access promoted, the most recent cached prefixes would fill the memory
// in vain.) Where the pool's pages are lossy, it rises to what is worth more than the form that it has.
inline constexpr double kHeldByPool = 0.75;

// How many promotions a round of `settle` looks at on each tier.
inline constexpr std::uint32_t kPromotionsARound = 4;
inline constexpr std::uint32_t kAllPromotions = ~std::uint32_t{0};

// A call of a PlacementState, as it can be made again on another.
struct PlacementEvent {
  enum class Kind {
    kAdd,
    kUpdate,
    kRemove,
    kAccess,
    kInPool,
    kPin,
    kCapacity,
    kSilent,
    kPlace,
    kSettle,
    kDemote,
    kPromote
  };
  Kind kind = Kind::kSettle;
  PlacementSlot slot = 0;    // or the tier, of a capacity or a silence
  double value = 0;          // the time, or 1 for pinned or silent
  double share = 0;          // in the pool; of an access: used
  bool lossy = false;        // as the pool has it
  std::uint64_t amount = 0;  // the capacity, or how many promotions a round looks at; 1 for evicted from the pool
  PlacedPrefix prefix = {};  // of kAdd and kUpdate
};

class PlacementState {
 public:
  PlacementState(const Planner& planner, const PlacementOptions& options, std::vector<TierRoom> tiers,
                 PlacementBackend& backend);

  // Cached prefixes. `frequency` is as of now. The cached prefix lies where `current` says; nothing is moved until
  // place or settle.
  PlacementSlot add(PlacedPrefix prefix, double now_s);
  // Other candidates, `current` among them, another full copy, pinned or not, another importance. What the state knows
  // of its use stays.
  void update(PlacementSlot slot, PlacedPrefix prefix);
  void remove(PlacementSlot slot);

  // An access to so much of the cached prefix, (0, 1].
  void access(PlacementSlot slot, double now_s, double share = 1);
  // How much of the cached prefix, [0, 1], the block pool holds. Where that is less than before, the rest was
  // `evicted`, or the owner does not know it any more. `lossy`: in pages that may be worth less than exact ones.
  void in_pool(PlacementSlot slot, double share, double now_s, bool evicted = true, bool lossy = false);
  // A pinned cached prefix is in use and keeps its place until it is unpinned.
  void pin(PlacementSlot slot, bool pinned);
  // Small changes cost nothing. One by more than a sixteenth makes all steps again, once.
  void set_capacity(std::uint32_t tier, std::uint64_t bytes);
  // A silent tier keeps what it has. Likewise: true where that is news, and all steps are made again.
  bool set_silent(std::uint32_t tier, bool silent);
  bool silent(std::uint32_t tier) const { return tiers_[tier].silent; }

  // Puts the cached prefix where the planner would insert it, and demotes others, or itself, where a tier is over its
  // capacity. Returns its candidate then; for this cached prefix no move is started.
  std::uint32_t place(PlacementSlot slot);
  // One round: where a tier is over its capacity, demotions; else promotions, at most so many looked at on each
  // tier. False at rest: when nothing moved and there was nothing more to look at.
  bool settle(std::uint32_t promotions_max = kPromotionsARound);
  // The parts of a round; true when anything moved.
  bool demote();
  bool promote(std::uint32_t promotions_max);

  // Its `frequency` is on the state's own scale.
  const PlacedPrefix& prefix(PlacementSlot slot) const { return tracked_[slot].prefix; }
  const Candidate& placed(PlacementSlot slot) const { return at(slot); }
  double pool_share(PlacementSlot slot) const { return tracked_[slot].pool_share; }
  bool pool_lossy(PlacementSlot slot) const { return tracked_[slot].pool_lossy; }
  // Its accesses, decayed to now; those that the pool answers, too.
  double frequency(PlacementSlot slot, double now_s) const;
  std::size_t size() const { return live_; }
  std::uint64_t used_bytes(std::uint32_t tier) const { return used_[tier]; }
  std::uint64_t free_bytes(std::uint32_t tier) const;
  // Unpinned, with its current candidate first and of the others those that fit into what is free and what it has.
  PlacedPrefix that_fit(PlacedPrefix prefix) const;
  std::uint64_t full_copy_bytes() const { return copied_; }  // on the lowest tier, where that is bounded
  // Everything as planners would see it at once, frequencies as of now and without accesses that the pool answers; in
  // the order of slots.
  Problem problem(double now_s) const;

  // Shows every call to `seen`, before it is made: a state that they are applied to, in order, decides the same.
  void record(std::function<void(const PlacementEvent&)> seen) { seen_ = std::move(seen); }
  void apply(const PlacementEvent& event);

  // The books are the sums that they should be, and no cached prefix's next step is missing. Looks at everything.
  Status check_integrity() const;

 private:
  struct Tracked {
    PlacedPrefix prefix;  // its frequency is weight × the share of accesses that miss the pool
    double weight = 0;    // accesses, as counted at epoch_s_
    double pool_share = 0;
    bool pool_lossy = false;
    double held = 0;  // with this probability the pool answers the next access
    bool live = false;
    bool noted = false;  // while net moves are gathered
  };
  struct DemotionStep {
    Demotion demotion;
    PlacementSlot slot;
    std::uint64_t version;
    bool later_than(const DemotionStep& other) const;
  };
  struct PromotionStep {
    Promotion promotion;
    PlacementSlot slot;
    std::uint64_t version;
    bool later_than(const PromotionStep& other) const;
  };
  struct FullCopy {
    double worth;  // frequency per byte
    PlacementSlot slot;
    std::uint64_t version;
    bool later_than(const FullCopy& other) const;
  };
  struct Ascent {
    StepHeap<PromotionStep> steps;
    // Looked at in this round, and not possible. They are looked at again once something has changed.
    std::vector<PlacementSlot> passed;
    std::uint64_t round_began = 0;  // changes_ then
  };
  struct Logged {
    PlacementSlot slot;
    std::uint32_t from;
    std::uint64_t version_before, version;
  };
  struct Limit {
    double drop_below = kAnyDrop;
    StepOrder displaces_before = kAfterAll;
  };

  const Candidate& at(PlacementSlot slot) const;
  Terms terms() const { return {options_.alpha, tiers_, options_.move_s_per_byte * scale(now_s_)}; }
  std::uint32_t lowest() const { return static_cast<std::uint32_t>(tiers_.size() - 1); }
  std::uint64_t over_bytes(std::uint32_t tier) const;
  bool bounded(std::uint32_t tier) const;
  bool over() const;
  double scale(double now_s) const;
  double advance(double now_s);
  double accesses_per_s(PlacementSlot slot) const;

  // placement_state.cc: books
  std::uint64_t copy_bytes(PlacementSlot slot) const;
  void count(PlacementSlot slot);
  void uncount(PlacementSlot slot);
  void weigh(PlacementSlot slot);
  void expect_held(PlacementSlot slot);
  void renew(PlacementSlot slot);
  void shift(PlacementSlot slot, std::uint32_t to);
  void undo(std::size_t logged);
  void drop_copy(PlacementSlot slot);
  void drop_copies();
  bool commit(PlacementSlot silent);

  // placement_steps.cc
  std::optional<DemotionStep> demotion_of(PlacementSlot slot) const;
  std::optional<PromotionStep> promotion_of(PlacementSlot slot, std::uint32_t tier, std::uint64_t bytes_below) const;
  FullCopy full_copy_of(PlacementSlot slot) const;
  void offer(PlacementSlot slot);
  void offer_demotion(PlacementSlot slot);
  void offer_promotions(PlacementSlot slot);
  void offer_moved(std::size_t logged);
  void make_demotions(std::uint32_t tier);
  void make_promotions(std::uint32_t tier);
  void make_copies();
  void unmake();
  const DemotionStep* least_demotion(std::uint32_t tier);
  bool demote_until_fits(std::uint32_t tier, const Limit& limit, double& dropped);
  bool demote_until_fits(const Limit& limit);
  bool make_all_fit();
  bool ascend_all(std::uint32_t promotions_max);
  void begin_round(std::uint32_t tier);
  void ascend(std::uint32_t tier, std::uint32_t looks);
  std::uint64_t bytes_that_may_pay(const PromotionStep& step, std::uint32_t tier);
  void look_at(const PromotionStep& step, std::uint32_t tier);

  void show(const PlacementEvent& event) const {
    if (seen_) seen_(event);
  }

  const Planner& planner_;
  PlacementOptions options_;
  std::vector<TierRoom> tiers_;
  PlacementBackend& backend_;

  std::vector<Tracked> tracked_;         // by slot
  std::vector<std::uint64_t> versions_;  // by slot: a new one at every change, 0 for none
  std::vector<PlacementSlot> free_;
  std::size_t live_ = 0;
  std::uint64_t version_ = 0;  // the last one given
  std::uint64_t changes_ = 0;  // so far; what was tried and taken back is none
  double epoch_s_ = 0, now_s_ = 0, began_s_ = 0;
  bool started_ = false;  // began_s_ is the first moment seen, or when something was used that an earlier process knew
  PoolResidence residence_;
  double weighed_with_s_ = 0;  // its characteristic time when all cached prefixes were weighed last

  std::vector<std::uint64_t> used_;  // by tier
  std::uint64_t copied_ = 0;         // full copies on a bounded lowest tier
  std::vector<StepHeap<DemotionStep>> demotions_;
  std::vector<Ascent> ascents_;
  StepHeap<FullCopy> copies_;

  std::function<void(const PlacementEvent&)> seen_;
  std::vector<Logged> log_;  // moves of the call at hand
  std::vector<PlacementSlot> copies_dropped_;
  std::uint64_t tried_ = 0;          // the version of the cached prefix whose promotion is being tried
  std::vector<DemotionStep> taken_;  // demotions of the trial at hand, to be put back when it fails
};

}  // namespace shale
