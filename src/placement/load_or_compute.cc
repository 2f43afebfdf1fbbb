#include "placement/load_or_compute.h"

#include <algorithm>

namespace shale {
namespace {

// Computing takes the engine from others, who hold the pool's blocks meanwhile, and loading does not. Beside others it
// is worth that where it takes so much of the time that loading takes.
constexpr double kComputingGain = 0.6;

}  // namespace

std::size_t loads_that_pay(std::span<const LoadedUpTo> loads, double all_s, const ComputeBacklog& backlog) {
  const double dearer = backlog.slowdown / (backlog.others ? kComputingGain : 1);
  double soonest_s = backlog.compute_s + dearer * all_s;
  std::size_t best = 0;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    const auto& [ready_s, lost_s, rest_s] = loads[i];
    double there_s = ready_s + lost_s;
    if (rest_s > 0) there_s = std::max(ready_s, backlog.compute_s) + lost_s + dearer * rest_s;
    if (there_s >= soonest_s) continue;
    soonest_s = there_s;
    best = i + 1;
  }
  return best;
}

}  // namespace shale
