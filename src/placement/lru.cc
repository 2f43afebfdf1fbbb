#include "placement/ordered.h"
#include "placement/planners.h"

namespace shale {

std::unique_ptr<Planner> make_lru_planner(const PlannerOptions&) {
  return std::make_unique<OrderedPlanner>("lru", kFullMethod, 1.0, oldest_first);
}

}  // namespace shale
