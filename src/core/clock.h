// Time is handed in, so that the server and the simulator differ only in the clock they construct.
#pragma once

#include <algorithm>

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

// Stands still until told or waited on. Not thread-safe.
class VirtualClock final : public Clock {
 public:
  double now_s() const override { return now_s_; }
  void sleep_until_s(double time_s) const override { now_s_ = std::max(now_s_, time_s); }
  void advance(double seconds) { now_s_ += seconds; }

 private:
  mutable double now_s_ = 0;
};

}  // namespace shale
