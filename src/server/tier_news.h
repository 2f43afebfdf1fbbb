// What people are told of tiers in trouble: a line when it begins, a line when it has ended.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache.h"

namespace shale {

// Not thread-safe.
class TierNews {
 public:
  // What is wrong with a tier now; nothing where all is well.
  struct State {
    std::string tier;
    std::optional<std::string> trouble;
    bool of_removals = false;  // else of all else
  };
  // Lines that are due. A trouble has ended when there was none for kEndedAfterS. Of its removals nothing is said while
  // the tier is in trouble itself, which stands before them in `states`.
  std::vector<std::string> look(const std::vector<State>& states, double now_s);

  static constexpr double kEndedAfterS = 5;

 private:
  std::map<std::pair<std::string, bool>, double> last_seen_s_;  // trouble, by tier, of removals or of all else
};

// The tiers of a cache as they are now.
std::vector<TierNews::State> tier_states(const Cache& cache, const StoreStats& stats);

}  // namespace shale
