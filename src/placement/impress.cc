// IMPRESS (Chen et al., FAST 2025) keeps near what has the largest frequency × importance. An entry is placed as a
// whole here: importance decides which of its chunks it is (the method's scorer), frequency which entries.
#include "placement/ordered.h"
#include "placement/planners.h"

namespace shale {

std::unique_ptr<Planner> make_impress_planner(const PlannerOptions& options) {
  return std::make_unique<OrderedPlanner>("impress", options.fixed_method_index, options.fixed_keep, rarest_first);
}

}  // namespace shale
