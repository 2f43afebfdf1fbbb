// Placement problems made from a seed, and the best answer to the small ones by trying everything.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "placement/placement.h"

namespace shale::testing {

struct InstanceShape {
  std::size_t entries = 5;
  std::size_t tiers = 3;
  std::size_t smaller_forms = 2;  // compressed configurations a tier, beside the full one
  double capacity_share = 0.2;    // of all full bytes, on the first tier; twice as much on each further one
  double pinned_share = 0;
  std::uint64_t bytes_max = 1000;
};

// Loading slows down tenfold from tier to tier, quality falls with compression, frequencies are Zipf-like. Candidate 0
// is full on the first tier; the last is dropped, which is where every entry is, but pinned ones: they lie full on any.
inline Problem make_instance(std::uint64_t seed, const InstanceShape& shape) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  Problem problem;
  std::uint64_t total = 0;
  for (std::size_t e = 0; e < shape.entries; ++e) {
    PlacedEntry entry;
    entry.id = e;
    entry.frequency = 10 / (1 + static_cast<double>(random() % shape.entries));
    entry.accesses = 1 + random() % 10;
    entry.last_access_s = 100 * unit(random);
    const std::uint64_t bytes = 1 + random() % shape.bytes_max;
    const double recompute_s = 0.2 + 0.8 * unit(random);
    const double sensitivity = 0.5 * unit(random);
    total += bytes;
    for (std::uint32_t tier = 0; tier < shape.tiers; ++tier) {
      const double seconds_per_byte = 0.01 * std::pow(10, tier) / static_cast<double>(shape.bytes_max);
      for (std::uint32_t form = 0; form <= shape.smaller_forms; ++form) {
        const std::uint64_t held = std::max<std::uint64_t>(1, bytes >> form);
        const double load_s = 0.001 + seconds_per_byte * static_cast<double>(held);
        const double keep = std::pow(0.5, form);
        entry.candidates.push_back(
            {form, keep, tier, held, 1 - sensitivity * (1 - keep), std::min(load_s, recompute_s)});
      }
    }
    entry.candidates.push_back({kFullMethod, 1.0, kDropped, 0, 1.0, recompute_s});
    entry.current = static_cast<std::uint32_t>(entry.candidates.size() - 1);
    if (unit(random) < shape.pinned_share) {
      entry.pinned = true;
      entry.current = static_cast<std::uint32_t>((random() % shape.tiers) * (shape.smaller_forms + 1));
    }
    problem.entries.push_back(std::move(entry));
  }
  for (std::size_t tier = 0; tier < shape.tiers; ++tier) {
    const double share = shape.capacity_share * std::pow(2, tier);
    problem.tiers.push_back({static_cast<std::uint64_t>(share * static_cast<double>(total))});
  }
  return problem;
}

// The same with every entry where the planner inserts it.
inline Problem inserted(Problem problem, const Planner& planner) {
  for (PlacedEntry& entry : problem.entries) {
    if (!entry.pinned) entry.current = planner.insert(problem, entry);
  }
  return problem;
}

// What is left to plan after a plan.
inline Problem after(Problem problem, const Plan& plan) {
  for (const Move& move : plan.moves) problem.entries[move.entry].current = move.to;
  return problem;
}

inline std::vector<std::uint32_t> placement_of(const Problem& problem) { return placement_after(problem, {}); }

inline double utility_of(const Problem& problem, const std::vector<std::uint32_t>& placement) {
  double sum = 0;
  for (std::size_t e = 0; e < placement.size(); ++e) {
    const PlacedEntry& entry = problem.entries[e];
    sum += utility(problem.alpha, entry.frequency, entry.candidates[placement[e]]);
  }
  return sum;
}

inline std::vector<std::uint64_t> used_bytes(const Problem& problem, const std::vector<std::uint32_t>& placement) {
  std::vector<std::uint64_t> used(problem.tiers.size());
  for (std::size_t e = 0; e < placement.size(); ++e) {
    const Candidate& candidate = problem.entries[e].candidates[placement[e]];
    if (candidate.tier != kDropped) used[candidate.tier] += candidate.bytes;
  }
  return used;
}

inline bool fits(const Problem& problem, const std::vector<std::uint32_t>& placement) {
  const std::vector<std::uint64_t> used = used_bytes(problem, placement);
  for (std::size_t tier = 0; tier < used.size(); ++tier) {
    if (used[tier] > problem.tiers[tier].capacity_bytes) return false;
  }
  return true;
}

// Everything recomputed, but pinned entries.
inline double dropped_utility(const Problem& problem) {
  std::vector<std::uint32_t> placement = placement_of(problem);
  for (std::size_t e = 0; e < placement.size(); ++e) {
    const auto& candidates = problem.entries[e].candidates;
    if (!problem.entries[e].pinned) {
      placement[e] =
          static_cast<std::uint32_t>(std::ranges::find(candidates, kDropped, &Candidate::tier) - candidates.begin());
    }
  }
  return utility_of(problem, placement);
}

// The largest utility of all placements that fit and leave pinned entries alone, by trying every one; minus infinity
// when none fits.
inline double best_utility(const Problem& problem) {
  double best = -std::numeric_limits<double>::infinity();
  std::vector<std::uint64_t> used(problem.tiers.size());
  const auto search = [&](const auto& self, std::size_t e, double sum) -> void {
    if (e == problem.entries.size()) {
      best = std::max(best, sum);
      return;
    }
    const PlacedEntry& entry = problem.entries[e];
    for (std::uint32_t c = 0; c < entry.candidates.size(); ++c) {
      if (entry.pinned && c != entry.current) continue;
      const Candidate& candidate = entry.candidates[c];
      if (candidate.tier != kDropped) {
        if (used[candidate.tier] + candidate.bytes > problem.tiers[candidate.tier].capacity_bytes) continue;
        used[candidate.tier] += candidate.bytes;
      }
      self(self, e + 1, sum + utility(problem.alpha, entry.frequency, candidate));
      if (candidate.tier != kDropped) used[candidate.tier] -= candidate.bytes;
    }
  };
  search(search, 0, 0);
  return best;
}

}  // namespace shale::testing
