// What a trace is like: sizes, arrivals, lengths, sharing, reuse, and how its working set moves.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/reuse_distance.h"
#include "trace/trace.h"

namespace shale {

// The spread of a set of numbers; all 0 for none. A quantile is the smallest number that at least that share are at or
// below.
struct Spread {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};

// One window of the working set: [start_s, start_s + the window).
struct TraceWindow {
  double start_s = 0;
  std::uint64_t requests = 0;
  std::uint64_t blocks = 0;         // of prompts, counted as often as they are asked for
  std::uint64_t unique_blocks = 0;  // each counted once a window
  std::uint64_t new_blocks = 0;     // asked for the first time ever
};

struct TraceStatistics {
  std::uint64_t requests = 0;
  std::uint64_t blocks = 0;  // of prompts
  std::uint64_t output_blocks = 0;
  std::uint64_t unique_blocks = 0;  // of prompts
  std::uint64_t input_tokens = 0, output_tokens = 0;
  Spread prompt_tokens, answer_tokens;

  double duration_s = 0;  // from the first arrival to the last
  Spread gap_s;           // between arrivals
  // Standard deviation of gaps over their mean: 1 for Poisson arrivals, more for bursts; 0 without gaps.
  double gap_variation = 0;
  std::uint64_t busiest_second = 0;  // most arrivals in [n, n + 1) seconds

  // Reuse with a cache that never forgets: blocks that were in a prompt before, requests that begin with one, and the
  // share of blocks.
  std::uint64_t reused_blocks = 0;
  std::uint64_t reusing_requests = 0;
  double hit_ratio_unbounded = 0;
  std::vector<ReuseDistance> reuse_distances;

  double window_s = 0;
  std::vector<TraceWindow> windows;  // those without a request too
};

// `window_s` 0: a 24th of the trace. At most 100,000 windows: a shorter window is lengthened.
TraceStatistics trace_statistics(const Trace& trace, double window_s = 0);

}  // namespace shale
