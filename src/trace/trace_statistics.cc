#include "trace/trace_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/quantile.h"

namespace shale {
namespace {

constexpr double kWindowsDefault = 24, kWindowsMax = 100'000;

Spread spread_of(const std::vector<double>& numbers) {
  if (numbers.empty()) return {};
  return {.mean = std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size()),
          .p50 = quantile(numbers, 0.5),
          .p90 = quantile(numbers, 0.9),
          .p99 = quantile(numbers, 0.99),
          .max = std::ranges::max(numbers)};
}

void measure_lengths(const Trace& trace, TraceStatistics& out) {
  std::vector<double> prompts, answers;
  for (const TraceRequest& request : trace.requests) {
    out.blocks += request.prompt_blocks;
    out.output_blocks += request.output_blocks;
    out.input_tokens += request.input_tokens;
    out.output_tokens += request.output_tokens;
    prompts.push_back(request.input_tokens);
    answers.push_back(request.output_tokens);
  }
  out.prompt_tokens = spread_of(prompts);
  out.answer_tokens = spread_of(answers);
}

void measure_arrivals(const Trace& trace, TraceStatistics& out) {
  const auto& requests = trace.requests;
  out.duration_s = requests.back().arrival_s - requests.front().arrival_s;
  std::vector<double> gaps;
  double squares = 0, second = -1;
  std::uint64_t in_second = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const double now = std::floor(requests[i].arrival_s);
    in_second = now == second ? in_second + 1 : 1;
    second = now;
    out.busiest_second = std::max(out.busiest_second, in_second);
    if (i > 0) gaps.push_back(requests[i].arrival_s - requests[i - 1].arrival_s);
  }
  const auto count = static_cast<double>(gaps.size());
  out.gap_s = spread_of(gaps);
  for (const double gap : gaps) squares += (gap - out.gap_s.mean) * (gap - out.gap_s.mean);
  if (out.gap_s.mean > 0) out.gap_variation = std::sqrt(squares / count) / out.gap_s.mean;
}

void measure_windows(const Trace& trace, double window_s, TraceStatistics& out) {
  constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();
  out.window_s = std::max(window_s > 0 ? window_s : out.duration_s / kWindowsDefault, out.duration_s / kWindowsMax);
  if (out.window_s <= 0) out.window_s = 1;
  const double start_s = trace.requests.front().arrival_s;
  std::vector<std::uint32_t> last_window(trace.unique_blocks(), kNever);
  for (const TraceRequest& request : trace.requests) {
    const auto index = static_cast<std::uint32_t>((request.arrival_s - start_s) / out.window_s);
    while (out.windows.size() <= index) {
      out.windows.push_back({.start_s = static_cast<double>(out.windows.size()) * out.window_s});
    }
    TraceWindow& window = out.windows[index];
    const auto path = trace.prompt(request);
    std::size_t known = 0;
    for (const BlockId block : path) {
      known += last_window[block] != kNever;
      window.unique_blocks += last_window[block] != index;
      last_window[block] = index;
    }
    ++window.requests;
    window.blocks += path.size();
    window.new_blocks += path.size() - known;
    out.reused_blocks += known;
    out.reusing_requests += known > 0;
  }
  out.unique_blocks = out.blocks - out.reused_blocks;
  if (out.blocks > 0)
    out.hit_ratio_unbounded = static_cast<double>(out.reused_blocks) / static_cast<double>(out.blocks);
}

}  // namespace

TraceStatistics trace_statistics(const Trace& trace, double window_s) {
  TraceStatistics out;
  out.requests = trace.requests.size();
  if (trace.requests.empty()) return out;
  measure_lengths(trace, out);
  measure_arrivals(trace, out);
  measure_windows(trace, window_s, out);
  out.reuse_distances = reuse_distances(trace);
  return out;
}

}  // namespace shale
