#include "placement/planners.h"

namespace shale {
namespace {

class PrefillPlanner final : public Planner {
 public:
  std::string_view name() const override { return "prefill"; }
  bool stores() const override { return false; }

  std::uint32_t insert(const Terms&, const PlacedPrefix& prefix) const override {
    return dropped_candidate(prefix).value_or(prefix.current);
  }

  std::optional<Demotion> demotion(const Terms&, const PlacedPrefix& prefix) const override {
    const auto dropped = dropped_candidate(prefix);
    if (!dropped) return std::nullopt;
    return Demotion{.to = *dropped, .order = {}};
  }

  std::optional<Promotion> promotion(const Terms&, const PlacedPrefix&, std::uint32_t, std::uint64_t) const override {
    return std::nullopt;
  }
};

}  // namespace

std::unique_ptr<Planner> make_prefill_planner(const PlannerOptions&) { return std::make_unique<PrefillPlanner>(); }

}  // namespace shale
