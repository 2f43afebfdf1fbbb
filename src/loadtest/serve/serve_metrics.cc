#include "loadtest/serve/serve_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/quantile.h"

namespace shale {
namespace {

TtftQuantiles quantiles_of(const std::vector<double>& ttft) {
  return {ttft.size(), quantile(ttft, 0.5), quantile(ttft, 0.9), quantile(ttft, 0.99)};
}

}  // namespace

std::string ServeRow::name() const { return dribbling > 0 ? fmt::format("{}+{}", planner, dribbling) : planner; }

std::vector<double> gaps_of(const ServedAnswer& answer) {
  std::vector<double> gaps;
  for (std::size_t i = 1; i < answer.pieces_s.size(); ++i) {
    gaps.push_back(answer.pieces_s[i] - answer.pieces_s[i - 1]);
  }
  return gaps;
}

ServeMetrics metrics_of(const ServeRow& row) {
  ServeMetrics metrics;
  metrics.requests = row.answers.size();
  metrics.not_asked = row.not_asked;
  const std::vector<bool> repeats = repeats_of(row.load);
  std::vector<double> ttft, repeat_ttft, later_ttft, itl, e2e, missed;
  double last_s = 0, tokens = 0, later_computed = 0;
  for (std::size_t i = 0; i < row.answers.size(); ++i) {
    const ServedAnswer& answer = row.answers[i];
    if (!answer.error.empty()) {
      ++metrics.failed;
      continue;
    }
    ttft.push_back(answer.pieces_s.front());
    if (repeats[i]) repeat_ttft.push_back(ttft.back());
    if (row.load[i].turn > 1) {
      later_ttft.push_back(ttft.back());
      later_computed += answer.computed_tokens;
    }
    e2e.push_back(answer.end_s);
    std::ranges::copy(gaps_of(answer), std::back_inserter(itl));
    last_s = std::max(last_s, row.load[i].at_s + answer.end_s);
    tokens += answer.completion_tokens;
    metrics.lossy += answer.lossy;
    metrics.prompt_tokens += answer.prompt_tokens;
    metrics.computed_tokens += answer.computed_tokens;
    for (const auto& [source, count] : answer.cached_tokens) metrics.cached_tokens[source] += count;
    const auto pool = answer.cached_tokens.find("pool");
    if (pool == answer.cached_tokens.end() || 2 * pool->second < answer.prompt_tokens) missed.push_back(ttft.back());
  }
  metrics.ttft = quantiles_of(ttft);
  metrics.repeat_ttft = quantiles_of(repeat_ttft);
  metrics.later_ttft = quantiles_of(later_ttft);
  if (!later_ttft.empty()) metrics.later_computed_tokens = later_computed / static_cast<double>(later_ttft.size());
  metrics.itl_p50 = quantile(itl, 0.5);
  metrics.itl_p99 = quantile(itl, 0.99);
  metrics.itl_max = quantile(itl, 1);
  metrics.e2e_p50 = quantile(e2e, 0.5);
  if (!row.load.empty() && last_s > row.load.front().at_s) {
    metrics.run_seconds = last_s - row.load.front().at_s;
    metrics.tokens_per_second = tokens / metrics.run_seconds;
  }
  metrics.pool_missed = missed.size();
  metrics.pool_missed_ttft_p50 = quantile(missed, 0.5);
  metrics.background_seconds = value_of(row.metrics, "shale_cache_background_seconds_total");
  metrics.planning_seconds = value_of(row.metrics, "shale_cache_planning_seconds_total");
  metrics.measured_beside_seconds = value_of(row.metrics, "shale_measured_beside_seconds_total");
  metrics.threads_short_seconds = value_of(row.metrics, "shale_engine_threads_short_seconds_total");
  metrics.given_up = static_cast<std::uint64_t>(value_of(row.metrics, "shale_cache_given_up_total"));
  return metrics;
}

}  // namespace shale
