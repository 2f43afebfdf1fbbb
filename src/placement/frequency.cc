#include <algorithm>
#include <cmath>

#include "placement/placement.h"

namespace shale {

void Frequency::access(double now_s) {
  value_ = value(now_s) + 1;
  last_s_ = count_ == 0 ? now_s : std::max(last_s_, now_s);
  ++count_;
}

double Frequency::value(double now_s) const {
  if (plain_count_) return static_cast<double>(count_);
  return value_ * std::exp2(-std::max(0.0, now_s - last_s_) / half_life_s_);
}

void Frequency::resume(double value, double last_access_s, std::uint64_t count) {
  value_ = value;
  last_s_ = last_access_s;
  count_ = count;
}

}  // namespace shale
