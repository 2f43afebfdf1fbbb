// Runs of the same load beside one another.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "loadtest/serve/serve_metrics.h"
#include "profile/bootstrap.h"

namespace shale {

// Runs that differ in their seed alone, in the order of their seeds.
struct ServeGroup {
  std::string name;  // the planner, and what stood beside
  double rate = 0, rate_to_prefill = 0;
  std::vector<const ServeRow*> rows;
  std::vector<ServeMetrics> metrics;  // of each row
};
// Groups in order of first appearance, those of one rate together. `rows` must outlive them.
std::vector<ServeGroup> groups_of(std::span<const ServeRow> rows);
// The first one at the same rate.
const ServeGroup* base_of(const std::vector<ServeGroup>& groups, const ServeGroup& group);

// What two planners measured of the same requests (by chat and turn), by spans of neighbours in the order of the base's
// planned times: as many as waited together at most under either, a quarter of a run at most, but ten at least. Those
// that failed or were not asked under either are left out under both.
struct PairedValues {
  struct Values {
    std::vector<std::vector<double>> own, base;
  };
  Values ttft, itl;
  Values repeat_ttft, later_ttft;  // as in ServeMetrics
};
PairedValues pair_up(const ServeGroup& own, const ServeGroup& base);

// A quantile of one planner's values over that of another's, which served the same requests in the same order:
// resampled by spans of neighbouring requests, which wait for one another. `values`: a group for each span.
Interval ratio_of_quantiles(std::span<const std::vector<double>> values, std::span<const std::vector<double>> base,
                            double share);

}  // namespace shale
