// The request of the most prompt blocks; of equals the earliest.
#include <functional>

#include "scheduling/by_length.h"
#include "scheduling/schedulers.h"

namespace shale {

std::unique_ptr<Scheduler> make_longest(const SchedulerOptions&, PrefixLookup&) {
  return std::make_unique<ByLength<std::greater<>>>();
}

}  // namespace shale
