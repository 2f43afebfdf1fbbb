#pragma once

#include "core/clock.h"

namespace shale {

// Adds the seconds of its own life to `sum`; both must outlive it.
class Stopwatch {
 public:
  Stopwatch(const Clock& clock, double& sum) : clock_(clock), sum_(sum), start_s_(clock.now_s()) {}
  ~Stopwatch() { sum_ += clock_.now_s() - start_s_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  const Clock& clock_;
  double& sum_;
  const double start_s_;
};

}  // namespace shale
