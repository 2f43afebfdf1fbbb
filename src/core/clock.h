// Time is handed in, so that the server and the simulator differ only in the clock they construct.
#pragma once

#include <atomic>

namespace shale {

class Clock {
 public:
  virtual ~Clock() = default;
  // Seconds since an arbitrary origin; never goes back. Thread-safe.
  virtual double now_s() const = 0;
  // Returns once now_s() ≥ `time_s`: a real clock sleeps, a virtual one moves there.
  virtual void sleep_until_s(double time_s) const = 0;
};

// The machine's monotonic clock.
class RealClock final : public Clock {
 public:
  double now_s() const override;
  void sleep_until_s(double time_s) const override;
};

// Seconds since 1970: for what other processes and people read, never for how long something took.
double wall_clock_s();

// Stands still until told or waited on.
class VirtualClock final : public Clock {
 public:
  double now_s() const override { return now_s_; }
  void sleep_until_s(double time_s) const override {
    for (double now = now_s_; now < time_s && !now_s_.compare_exchange_weak(now, time_s);) continue;
  }
  void advance(double seconds) { now_s_ += seconds; }

 private:
  mutable std::atomic<double> now_s_ = 0;
};

}  // namespace shale
