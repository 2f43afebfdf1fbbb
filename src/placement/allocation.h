// One budget of bytes shared among many items, each with several ways to spend: which way for each? A multiple-choice
// knapsack, solved greedily over the items' convex hulls (Everett 1963's multipliers; Shoham and Gersho 1988 for bits).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"
#include "placement/hull.h"

namespace shale {

struct Allocation {
  std::vector<std::uint32_t> chosen;  // per item, the `candidate` of its point
  std::uint64_t bytes = 0;
  double utility = 0;  // sum of the chosen points'
};

// Starts every item at its best point and gives up what costs least utility per byte, hull vertex by hull vertex, until
// the budget is met; then takes back, where single steps of what was given up fit again. The utility is within the
// largest single step's of the optimum, and is the optimum whenever the first part ends exactly on the budget.
// kInvalidArgument, with the fewest bytes that would do, when no choice fits; every item must have a point.
Result<Allocation> allocate(std::span<const std::vector<Point>> items, std::uint64_t budget_bytes);

}  // namespace shale
