// Decides, for every entry, which method, how much to keep and which tier. Pure functions of their input: no clock, no
// I/O, no locks, no randomness; the server and the simulator call the same code. Everything here may be called from any
// thread.
//
// The decision is a multiple-choice knapsack over several capacities, solved greedily as EvicPress (arXiv 2512.14946)
// and AdaptCache (arXiv 2509.00105) do, and measured against its Lagrangian bound.
//
// Full copies on the lowest tier. By default the lowest tier also keeps every entry uncompressed, so that every loss
// can be undone. Such a copy answers no request by itself and so has no utility: relief would give every one of them
// up, at no loss, before it touched a placement. They can therefore stay out of the problem without changing any plan:
// a candidate's `bytes` are those of the copy that answers, and `full_copies` says which of the others fit into the
// room that the plan leaves. An entry whose full copy has gone is one whose caller no longer offers candidates better
// than its current one. Whether entries may lie compressed on the lowest tier itself is the caller's choice, too, by
// the candidates that it offers; where they may not, the last move is to drop.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace shale {

using EntryId = std::uint64_t;
inline constexpr std::uint32_t kDropped = ~std::uint32_t{0};  // in place of a tier: not stored, recomputed on a hit
inline constexpr std::uint32_t kFullMethod = 0;               // the method index that means uncompressed

// One way to keep an entry's bytes: what it costs and what it is worth. Made by the caller from measurements.
struct Candidate {
  std::uint32_t method = kFullMethod;  // index into the caller's list of methods, whose first is `full`
  double keep = 1.0;
  std::uint32_t tier = 0;   // index into Problem::tiers, fast to slow; kDropped
  std::uint64_t bytes = 0;  // on that tier; 0 when dropped
  double quality = 1.0;     // [0, 1] against the full cache
  double ttft_s = 0;        // min(load, recompute)
};

struct PlacedEntry {
  EntryId id = 0;
  double frequency = 1;               // accesses, decayed or counted; not negative
  double last_access_s = 0;           // for lru
  std::uint64_t accesses = 1;         // for lfu
  std::vector<Candidate> candidates;  // not empty: every feasible configuration over all tiers, and the dropped
                                      // one unless the entry must stay
  std::uint32_t current = 0;          // index into candidates
  bool pinned = false;                // in use: keeps its configuration in this plan
  std::uint64_t full_copy_bytes = 0;  // of the copy that the lowest tier should also keep; 0: none wanted or to be had
};

struct TierRoom {
  std::uint64_t capacity_bytes = 0;  // ~0 for unlimited
};

struct Problem {
  double alpha = 1.0;           // seconds per unit of quality
  std::vector<TierRoom> tiers;  // fast to slow
  std::vector<PlacedEntry> entries;
};

struct Move {
  std::size_t entry = 0;           // index into Problem::entries
  std::uint32_t from = 0, to = 0;  // indices into its candidates
};

struct Plan {
  // At most one move an entry, in order of application: what frees room comes before what takes it, lowest tier first,
  // so that applying a relief's moves in order never makes a tier fuller than it was or may be.
  std::vector<Move> moves;
  double utility = 0;    // of the placement after all moves
  bool feasible = true;  // false when a tier stays over its capacity: what is pinned or must stay passes it alone
};

// utility = frequency · (α · quality − ttft)
double utility(double alpha, double frequency, const Candidate& candidate);

// Every entry's candidate after the plan.
std::vector<std::uint32_t> placement_after(const Problem& problem, const Plan& plan);

// Which entries' full copies the lowest tier has room for beside `placement` (a candidate index per entry): by
// frequency per byte, largest first. Entries that are dropped or lie on the lowest tier need none. Indices, ascending.
std::vector<std::size_t> full_copies(const Problem& problem, std::span<const std::uint32_t> placement);

struct PlannerOptions {
  bool divide_by_bytes = true;           // relief ranks offers by drop per byte freed (AdaptCache); false, `undivided`:
                                         // by the drop alone (EvicPress)
  double hysteresis = 0.10;              // a promotion must win by this share over what it displaces
  std::uint32_t fixed_method_index = 0;  // for `fixed`, `impress`: the one method, as Candidate::method
  double fixed_keep = 1.0;               // for `fixed`, `impress`: the one keep
};

class Planner {
 public:
  virtual ~Planner() = default;
  virtual std::string_view name() const = 0;
  // Where a new entry goes as if there were room: index into its candidates.
  virtual std::uint32_t insert(const Problem& problem, const PlacedEntry& entry) const = 0;
  // Moves after which no tier is over its capacity, top tier first.
  virtual Plan relieve(const Problem& problem) const = 0;
  // Upgrades and moves up, into free room or at the cost of others, after which no tier is over its capacity. `shale`
  // never loses utility by it; the baselines follow their own order whatever it is worth. No moves when a tier is over
  // its capacity to begin with (relieve first), and none ever for planners that never promote.
  virtual Plan promote(const Problem& problem) const = 0;
};

// fixed, impress, lfu, lru, prefill, shale.
//   shale    relief by least marginal utility drop, promotion with hysteresis (shale.cc)
//   prefill  stores nothing: recompute always
//   lru lfu  whole caches, uncompressed, the least recently or frequently used pushed down and out
//   fixed    one method and keep for all, then as lru; impress: the scorer of that name and a keep, then as lfu
std::vector<std::string_view> planner_names();
Result<std::unique_ptr<Planner>> make_planner(std::string_view name, const PlannerOptions& options = {});

// Upper bound on the utility of any plan that leaves pinned entries where they are and passes no capacity:
//   min over λ ≥ 0 of Σ_c max_configuration (utility − λ_tier · bytes) + Σ_tier λ_tier · capacity_tier
// Any λ gives a bound, so the result is one however well the minimum is met; the search stops at a gap of 1e-6 of the
// range between everything at its worst and everything at its best.
double utility_bound(const Problem& problem);

// Exponentially decayed count of accesses: an access counts 1, and half as much after each half-life. An entry starts
// with its first access. The plain count is an option. Times are seconds on any one clock; one that goes back does not
// decay. Not thread-safe.
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
