// Least frequently used: the leaf with the fewest visits goes, the newest of equals. Being inserted is the first visit;
// visits are forgotten with the node.
#include "eviction/policies.h"
#include "eviction/ranked_policy.h"

namespace shale {
namespace {

class Lfu final : public RankedPolicy {
  std::uint64_t value(const Node& node) const override { return node.visits; }
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lfu(const EvictionOptions&) { return std::make_unique<Lfu>(); }

}  // namespace shale
