// The whole problem at once.
#include "placement/placement_state.h"

namespace shale {
namespace {

// Slots of a state without removals are the order of adding.
class MovesOf final : public PlacementBackend {
 public:
  MovesOf(const Problem& problem, const Planner& planner)
      : problem_(problem),
        state_(planner, {.alpha = problem.alpha, .half_life_s = kAnyDrop, .move_s_per_byte = problem.move_s_per_byte},
               problem.tiers, *this) {
    for (const PlacedPrefix& prefix : problem.prefixes) state_.add(prefix, 0);
  }

  PlacementState& state() { return state_; }

  Plan plan() {
    plan_.feasible = true;
    for (std::uint32_t tier = 0; tier < problem_.tiers.size(); ++tier) {
      plan_.feasible = plan_.feasible && state_.used_bytes(tier) <= problem_.tiers[tier].capacity_bytes;
    }
    for (PlacementSlot slot = 0; slot < problem_.prefixes.size(); ++slot) {
      plan_.utility += utility(problem_.alpha, problem_.prefixes[slot].frequency, state_.placed(slot));
    }
    return std::move(plan_);
  }

  void start_move(PlacementSlot slot, const PlacedPrefix& prefix, const Candidate&, const Candidate&) override {
    plan_.moves.push_back({slot, problem_.prefixes[slot].current, prefix.current});
  }
  void drop_full_copy(PlacementSlot, const PlacedPrefix&) override {}

 private:
  const Problem& problem_;
  PlacementState state_;
  Plan plan_;
};

}  // namespace

Plan Planner::demote(const Problem& problem) const {
  MovesOf moves(problem, *this);
  moves.state().demote();
  return moves.plan();
}

Plan Planner::promote(const Problem& problem) const {
  MovesOf moves(problem, *this);
  moves.state().promote(kAllPromotions);
  return moves.plan();
}

}  // namespace shale
