// Decides, for every cached prefix, which method, how much to keep and which tier. A planner says what one cached
// prefix would do next, as a pure function of its input: no clock, no I/O, no locks, no randomness; PlacementState
// (placement_state.h) puts the steps of all cached prefixes in order and keeps the placement, in the server, the
// simulator and replays alike. Everything in this header may be called from any thread.
//
// The decision is a multiple-choice knapsack over several capacities, solved greedily as EvicPress (arXiv 2512.14946)
// and AdaptCache (arXiv 2509.00105) do, and measured against its Lagrangian bound.
//
// Full copies on the lowest tier. By default the lowest tier also keeps every cached prefix uncompressed, so that every
// loss can be undone. Such a copy answers no request by itself and has no utility, so full copies stay out of the
// problem: a candidate's `bytes` are those of the copy that answers. Full copies take the room that the plan leaves;
// the least used per byte goes first. Once a cached prefix has lost its full copy, its caller offers no candidates
// better than its current one. The caller also chooses, by its candidates, whether cached prefixes may lie compressed
// on the lowest tier; if they may not, the last move is to drop.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace shale {

using PrefixId = std::uint64_t;
inline constexpr std::uint32_t kDropped = ~std::uint32_t{0};  // in place of a tier: not stored, recomputed on a hit
inline constexpr std::uint32_t kFullMethod = 0;               // the method index that means uncompressed

// One way to keep a cached prefix's bytes: what it costs and what it is worth. Made by the caller from measurements.
struct Candidate {
  std::uint32_t method = kFullMethod;  // index into the caller's list of methods, whose first is `full`
  double keep = 1.0;
  std::uint32_t tier = 0;   // index into Problem::tiers, fast to slow; kDropped
  std::uint64_t bytes = 0;  // on that tier; 0 when dropped
  double quality = 1.0;     // [0, 1] against the full cache
  double ttft_s = 0;        // min(load, recompute)
};

struct PlacedPrefix {
  PrefixId id = 0;
  double frequency = 1;               // accesses, decayed or counted; not negative
  double last_access_s = 0;           // for lru
  std::uint64_t accesses = 1;         // for lfu
  std::vector<Candidate> candidates;  // not empty: every feasible configuration over all tiers, and the dropped
                                      // one unless the cached prefix must stay
  std::uint32_t current = 0;          // index into candidates
  double importance = 1;              // for impress: the share of its tokens that requests read, over layers and heads
  bool pinned = false;                // in use: keeps its configuration in this plan
  std::uint64_t full_copy_bytes = 0;  // of the copy that the lowest tier should also keep; 0: none wanted or to be had
};

struct TierRoom {
  std::uint64_t capacity_bytes = 0;  // ~0 for unlimited
  bool silent = false;               // it does not answer: nothing goes there, nor leaves it for another one
};

struct Problem {
  double alpha = 1.0;           // seconds per unit of quality
  std::vector<TierRoom> tiers;  // fast to slow
  std::vector<PlacedPrefix> prefixes;
  double move_s_per_byte = 0;  // PlacementOptions
};

struct Move {
  std::size_t prefix = 0;          // index into Problem::cached prefixes
  std::uint32_t from = 0, to = 0;  // indices into its candidates
};

struct Plan {
  // Moves in order of application, at most one a cached prefix: those that free room come before those that take it,
  // lowest tier first, so that applying a demotion's moves in order never makes a tier fuller than it was or may be.
  std::vector<Move> moves;
  double utility = 0;    // of the placement after all moves
  bool feasible = true;  // false when a tier stays over its capacity: what is pinned or must stay passes it alone
};

// Whether the move is to a faster tier, or to a better form, which is made of the exact copy.
inline bool rises(const Candidate& from, const Candidate& to) {
  return to.tier < from.tier || (to.tier == from.tier && to.quality > from.quality);
}

// utility = frequency · (α · quality − ttft)
double utility(double alpha, double frequency, const Candidate& candidate);

// Every cached prefix's candidate after the plan.
std::vector<std::uint32_t> placement_after(const Problem& problem, const Plan& plan);

// The cached prefix's dropped candidate, if it may be dropped.
std::optional<std::uint32_t> dropped_candidate(const PlacedPrefix& prefix);

// Whether it lies and may lie as before. Speeds are measured all the time: what they change by a tenth is no news.
bool as_it_was(const PlacedPrefix& now, const PlacedPrefix& before);

// The terms of the problem, which every planner gets beside the cached prefix.
struct Terms {
  Terms(double seconds_per_quality, std::span<const TierRoom> rooms, double utility_per_byte_moved)
      : alpha(seconds_per_quality), tiers(rooms), move_cost(utility_per_byte_moved) {}
  Terms(const Problem& problem)  // NOLINT: a problem has terms
      : Terms(problem.alpha, problem.tiers, problem.move_s_per_byte) {}
  double alpha;
  std::span<const TierRoom> tiers;  // fast to slow
  double move_cost;                 // utility that is lost by a byte that rises, on the scale of frequencies
  double quality_above = -1;        // what rises becomes better than this

  double utility(const PlacedPrefix& prefix, const Candidate& candidate) const {
    return shale::utility(alpha, prefix.frequency, candidate);
  }
  // Whether the candidate could come to lie on its tier at all, were the tier empty.
  bool could_fit(const Candidate& candidate) const {
    if (candidate.tier == kDropped) return true;
    return !tiers[candidate.tier].silent && candidate.bytes <= tiers[candidate.tier].capacity_bytes;
  }
};

// The order in which a tier's steps are taken, field by field; equal steps go by the cached prefixes' places in the
// state.
struct StepOrder {
  double first = 0, second = 0, third = 0;
  auto operator<=>(const StepOrder&) const = default;
};
inline constexpr double kAnyDrop = std::numeric_limits<double>::infinity();
inline constexpr StepOrder kAfterAll{kAnyDrop, kAnyDrop, kAnyDrop};

// The next step down of a cached prefix, which frees bytes on its tier: to a smaller variant, to a lower tier, or to
// nothing.
struct Demotion {
  std::uint32_t to = 0;       // index into its candidates: of fewer bytes on this tier, or of a lower tier
  StepOrder order;            // the least goes first
  double drop = 0;            // utility given up
  double floor_per_byte = 0;  // no demotion of a later order gives up less per byte freed; 0 where that is not known
};

// The next step up of a cached prefix on a tier, and what others may give up for it.
struct Promotion {
  std::uint32_t to = 0;
  StepOrder order;             // the greatest goes first
  double drop_below = 0;       // all demotions that make its room together must drop less utility than this
  StepOrder displaces_before;  // and each must be of an order before this
};

struct PlannerOptions {
  bool divide_by_bytes = true;           // demotion goes by drop per byte freed (AdaptCache); false, `undivided`:
                                         // by the drop alone (EvicPress)
  double hysteresis = 0.10;              // a promotion must win by this share over what it displaces
  std::uint32_t fixed_method_index = 0;  // for `fixed`, `impress`: the one method, as Candidate::method
  double fixed_keep = 1.0;               // for `fixed`, `impress`: the one keep
  double read_keep = 1.0;                // for `impress`: of what is kept, requests read the best tokens up to here
};

// Planners see `frequency` on the state's scale (placement_state.h): all cached prefixes share one factor. Utilities
// can be compared and added; their absolute size means nothing.
class Planner {
 public:
  virtual ~Planner() = default;
  virtual std::string_view name() const = 0;
  // False for planners that keep nothing on any tier, however much room there is.
  virtual bool stores() const { return true; }
  // Whether candidates' qualities matter to it. If not, nobody need measure them.
  virtual bool weighs_quality() const { return false; }
  // The place of a new cached prefix if there were room: index into its candidates.
  virtual std::uint32_t insert(const Terms& terms, const PlacedPrefix& prefix) const = 0;
  // The next step down of a cached prefix that lies on a tier and is not pinned; nothing if it has none.
  virtual std::optional<Demotion> demotion(const Terms& terms, const PlacedPrefix& prefix) const = 0;
  // The best step of a cached prefix, not pinned, to a configuration on `tier` of fewer than `bytes_below` bytes and of
  // a quality above the terms'; nothing if it gains nothing there. Implementations see to it that steps end: a prefix
  // that displaced another is not displaced by it.
  virtual std::optional<Promotion> promotion(const Terms& terms, const PlacedPrefix& prefix, std::uint32_t tier,
                                             std::uint64_t bytes_below) const = 0;

  // The whole problem at once, by a PlacementState made for it.
  // Moves after which no tier is over its capacity, top tier first.
  Plan demote(const Problem& problem) const;
  // Upgrades and moves up, into free room or at the cost of others, after which no tier is over its capacity. `shale`
  // never loses utility by it; the baselines follow their own order whatever it is worth. No moves when a tier is over
  // its capacity to begin with (demote first), and none ever for planners that never promote.
  Plan promote(const Problem& problem) const;
};

// fixed, impress, lfu, lru, prefill, shale.
//   shale    demotion by least marginal utility drop, promotion with hysteresis (shale.cc)
//   prefill  stores nothing: recompute always
//   lru lfu  whole caches, uncompressed, the least recently or frequently used pushed down and out
//   fixed    one method and keep for all, then as lru; impress: the scorer of that name and a keep, then as lfu
std::vector<std::string_view> planner_names();
Result<std::unique_ptr<Planner>> make_planner(std::string_view name, const PlannerOptions& options = {});

// Upper bound on the utility of any plan that leaves pinned cached prefixes where they are and passes no capacity:
//   min over λ ≥ 0 of Σ_c max_configuration (utility − λ_tier · bytes) + Σ_tier λ_tier · capacity_tier
// Any λ gives a bound, so the result is one however well the minimum is met; the search stops at a gap of 1e-6 of the
// range between everything at its worst and everything at its best.
double utility_bound(const Problem& problem);

// Exponentially decayed count of accesses: an access counts 1, and half as much after each half-life. A cached prefix
// starts with its first access. The plain count is an option. Times are seconds on any one clock; one that goes back
// does not decay. Not thread-safe.
class Frequency {
 public:
  explicit Frequency(double half_life_s = 600, bool plain_count = false)
      : half_life_s_(half_life_s), plain_count_(plain_count) {}
  void access(double now_s);
  double value(double now_s) const;
  std::uint64_t count() const { return count_; }
  double last_access_s() const { return last_s_; }
  // Goes on from a stored state: what value(last_access_s) and count() were.
  void resume(double value, double last_access_s, std::uint64_t count);

 private:
  double half_life_s_;
  bool plain_count_;
  double value_ = 0;  // at last_s_
  double last_s_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace shale
