#include <tuple>

#include "placement/planners.h"
#include "placement/promotion.h"

namespace shale {
namespace {

class ShalePlanner final : public Planner {
 public:
  explicit ShalePlanner(const PlannerOptions& options) : options_(options) {}

  std::string_view name() const override { return "shale"; }

  std::uint32_t insert(const Problem& problem, const PlacedEntry& entry) const override {
    std::uint32_t best = dropped_candidate(entry);
    const auto worth = [&](std::uint32_t c) {  // of equal utility, the smaller
      const Candidate& candidate = entry.candidates[c];
      return std::tuple(utility(problem.alpha, entry.frequency, candidate), ~candidate.bytes);
    };
    for (std::uint32_t c = 0; c < entry.candidates.size(); ++c) {
      if (could_fit(problem, entry.candidates[c]) && worth(c) > worth(best)) best = c;
    }
    return best;
  }

  Plan relieve(const Problem& problem) const override {
    Board board(problem);
    Relief(board, options_.divide_by_bytes).run();
    return board.plan();
  }

  Plan promote(const Problem& problem) const override {
    Board board(problem);
    if (board.fits()) Promotion(board, options_).run();
    return board.plan();
  }

 private:
  PlannerOptions options_;
};

}  // namespace

std::unique_ptr<Planner> make_shale_planner(const PlannerOptions& options) {
  return std::make_unique<ShalePlanner>(options);
}

}  // namespace shale
