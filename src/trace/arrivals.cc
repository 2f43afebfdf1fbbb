#include "trace/arrivals.h"

#include <numbers>

namespace shale {

Result<ArrivalProcess> ArrivalProcess::create(const ArrivalOptions& options, std::uint64_t seed) {
  const auto& o = options;
  if (!(o.per_s > 0)) return fail(ErrorCode::kInvalidArgument, "a rate of arrivals is above 0 a second");
  const bool has_bursts = o.burst_share > 0 && o.burst_share < 1 && o.burst_s > 0 && o.burst_factor >= 1;
  if (o.kind == ArrivalKind::kBursty && !(has_bursts && o.burst_factor * o.burst_share <= 1)) {
    return fail(ErrorCode::kInvalidArgument,
                "bursts take a share of time between 0 and 1, a length above 0 and a factor from 1 to 1/share");
  }
  if (o.kind == ArrivalKind::kDiurnal && !(o.swing >= 0 && o.swing <= 1 && o.period_s > 0)) {
    return fail(ErrorCode::kInvalidArgument, "a rate swings by a share from 0 to 1 in a period above 0 seconds");
  }
  ArrivalProcess process(options, seed);
  if (o.kind == ArrivalKind::kBursty) {
    process.state_end_s_ = process.random_.exponential(o.burst_s * (1 - o.burst_share) / o.burst_share);
  }
  return process;
}

double ArrivalProcess::next() {
  switch (options_.kind) {
    case ArrivalKind::kBursty:
      return now_s_ = next_bursty();
    case ArrivalKind::kDiurnal:
      return now_s_ = next_diurnal();
    case ArrivalKind::kPoisson:
      break;
  }
  return now_s_ += random_.exponential(1 / options_.per_s);
}

// A gap that would end after its state does is drawn again from there: exponential gaps have no memory.
double ArrivalProcess::next_bursty() {
  const auto& o = options_;
  for (double now = now_s_;;) {
    const double share = in_burst_ ? o.burst_factor : (1 - o.burst_share * o.burst_factor) / (1 - o.burst_share);
    if (share > 0) {
      const double arrival = now + random_.exponential(1 / (o.per_s * share));
      if (arrival < state_end_s_) return arrival;
    }
    now = state_end_s_;
    in_burst_ = !in_burst_;
    state_end_s_ += random_.exponential(in_burst_ ? o.burst_s : o.burst_s * (1 - o.burst_share) / o.burst_share);
  }
}

// Thinning (Lewis and Shedler 1979): arrivals at the highest rate, each kept as likely as the rate is high then.
double ArrivalProcess::next_diurnal() {
  const double rate_max = options_.per_s * (1 + options_.swing);
  for (double now = now_s_;;) {
    now += random_.exponential(1 / rate_max);
    const double swing = 1 + options_.swing * std::sin(2 * std::numbers::pi * now / options_.period_s);
    if (random_.uniform() * rate_max < options_.per_s * swing) return now;
  }
}

}  // namespace shale
