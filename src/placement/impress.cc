// IMPRESS (Chen et al., FAST 2025): everything is kept, requests read only what holds important tokens, and what has
// the largest product of frequency and importance lies nearest. Its importance is the share of important tokens.
#include "placement/ordered.h"
#include "placement/planners.h"

namespace shale {
namespace {

// Least accesses times importance first; of equals as rarest_first.
StepOrder lowest_score_first(const PlacedPrefix& prefix) {
  StepOrder order = rarest_first(prefix);
  order.first *= prefix.importance;
  return order;
}

}  // namespace

std::unique_ptr<Planner> make_impress_planner(const PlannerOptions& options) {
  return std::make_unique<OrderedPlanner>("impress", options.fixed_method_index, options.fixed_keep,
                                          lowest_score_first);
}

}  // namespace shale
