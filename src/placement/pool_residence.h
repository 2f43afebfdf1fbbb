// How likely it is that what the block pool holds of a cached prefix now, it still holds at the cached prefix's next
// access.
#pragma once

#include <limits>

namespace shale {

// Che's approximation (Che, Tung and Wang 2002, "Hierarchical Web caching systems: modeling, design and experimental
// results"): a cache keeps what is not used again for about the same time T, whatever it is; so a cached prefix that is
// used λ times a second at random is used again before it is evicted with probability 1 − exp(−λ T). T is learned from
// what the pool evicts; until it has evicted anything, T is without end. Not thread-safe.
class PoolResidence {
 public:
  // Something was evicted so long after its last access.
  void evicted(double after_s);
  double held_at_next_access(double accesses_per_s) const;
  double characteristic_s() const { return characteristic_s_; }

 private:
  double characteristic_s_ = std::numeric_limits<double>::infinity();
};

}  // namespace shale
