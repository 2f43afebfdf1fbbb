// What `shale bench placement` reports of its cells.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loadtest/placement/placement_cells.h"
#include "loadtest/serve/serve_load.h"
#include "profile/bootstrap.h"
#include "runtime/answer_metrics.h"

namespace shale {

// One policy at one rate, over all seeds.
struct PlacementSummary {
  std::string policy;
  double rate_to_prefill = 0;
  std::size_t requests = 0, failed = 0, lossy = 0;
  double ttft_mean = 0, ttft_p50 = 0, ttft_p90 = 0, ttft_p99 = 0, itl_p99 = 0;
  Interval agreement;                   // with the exact answers, teacher-forced; resampled by context
  double expected_quality = 0;          // mean of what the server said, where it said anything
  std::map<std::string, double> alike;  // to the exact answers as texts, by metric
  std::optional<double> gold_f1;        // where there are accepted answers
  std::map<std::string, double> from;   // share of the prompts' tokens, "computed" among them
  std::map<std::string, double> forms;  // share of the lossy tokens, by "tier: method@keep"
  double head_bytes = 0;                // a request: what IMPRESS would have read of heads before it loads
  double busy_share = 0;                // of the run, what storing, planning and measuring took
  double taken_share = 0;               // of the run: all planning, and what measuring took from requests that ran

  // Sums of each context, for comparisons that resample contexts.
  struct OfContext {
    double ttft = 0, agreement = 0;  // sums
    std::size_t answers = 0;
  };
  std::map<std::size_t, OfContext> contexts;
};

// Summaries in order of first appearance. Requires measure_quality.
Result<std::vector<PlacementSummary>> summaries_of(const PlacementFile& file, std::span<const LoadContext> contexts,
                                                   AnswerMetrics& metrics);

// How much sooner first tokens come, on average, than by any mixture of the others at no less quality: their mean time
// on the lower convex envelope over (quality, time), without extrapolation, over `own`'s. Nothing where none of them is
// as good. The interval resamples contexts.
std::optional<Interval> ratio_to_envelope(const PlacementSummary& own, std::span<const PlacementSummary> others);

// A time on that envelope: at least quality `at`. `points`: (quality, time).
std::optional<double> envelope(std::span<const std::pair<double, double>> points, double at);

// Tables for people, and one self-contained page. `about`: what was measured.
std::string placement_tables(std::span<const PlacementSummary> summaries, std::span<const LoadContext> contexts);
std::string placement_page(std::span<const PlacementSummary> summaries, std::span<const LoadContext> contexts,
                           std::string_view about);
Json to_json(const PlacementSummary& summary);

}  // namespace shale
