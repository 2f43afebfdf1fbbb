// Time is handed in, so that the server and the simulator differ only in the clock they construct.
#pragma once

namespace shale {

class Clock {
 public:
  virtual ~Clock() = default;
  // Seconds since an arbitrary origin; never goes back. Thread-safe.
  virtual double now_s() const = 0;
};

// The machine's monotonic clock.
class RealClock final : public Clock {
 public:
  double now_s() const override;
};

// Stands still until told. Not thread-safe.
class VirtualClock final : public Clock {
 public:
  double now_s() const override { return now_s_; }
  void advance(double seconds) { now_s_ += seconds; }

 private:
  double now_s_ = 0;
};

}  // namespace shale
