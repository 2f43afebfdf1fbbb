// A placement while it is being changed: where every entry stands, what every tier holds, and how to go back.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "placement/placement.h"

namespace shale {

class Board {
 public:
  // Keeps a reference to the problem.
  explicit Board(const Problem& problem);

  const Problem& problem() const { return problem_; }
  const PlacedEntry& entry(std::size_t e) const { return problem_.entries[e]; }
  const Candidate& at(std::size_t e) const { return entry(e).candidates[at_[e]]; }
  double utility_of(std::size_t e, const Candidate& candidate) const {
    return utility(problem_.alpha, entry(e).frequency, candidate);
  }

  std::uint64_t used_bytes(std::uint32_t tier) const { return used_[tier]; }
  std::uint64_t over_bytes(std::uint32_t tier) const;  // beyond its capacity
  bool fits() const;                                   // no tier is over its capacity

  void move(std::size_t e, std::uint32_t to);
  // Changes whenever the entry moves: tells an offer made before from one made after.
  std::uint32_t version(std::size_t e) const { return version_[e]; }
  // The number of moves so far; `undo(moves() as it was)` takes back what came since and returns the entries moved
  // back.
  std::size_t moves() const { return log_.size(); }
  std::vector<std::size_t> undo(std::size_t moves);

  // From the problem's placement to the present one, one move for each entry that changed.
  Plan plan() const;

 private:
  void place(std::size_t e, std::uint32_t to);

  const Problem& problem_;
  std::vector<std::uint32_t> at_;
  std::vector<std::uint32_t> version_;
  std::vector<std::uint64_t> used_;
  std::vector<Move> log_;
};

// Whether the candidate could lie on its tier at all, were the tier empty.
inline bool could_fit(const Problem& problem, const Candidate& candidate) {
  return candidate.tier == kDropped || candidate.bytes <= problem.tiers[candidate.tier].capacity_bytes;
}

// The entry's dropped candidate, if it may be dropped.
std::optional<std::uint32_t> dropped_candidate(const PlacedEntry& entry);

}  // namespace shale
