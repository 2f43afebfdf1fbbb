#include <algorithm>
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
    const auto worth = [&](const Candidate& candidate) {  // of equal utility, the smaller
      return std::tuple(could_fit(problem, candidate), utility(problem.alpha, entry.frequency, candidate),
                        ~candidate.bytes);
    };
    const auto best = std::ranges::max_element(entry.candidates, {}, worth);
    return static_cast<std::uint32_t>(best - entry.candidates.begin());
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
