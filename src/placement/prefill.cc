#include "placement/board.h"
#include "placement/planners.h"

namespace shale {
namespace {

class PrefillPlanner final : public Planner {
 public:
  std::string_view name() const override { return "prefill"; }

  std::uint32_t insert(const Problem&, const PlacedEntry& entry) const override {
    return dropped_candidate(entry).value_or(entry.current);
  }

  Plan relieve(const Problem& problem) const override {
    Board board(problem);
    for (std::size_t e = 0; e < problem.entries.size(); ++e) {
      const auto dropped = dropped_candidate(board.entry(e));
      if (dropped && !board.entry(e).pinned && board.at(e).tier != kDropped) board.move(e, *dropped);
    }
    return board.plan();
  }

  Plan promote(const Problem& problem) const override { return Board(problem).plan(); }
};

}  // namespace

std::unique_ptr<Planner> make_prefill_planner(const PlannerOptions&) { return std::make_unique<PrefillPlanner>(); }

}  // namespace shale
