// Whose turn it is among tenants: the least served one's, each by its weight.
//
// Virtual token counters (VTC; Sheng et al., Fairness in Serving Large Language Models, OSDI 2024, algorithm 2): what a
// tenant is served is charged to its counter, over its weight, and whoever serves takes the next request of the tenant
// whose counter is least. A tenant without waiting requests is lifted, when it comes, to the least counter of those who
// wait or, where nobody does, to that of the last who did: nobody saves up service by asking for none, or for one long
// answer. So nobody waits for ever behind another's requests, however many there are, and no capacity lies idle for
// fairness' sake.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace shale {

// Not thread-safe.
class FairShares {
 public:
  struct Share {
    std::string tenant;
    double weight = 1;          // above 0: of two that always wait, one with twice the weight is served twice as much
    double service = 0;         // charged so far, over the weight
    std::uint32_t waiting = 0;  // requests

    void charge(double tokens) { service += tokens / weight; }
  };

  // A request of the tenant waits from now on. The share stays where it is. Requires weight > 0; the last one counts.
  Share& enter(std::string_view tenant, double weight);
  // A request of it is served from now on, or is withdrawn.
  void leave(Share& share);

 private:
  const Share* least_served() const;  // of those who wait; null: nobody does

  std::map<std::string, Share, std::less<>> shares_;
  const Share* last_ = nullptr;  // of those who waited
};

}  // namespace shale
