#include "placement/pool_residence.h"

#include <cmath>

namespace shale {
namespace {

constexpr double kGain = 1.0 / 8;

}  // namespace

void PoolResidence::evicted(double after_s) {
  const bool first = std::isinf(characteristic_s_);
  characteristic_s_ = first ? after_s : characteristic_s_ + kGain * (after_s - characteristic_s_);
}

double PoolResidence::held_at_next_access(double accesses_per_s) const {
  if (std::isinf(characteristic_s_)) return 1;
  if (characteristic_s_ == 0) return 0;  // however often, in no time
  return -std::expm1(-accesses_per_s * characteristic_s_);
}

}  // namespace shale
