#include "placement/planners.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace shale {
namespace {

struct Registered {
  std::string_view name;
  std::unique_ptr<Planner> (*make)(const PlannerOptions&);
};

constexpr std::array<Registered, 6> kPlanners = {{
    {"fixed", make_fixed_planner},
    {"impress", make_impress_planner},
    {"lfu", make_lfu_planner},
    {"lru", make_lru_planner},
    {"prefill", make_prefill_planner},
    {"shale", make_shale_planner},
}};

}  // namespace

std::vector<std::string_view> planner_names() {
  std::vector<std::string_view> names;
  for (const Registered& planner : kPlanners) names.push_back(planner.name);
  return names;
}

Result<std::unique_ptr<Planner>> make_planner(std::string_view name, const PlannerOptions& options) {
  const auto found = std::ranges::find(kPlanners, name, &Registered::name);
  if (found == kPlanners.end()) {
    return fail(ErrorCode::kInvalidArgument, "there is no planner '{}'; there are {}", name,
                fmt::join(planner_names(), ", "));
  }
  if (!(options.hysteresis >= 0)) {
    return fail(ErrorCode::kInvalidArgument, "the planner's hysteresis must not be negative, but is {}",
                options.hysteresis);
  }
  return found->make(options);
}

}  // namespace shale
