#include "placement/ordered.h"
#include "placement/planners.h"

namespace shale {

std::unique_ptr<Planner> make_lfu_planner(const PlannerOptions&) {
  return std::make_unique<OrderedPlanner>("lfu", kFullMethod, 1.0, rarest_first);
}

}  // namespace shale
