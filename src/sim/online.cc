#include <algorithm>
#include <functional>
#include <queue>

#include "core/quantile.h"
#include "sim/serving.h"

namespace shale {

WaitingTimes serve_online(Serving& serving, Scheduler& scheduler, const ServiceModel& model) {
  const Trace& trace = serving.trace();
  const auto count = static_cast<std::uint32_t>(trace.requests.size());
  std::priority_queue<double, std::vector<double>, std::greater<>> free_s;  // when each server is free again
  for (std::uint32_t i = 0; i < model.servers; ++i) free_s.push(0);
  std::vector<double> waiting, ttft;
  double now_s = 0, busy_s = 0, done_s = 0;
  std::uint32_t arrived = 0;
  while ((scheduler.waiting() > 0 || arrived < count) && !serving.should_stop()) {
    now_s = std::max(now_s, free_s.top());
    if (scheduler.waiting() == 0) now_s = std::max(now_s, trace.requests[arrived].arrival_s);
    for (; arrived < count && trace.requests[arrived].arrival_s <= now_s; ++arrived) {
      scheduler.add(waiting_request(serving.trace(), arrived));
    }
    const std::uint32_t id = scheduler.take();
    const TraceRequest& request = trace.requests[id];
    const std::uint64_t cached_tokens =
        std::min<std::uint64_t>(std::uint64_t{serving.serve(id, now_s)} * trace.block_tokens, request.input_tokens);
    const double prefill_s = model.prefill_s(request.input_tokens - cached_tokens, cached_tokens);
    const double service_s = prefill_s + model.decode_s(request.output_tokens);
    waiting.push_back(now_s - request.arrival_s);
    ttft.push_back(now_s + prefill_s - request.arrival_s);
    busy_s += service_s;
    done_s = std::max(done_s, now_s + service_s);
    free_s.pop();
    free_s.push(now_s + service_s);
  }
  return {percentiles_of(waiting), percentiles_of(ttft), done_s > 0 ? busy_s / (done_s * model.servers) : 0};
}

Percentiles percentiles_of(const std::vector<double>& values) {
  return {quantile(values, 0.5), quantile(values, 0.9), quantile(values, 0.99)};
}

}  // namespace shale
