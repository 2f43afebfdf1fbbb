// Least marginal drop of utility first, largest marginal gain first, as the header of placement.h says.
#include <algorithm>
#include <limits>
#include <tuple>

#include "placement/hull.h"
#include "placement/planners.h"

namespace shale {
namespace {

constexpr double kPromotionsEnd = 1e-9;  // the least hysteresis: above rounding, so that no two steps undo each other

class ShalePlanner final : public Planner {
 public:
  explicit ShalePlanner(const PlannerOptions& options)
      : divide_(options.divide_by_bytes), wins_by_(1 + std::max(options.hysteresis, kPromotionsEnd)) {}

  std::string_view name() const override { return "shale"; }
  bool weighs_quality() const override { return true; }

  std::uint32_t insert(const Terms& terms, const PlacedPrefix& prefix) const override {
    const auto worth = [&](const Candidate& candidate) {  // of equal utility, the smaller
      return std::tuple(terms.could_fit(candidate), terms.utility(prefix, candidate), ~candidate.bytes);
    };
    const auto best = std::ranges::max_element(prefix.candidates, {}, worth);
    return static_cast<std::uint32_t>(best - prefix.candidates.begin());
  }

  // The next vertex of the upper convex hull of (bytes on the tier, utility) over the smaller configurations there and
  // the point (0 bytes, best utility below), so that compressing and moving are comparable.
  std::optional<Demotion> demotion(const Terms& terms, const PlacedPrefix& prefix) const override {
    const Candidate& current = prefix.candidates[prefix.current];
    const Point from{current.bytes, terms.utility(prefix, current), prefix.current};
    std::optional<Point> below;
    NextVertex next(from);
    for (std::uint32_t c = 0; c < prefix.candidates.size(); ++c) {
      const Candidate& candidate = prefix.candidates[c];
      if (candidate.tier == current.tier) {
        next.consider({candidate.bytes, terms.utility(prefix, candidate), c});
      } else if (candidate.tier > current.tier && terms.could_fit(candidate)) {
        const double value = terms.utility(prefix, candidate);
        const bool smaller = below && candidate.bytes < prefix.candidates[below->candidate].bytes;
        if (!below || value > below->utility || (value == below->utility && smaller)) below = Point{0, value, c};
      }
    }
    if (below) next.consider(*below);
    if (!next.found()) return std::nullopt;
    const Point& to = *next.found();
    const double drop = from.utility - to.utility;
    const double per_byte = drop_per_byte(from, to);
    return Demotion{.to = to.candidate,
                    .order = {divide_ ? per_byte : drop},
                    .drop = drop,
                    .floor_per_byte = divide_ ? per_byte : 0};
  }

  // Orders by gain, less what moving costs, per byte taken, without limit where it takes none.
  std::optional<Promotion> promotion(const Terms& terms, const PlacedPrefix& prefix, std::uint32_t tier,
                                     std::uint64_t bytes_below) const override {
    const Candidate& current = prefix.candidates[prefix.current];
    const double present = terms.utility(prefix, current);
    const std::uint64_t held = current.tier == tier ? current.bytes : 0;
    std::optional<Promotion> best;
    for (std::uint32_t c = 0; c < prefix.candidates.size(); ++c) {
      const Candidate& candidate = prefix.candidates[c];
      if (candidate.tier != tier || candidate.bytes >= bytes_below || !terms.could_fit(candidate)) continue;
      if (candidate.quality <= terms.quality_above) continue;
      const double cost = terms.move_cost * static_cast<double>(candidate.bytes);
      const double gain = terms.utility(prefix, candidate) - present - cost;
      if (!(gain > 0)) continue;
      const double gain_per_byte = candidate.bytes > held ? gain / static_cast<double>(candidate.bytes - held)
                                                          : std::numeric_limits<double>::infinity();
      const StepOrder order{gain_per_byte, gain};
      if (best && !(best->order < order)) continue;
      best = Promotion{.to = c, .order = order, .drop_below = gain / wins_by_, .displaces_before = kAfterAll};
    }
    return best;
  }

 private:
  bool divide_;
  double wins_by_;
};

}  // namespace

std::unique_ptr<Planner> make_shale_planner(const PlannerOptions& options) {
  return std::make_unique<ShalePlanner>(options);
}

}  // namespace shale
