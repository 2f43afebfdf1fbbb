#include "server/metrics.h"

#include <algorithm>
#include <numeric>

namespace shale {

void Histogram::observe(double value) {
  ++counts_[static_cast<std::size_t>(std::ranges::lower_bound(bounds_, value) - bounds_.begin())];
  sum_ += value;
}

std::uint64_t Histogram::count() const { return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0}); }

void RequestMetrics::finish(const Response& response, double seconds) {
  ++finished[static_cast<std::size_t>(response.stop)];
  lossy += response.lossy;
  prompt_tokens += response.begun ? response.prompt_tokens : 0;
  generated_tokens += response.drawn();
  cached.add(response.cached);
  queue_seconds.observe(response.queue_seconds);
  total_seconds.observe(seconds);
  prompt_lengths.observe(response.prompt_tokens);
  if (response.begun) computed_lengths.observe(response.computed_tokens());
  answer_lengths.observe(static_cast<double>(response.drawn()));
  if (response.drawn() > 0) {
    ttft_seconds.observe(response.ttft_seconds);
    prefill_seconds.observe(response.ttft_seconds - response.queue_seconds);
    decode_seconds.observe(response.tpot_seconds * static_cast<double>(response.drawn() - 1));
  }
  for (const float gap : response.gaps_seconds) gap_seconds.observe(gap);
  if (response.drawn() > 1) tpot_seconds.observe(response.tpot_seconds);
}

}  // namespace shale
