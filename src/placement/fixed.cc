#include "placement/ordered.h"
#include "placement/planners.h"

namespace shale {

std::unique_ptr<Planner> make_fixed_planner(const PlannerOptions& options) {
  return std::make_unique<OrderedPlanner>("fixed", options.fixed_method_index, options.fixed_keep, oldest_first);
}

}  // namespace shale
