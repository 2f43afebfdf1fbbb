#include "placement/ordered.h"

#include <cmath>

namespace shale {

StepOrder oldest_first(const PlacedPrefix& prefix) {
  return {prefix.last_access_s, static_cast<double>(prefix.accesses), -static_cast<double>(prefix.id)};
}

StepOrder rarest_first(const PlacedPrefix& prefix) {
  return {static_cast<double>(prefix.accesses), prefix.last_access_s, -static_cast<double>(prefix.id)};
}

bool OrderedPlanner::has_configuration(const Candidate& candidate) const {
  return candidate.method == method_ && std::abs(candidate.keep - keep_) <= 1e-9;
}

std::optional<std::uint32_t> OrderedPlanner::place(const Terms& terms, const PlacedPrefix& prefix,
                                                   std::uint32_t top) const {
  std::optional<std::uint32_t> best = dropped_candidate(prefix);
  for (std::uint32_t c = 0; c < prefix.candidates.size(); ++c) {
    const Candidate& candidate = prefix.candidates[c];
    if (!has_configuration(candidate) || candidate.tier < top || candidate.tier >= terms.tiers.size()) continue;
    if (!terms.could_fit(candidate)) continue;
    if (!best || candidate.tier < prefix.candidates[*best].tier) best = c;
  }
  return best;
}

std::uint32_t OrderedPlanner::insert(const Terms& terms, const PlacedPrefix& prefix) const {
  return place(terms, prefix, 0).value_or(prefix.current);
}

std::optional<Demotion> OrderedPlanner::demotion(const Terms& terms, const PlacedPrefix& prefix) const {
  const auto to = place(terms, prefix, prefix.candidates[prefix.current].tier + 1);
  if (!to) return std::nullopt;
  return Demotion{.to = *to, .order = order_(prefix)};
}

std::optional<Promotion> OrderedPlanner::promotion(const Terms& terms, const PlacedPrefix& prefix, std::uint32_t tier,
                                                   std::uint64_t bytes_below) const {
  const Candidate& current = prefix.candidates[prefix.current];
  if (current.tier == kDropped || current.tier <= tier || !has_configuration(current)) return std::nullopt;
  for (std::uint32_t c = 0; c < prefix.candidates.size(); ++c) {
    const Candidate& candidate = prefix.candidates[c];
    if (candidate.tier != tier || !has_configuration(candidate) || candidate.quality <= terms.quality_above) continue;
    if (candidate.bytes >= bytes_below || !terms.could_fit(candidate)) continue;
    const StepOrder order = order_(prefix);
    return Promotion{.to = c, .order = order, .drop_below = kAnyDrop, .displaces_before = order};
  }
  return std::nullopt;
}

}  // namespace shale
