#include <cmath>

#include "sim/serving.h"

namespace shale {
namespace {

// The end of the batch that starts at `first`.
std::uint32_t batch_end(const Trace& trace, std::uint32_t first, double window_s) {
  const auto batch = [&](std::uint32_t id) {
    const double arrival_s = trace.requests[id].arrival_s;
    return window_s > 0 ? std::floor(arrival_s / window_s) : arrival_s;
  };
  std::uint32_t end = first + 1;
  while (end < trace.requests.size() && batch(end) == batch(first)) ++end;
  return end;
}

// Calls serve(id, time_s) for every request in order, until it returns false.
template <class Serve>
void in_batches(const Trace& trace, double window_s, Scheduler& scheduler, const Serve& serve) {
  const auto count = static_cast<std::uint32_t>(trace.requests.size());
  for (std::uint32_t first = 0, end = 0; first < count; first = end) {
    end = batch_end(trace, first, window_s);
    for (std::uint32_t id = first; id < end; ++id) scheduler.add(waiting_request(trace, id));
    const double time_s = trace.requests[end - 1].arrival_s;
    while (scheduler.waiting() > 0) {
      if (!serve(scheduler.take(), time_s)) return;
    }
  }
}

class NothingResident final : public PrefixLookup {
 public:
  std::uint32_t resident_prefix(const WaitingRequest&) const override { return 0; }
};

}  // namespace

void serve_batches(Serving& serving, Scheduler& scheduler, double window_s) {
  in_batches(serving.trace(), window_s, scheduler, [&](std::uint32_t id, double time_s) {
    serving.serve(id, time_s);
    return !serving.should_stop();
  });
}

std::vector<std::uint32_t> batch_order(const Trace& trace, std::string_view name, double window_s) {
  NothingResident cache;
  const auto scheduler = std::move(make_scheduler(name, {}, cache).value());
  std::vector<std::uint32_t> order;
  order.reserve(trace.requests.size());
  in_batches(trace, window_s, *scheduler, [&](std::uint32_t id, double) {
    order.push_back(id);
    return true;
  });
  return order;
}

}  // namespace shale
