// When requests come: three processes of the same mean rate.
#pragma once

#include <cstdint>

#include "core/error.h"
#include "trace/random.h"

namespace shale {

enum class ArrivalKind {
  kPoisson,
  kBursty,   // Poisson whose rate is raised for short whiles, at random (a Markov-modulated process of two states)
  kDiurnal,  // Poisson whose rate swings like a sine, starting at its mean and rising
};

struct ArrivalOptions {
  ArrivalKind kind = ArrivalKind::kPoisson;
  double per_s = 1;             // mean rate
  double burst_factor = 5;      // bursty: rate in a burst, over the mean; burst_factor · burst_share ≤ 1
  double burst_share = 0.1;     // bursty: share of time in bursts
  double burst_s = 10;          // bursty: mean length of a burst
  double swing = 0.8;           // diurnal: the rate is mean · (1 ± swing)
  double period_s = 24 * 3600;  // diurnal
};

// Not thread-safe.
class ArrivalProcess {
 public:
  // kInvalidArgument for options that make no sense.
  static Result<ArrivalProcess> create(const ArrivalOptions& options, std::uint64_t seed);

  // The time of the next arrival, in seconds; the first one is at 0 or later.
  double next();

 private:
  ArrivalProcess(const ArrivalOptions& options, std::uint64_t seed) : options_(options), random_(seed) {}
  double next_bursty();
  double next_diurnal();

  ArrivalOptions options_;
  Random random_;
  double now_s_ = 0;
  bool in_burst_ = false;
  double state_end_s_ = 0;  // bursty: when the present state ends
};

}  // namespace shale
