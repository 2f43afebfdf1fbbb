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
  std::size_t prefixes = 5;
  std::size_t tiers = 3;
  std::size_t smaller_forms = 2;  // compressed configurations a tier, beside the full one
  double capacity_share = 0.2;    // of all full bytes, on the first tier; twice as much on each further one
  double pinned_share = 0;
  std::uint64_t bytes_max = 1000;
};

// Loading slows down tenfold from tier to tier, quality falls with compression, frequencies are Zipf-like. Candidate 0
// is full on the first tier; the last is dropped, which is where every cached prefix is, but pinned ones: they lie full
// on any.
inline Problem make_instance(std::uint64_t seed, const InstanceShape& shape) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  Problem problem;
  std::uint64_t total = 0;
  for (std::size_t e = 0; e < shape.prefixes; ++e) {
    PlacedPrefix prefix;
    prefix.id = e;
    prefix.frequency = 10 / (1 + static_cast<double>(random() % shape.prefixes));
    prefix.accesses = 1 + random() % 10;
    prefix.last_access_s = 100 * unit(random);
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
        prefix.candidates.push_back(
            {form, keep, tier, held, 1 - sensitivity * (1 - keep), std::min(load_s, recompute_s)});
      }
    }
    prefix.candidates.push_back({kFullMethod, 1.0, kDropped, 0, 1.0, recompute_s});
    prefix.current = static_cast<std::uint32_t>(prefix.candidates.size() - 1);
    if (unit(random) < shape.pinned_share) {
      prefix.pinned = true;
      prefix.current = static_cast<std::uint32_t>((random() % shape.tiers) * (shape.smaller_forms + 1));
    }
    problem.prefixes.push_back(std::move(prefix));
  }
  for (std::size_t tier = 0; tier < shape.tiers; ++tier) {
    const double share = shape.capacity_share * std::pow(2, tier);
    problem.tiers.push_back({static_cast<std::uint64_t>(share * static_cast<double>(total))});
  }
  return problem;
}

// The same with every cached prefix where the planner inserts it.
inline Problem inserted(Problem problem, const Planner& planner) {
  for (PlacedPrefix& prefix : problem.prefixes) {
    if (!prefix.pinned) prefix.current = planner.insert(problem, prefix);
  }
  return problem;
}

// What is left to plan after a plan.
inline Problem after(Problem problem, const Plan& plan) {
  for (const Move& move : plan.moves) problem.prefixes[move.prefix].current = move.to;
  return problem;
}

inline std::vector<std::uint32_t> placement_of(const Problem& problem) { return placement_after(problem, {}); }

inline double utility_of(const Problem& problem, const std::vector<std::uint32_t>& placement) {
  double sum = 0;
  for (std::size_t e = 0; e < placement.size(); ++e) {
    const PlacedPrefix& prefix = problem.prefixes[e];
    sum += utility(problem.alpha, prefix.frequency, prefix.candidates[placement[e]]);
  }
  return sum;
}

inline std::vector<std::uint64_t> used_bytes(const Problem& problem, const std::vector<std::uint32_t>& placement) {
  std::vector<std::uint64_t> used(problem.tiers.size());
  for (std::size_t e = 0; e < placement.size(); ++e) {
    const Candidate& candidate = problem.prefixes[e].candidates[placement[e]];
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

// Everything recomputed, but pinned cached prefixes.
inline double dropped_utility(const Problem& problem) {
  std::vector<std::uint32_t> placement = placement_of(problem);
  for (std::size_t e = 0; e < placement.size(); ++e) {
    const auto& candidates = problem.prefixes[e].candidates;
    if (!problem.prefixes[e].pinned) {
      placement[e] =
          static_cast<std::uint32_t>(std::ranges::find(candidates, kDropped, &Candidate::tier) - candidates.begin());
    }
  }
  return utility_of(problem, placement);
}

// The largest utility of all placements that fit and leave pinned cached prefixes alone, by trying every one; minus
// infinity when none fits.
inline double best_utility(const Problem& problem) {
  double best = -std::numeric_limits<double>::infinity();
  std::vector<std::uint64_t> used(problem.tiers.size());
  const auto search = [&](const auto& self, std::size_t e, double sum) -> void {
    if (e == problem.prefixes.size()) {
      best = std::max(best, sum);
      return;
    }
    const PlacedPrefix& prefix = problem.prefixes[e];
    for (std::uint32_t c = 0; c < prefix.candidates.size(); ++c) {
      if (prefix.pinned && c != prefix.current) continue;
      const Candidate& candidate = prefix.candidates[c];
      if (candidate.tier != kDropped) {
        if (used[candidate.tier] + candidate.bytes > problem.tiers[candidate.tier].capacity_bytes) continue;
        used[candidate.tier] += candidate.bytes;
      }
      self(self, e + 1, sum + utility(problem.alpha, prefix.frequency, candidate));
      if (candidate.tier != kDropped) used[candidate.tier] -= candidate.bytes;
    }
  };
  search(search, 0, 0);
  return best;
}

}  // namespace shale::testing
