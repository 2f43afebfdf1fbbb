// One policy of a placement benchmark at one rate, in numbers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "loadtest/placement/placement_cells.h"
#include "loadtest/serve/serve_load.h"
#include "profile/bootstrap.h"
#include "runtime/answer_metrics.h"

namespace shale {

// A request that was answered. `number`: its place in the load of its seed, which is the same under every policy.
struct RatedRequest {
  std::uint64_t seed = 1;
  std::size_t number = 0, context = 0;
  double arrival_s = 0, ttft_s = 0, agreement = 0;
  std::optional<double> expected = {};  // quality, as the server said of what it served lossily
};

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
  std::set<std::string> programs;       // PlacementCell::program
  std::set<std::string> rest;           // of its cells, before their requests: "5 s"
  std::vector<RatedRequest> answered;   // for comparisons that resample
};

// Summaries in order of first appearance. Requires measure_quality.
Result<std::vector<PlacementSummary>> summaries_of(const PlacementFile& file, std::span<const LoadContext> contexts,
                                                   AnswerMetrics& metrics);
Json to_json(const PlacementSummary& summary);

}  // namespace shale
