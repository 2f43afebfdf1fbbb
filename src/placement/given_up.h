// How often given-up cached prefixes were used, so that one that comes again does not begin anew.
#pragma once

#include <cstddef>

#include "core/lru_map.h"
#include "placement/placement.h"

namespace shale {

// The uses of those given up last. Not thread-safe.
class GivenUp {
 public:
  explicit GivenUp(double half_life_s) : half_life_s_(half_life_s) {}

  // `frequency`: of accesses, decayed to now.
  void note(PrefixId id, double frequency, double now_s) {
    uses_.touch(id, half_life_s_).resume(frequency, now_s, 1);
    if (uses_.size() > kKeptMax) uses_.erase_oldest();
  }
  // Decayed to now; 0 of what is not kept.
  double frequency(PrefixId id, double now_s) const {
    const Frequency* uses = uses_.find(id);
    return uses ? uses->value(now_s) : 0;
  }

 private:
  static constexpr std::size_t kKeptMax = 16384;

  double half_life_s_;
  LruMap<PrefixId, Frequency> uses_;
};

}  // namespace shale
