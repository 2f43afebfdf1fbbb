#include "loadtest/placement/placement_compare.h"

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "core/quantile.h"
#include "loadtest/serve/waiting_spans.h"
#include "trace/random.h"

namespace shale {
namespace {

constexpr int kEnvelopeResamples = 1000;

// The load of one seed.
struct Run {
  std::size_t requests = 0, span = 1;
};

std::map<std::uint64_t, Run> runs_of(const PlacementSummary& own, std::span<const PlacementSummary> others) {
  std::map<std::uint64_t, Run> runs;
  std::size_t together = 0;
  const auto look = [&](const PlacementSummary& summary) {
    std::map<std::uint64_t, std::vector<Waited>> waited;
    for (const RatedRequest& request : summary.answered) {
      waited[request.seed].push_back({request.arrival_s, request.ttft_s});
      Run& run = runs[request.seed];
      run.requests = std::max(run.requests, request.number + 1);
    }
    for (const auto& [seed, run] : waited) together = std::max(together, waited_together(run));
  };
  look(own);
  std::ranges::for_each(others, look);
  for (auto& [seed, run] : runs) {
    run.span = std::max<std::size_t>(1, std::min(std::max(kSpanLeast, together), run.requests / kSpansLeast));
  }
  return runs;
}

// How often each request counts.
class Draw {
 public:
  Draw(const std::map<std::uint64_t, Run>& runs, std::span<const std::size_t> contexts, Random& random) {
    for (std::size_t i = 0; i < contexts.size(); ++i) ++contexts_[contexts[random.below(contexts.size())]];
    for (const auto& [seed, run] : runs) {
      std::vector<double>& places = places_[seed];
      places.resize(run.requests);
      for (std::size_t drawn = 0; drawn < run.requests; drawn += run.span) {
        const std::size_t first = random.below(run.requests - run.span + 1);
        for (std::size_t place = first; place < first + run.span; ++place) ++places[place];
      }
    }
  }

  double operator()(const RatedRequest& request) const {
    const auto times = contexts_.find(request.context);
    return times == contexts_.end() ? 0 : times->second * places_.at(request.seed)[request.number];
  }

 private:
  std::map<std::size_t, double> contexts_;
  std::map<std::uint64_t, std::vector<double>> places_;
};

// Infinite where none of the others is as good.
template <class Weight>
std::optional<double> ratio(const PlacementSummary& own, std::span<const PlacementSummary> others,
                            const Weight& weight) {
  const auto mine = weighted_means(own, weight);
  if (!mine) return std::nullopt;
  std::vector<std::pair<double, double>> points;
  for (const PlacementSummary& other : others) {
    if (const auto point = weighted_means(other, weight)) points.push_back(*point);
  }
  const auto theirs = envelope(points, mine->first);
  return theirs ? *theirs / mine->second : std::numeric_limits<double>::infinity();
}

}  // namespace

std::optional<double> envelope(std::span<const std::pair<double, double>> points, double at) {
  std::optional<double> least;
  const auto consider = [&](double time) { least = std::min(least.value_or(time), time); };
  for (const auto& [quality, time] : points) {
    if (quality >= at) consider(time);
    for (const auto& [other_quality, other_time] : points) {
      if (quality >= at || other_quality <= at) continue;
      consider(time + (other_time - time) * (at - quality) / (other_quality - quality));
    }
  }
  return least;
}

std::optional<Interval> ratio_to_envelope(const PlacementSummary& own, std::span<const PlacementSummary> others) {
  const auto all = ratio(own, others, [](const RatedRequest&) { return 1.0; });
  if (!all || *all == std::numeric_limits<double>::infinity()) return std::nullopt;
  const auto runs = runs_of(own, others);
  std::vector<std::size_t> contexts;
  for (const RatedRequest& request : own.answered) contexts.push_back(request.context);
  std::ranges::sort(contexts);
  contexts.erase(std::ranges::unique(contexts).begin(), contexts.end());
  Random random(1);
  std::vector<double> ratios;
  for (int i = 0; i < kEnvelopeResamples; ++i) {
    if (const auto one = ratio(own, others, Draw(runs, contexts, random))) ratios.push_back(*one);
  }
  return Interval{*all, quantile(ratios, 0.025), quantile(ratios, 0.975)};
}

}  // namespace shale
