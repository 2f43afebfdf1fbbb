// How much sooner first tokens come under one policy than under others, at no less quality.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "loadtest/placement/placement_summary.h"

namespace shale {

// Mean agreement and mean time to first token, each request counting `weight` times. Nothing where none counts.
template <class Weight>
std::optional<std::pair<double, double>> weighted_means(const PlacementSummary& summary, const Weight& weight) {
  double ttft = 0, agreement = 0, count = 0;
  for (const RatedRequest& request : summary.answered) {
    const double times = weight(request);
    ttft += times * request.ttft_s;
    agreement += times * request.agreement;
    count += times;
  }
  if (count == 0) return std::nullopt;
  return std::pair(agreement / count, ttft / count);
}

// How much sooner first tokens come, on average, than by any mixture of the others at no less quality: their mean time
// on the lower convex envelope over (quality, time), without extrapolation, over `own`'s. Nothing where none of them is
// as good.
//
// The interval of 95 % is of a pigeonhole bootstrap (Owen, 2007) over contexts and time: a request counts as often as
// its context was drawn, times as often as its place in the load was. Places are drawn in spans of neighbours (moving
// blocks), because requests wait for one another: as many as waited together at most, ten at least, but a quarter of
// the run at most. The same draws are made of every policy, which had the same load. So the interval is rather too wide
// than too narrow. Infinite where none was as good in so many resamples.
std::optional<Interval> ratio_to_envelope(const PlacementSummary& own, std::span<const PlacementSummary> others);

// A time on that envelope: at least quality `at`. `points`: (quality, time).
std::optional<double> envelope(std::span<const std::pair<double, double>> points, double at);

}  // namespace shale
