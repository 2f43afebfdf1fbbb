// What a load on a server came to, in numbers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "loadtest/serve/dribbling_clients.h"
#include "loadtest/serve/serve_child.h"
#include "loadtest/serve/serve_client.h"
#include "loadtest/serve/serve_load.h"

namespace shale {

// One load on one server.
struct ServeRow {
  std::string planner;
  double rate = 0, rate_to_prefill = 0;  // requests a second; and over those that can be computed with nothing reused
  std::uint64_t seed = 1;
  std::vector<LoadRequest> load;      // that were asked, in the order of their planned times
  std::vector<ServedAnswer> answers;  // one for each request of `load`
  std::size_t not_asked = 0;          // turns left of chats in which one failed
  Metrics metrics;                    // by what the server's had grown when the last answer had come
  std::size_t dribbling = 0;          // connections that stood beside
  HealthAnswers health = {};          // while they did
  // "shale", or "shale+500" beside 500 of them.
  std::string name() const;
};

// Times to the first text, from the planned arrival; percentiles are nearest ranks, and 0 of nothing.
struct TtftQuantiles {
  std::size_t requests = 0;
  double p50 = 0, p90 = 0, p99 = 0;
};

// Metrics of the requests that were answered.
struct ServeMetrics {
  std::size_t requests = 0, failed = 0, not_asked = 0, lossy = 0;
  TtftQuantiles ttft;
  TtftQuantiles repeat_ttft;                     // of those whose context was asked about before (repeats_of)
  TtftQuantiles later_ttft;                      // of those after their chat's first
  double later_computed_tokens = 0;              // of one of these, on average
  double itl_p50 = 0, itl_p99 = 0, itl_max = 0;  // over all gaps between pieces of text
  double e2e_p50 = 0;                            // from the planned arrival to the answer's end
  double run_seconds = 0;                        // from the first planned arrival to the last end
  double tokens_per_second = 0;                  // of answers, in these
  std::uint64_t prompt_tokens = 0, computed_tokens = 0;
  std::map<std::string, std::uint64_t> cached_tokens;  // prompt_tokens = computed_tokens + these
  // Requests that found less than half of their prompt in the pool.
  std::size_t pool_missed = 0;
  double pool_missed_ttft_p50 = 0;
  // The server's, when the last answer had come.
  double background_seconds = 0, planning_seconds = 0, measured_beside_seconds = 0, threads_short_seconds = 0;
  std::uint64_t given_up = 0;  // runs that were to be stored, and were not for their pages
};
ServeMetrics metrics_of(const ServeRow& row);

// Times between two pieces of an answer.
std::vector<double> gaps_of(const ServedAnswer& answer);

}  // namespace shale
