// How to make each planner: one function each, in the file of its name.
#pragma once

#include <memory>

#include "placement/placement.h"

namespace shale {

std::unique_ptr<Planner> make_fixed_planner(const PlannerOptions& options);
std::unique_ptr<Planner> make_impress_planner(const PlannerOptions& options);
std::unique_ptr<Planner> make_lfu_planner(const PlannerOptions& options);
std::unique_ptr<Planner> make_lru_planner(const PlannerOptions& options);
std::unique_ptr<Planner> make_prefill_planner(const PlannerOptions& options);
std::unique_ptr<Planner> make_shale_planner(const PlannerOptions& options);

}  // namespace shale
