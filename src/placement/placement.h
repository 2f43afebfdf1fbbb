// Decides, for every entry, which method, how much to keep and which tier. Pure functions of their input: no clock, no
// I/O, no locks, no randomness; the server and the simulator call the same code.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace shale {

using EntryId = std::uint64_t;
inline constexpr std::uint32_t kDropped = ~std::uint32_t{0};  // in place of a tier: not stored, recomputed on a hit

// One way to keep an entry's bytes: what it costs and what it is worth. Made by the caller from measurements.
struct Candidate {
  std::uint32_t method = 0;  // index into the caller's list of methods
  double keep = 1.0;
  std::uint32_t tier = 0;    // index into Problem::tiers, fast to slow; kDropped
  std::uint64_t bytes = 0;   // on that tier; 0 when dropped
  double quality = 1.0;      // [0, 1] against the full cache
  double ttft_s = 0;         // min(load, recompute)
};

struct PlacedEntry {
  EntryId id = 0;
  double frequency = 1;
  double last_access_s = 0;  // for lru
  std::uint64_t accesses = 1;  // for lfu
  std::vector<Candidate> candidates;  // every feasible configuration over all tiers, the dropped one among them
  std::uint32_t current = 0;          // index into candidates
  bool pinned = false;                // in use: keeps its configuration in this plan
};

struct TierRoom {
  std::uint64_t capacity_bytes = 0;  // ~0 for unlimited
};

struct Problem {
  double alpha = 1.0;  // seconds per unit of quality
  std::vector<TierRoom> tiers;  // fast to slow
  std::vector<PlacedEntry> entries;
};

struct Move {
  std::size_t entry = 0;  // index into Problem::entries
  std::uint32_t from = 0, to = 0;  // indices into its candidates
};

struct Plan {
  std::vector<Move> moves;  // in order of application
  double utility = 0;       // of the placement after all moves
  bool feasible = true;     // false when pinned entries alone pass a capacity
};

// utility = frequency · (α · quality − ttft)
double utility(double alpha, double frequency, const Candidate& candidate);

struct PlannerOptions {
  bool divide_by_bytes = true;   // marginal drop per byte freed (AdaptCache); false: EvicPress's least drop
  double hysteresis = 0.10;      // a promotion must win by this share
  std::string fixed_method;      // baseline `fixed`: candidates' method index as the caller resolved it
  std::uint32_t fixed_method_index = 0;
  double fixed_keep = 1.0;
};

class Planner {
 public:
  virtual ~Planner() = default;
  virtual std::string_view name() const = 0;
  // Where a new entry goes as if there were room: index into its candidates.
  virtual std::uint32_t insert(const Problem& problem, const PlacedEntry& entry) const = 0;
  // Moves after which no tier is over its capacity, top tier first.
  virtual Plan relieve(const Problem& problem) const = 0;
  // Upgrades and moves up into free room or against the smallest drops. Empty for planners that never promote.
  virtual Plan promote(const Problem& problem) const = 0;
};

std::vector<std::string_view> planner_names();  // fixed, lfu, lru, prefill, shale
Result<std::unique_ptr<Planner>> make_planner(std::string_view name, const PlannerOptions& options = {});

// Upper bound on any plan's utility: min over λ ≥ 0 of
//   Σ_c max_configuration (utility − λ_tier · bytes) + Σ_tier λ_tier · capacity_tier
double utility_bound(const Problem& problem);

// Exponentially decayed count of accesses (METHODS: half-life 10 minutes by default). The plain count is an option.
class Frequency {
 public:
  explicit Frequency(double half_life_s = 600, bool plain_count = false)
      : half_life_s_(half_life_s), plain_count_(plain_count) {}
  void access(double now_s);
  double value(double now_s) const;
  std::uint64_t count() const { return count_; }
  double last_access_s() const { return last_s_; }

 private:
  double half_life_s_;
  bool plain_count_;
  double value_ = 0;
  double last_s_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace shale
