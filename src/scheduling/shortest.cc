// The request of the fewest prompt blocks; of equals the earliest.
#include <functional>

#include "scheduling/by_length.h"
#include "scheduling/schedulers.h"

namespace shale {

std::unique_ptr<Scheduler> make_shortest(const SchedulerOptions&, PrefixLookup&) {
  return std::make_unique<ByLength<std::less<>>>();
}

}  // namespace shale
