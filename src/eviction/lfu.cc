// Least frequently used: the leaf with the fewest visits goes, the newest of equals. Being inserted is the first visit;
// visits are forgotten with the node. A newcomer competes at once, and often goes at once.
#include "eviction/path_policy.h"
#include "eviction/policies.h"

namespace shale {
namespace {

class Lfu final : public RankedPolicy<NodeFields{.visits = true}> {
 public:
  Lfu() : PathPolicy(Newcomers::kCompete) {}

 private:
  void arrive(NodeId id, std::uint8_t) override { leaves().put(id, 0, {visits(id), ~next_serial()}); }
  void hit(NodeId id) override { leaves().put(id, 0, {visits(id), leaves().rank(id).second}); }
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lfu(const EvictionOptions&) { return std::make_unique<Lfu>(); }

}  // namespace shale
