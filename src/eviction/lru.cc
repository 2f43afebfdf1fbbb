// Least recently used: the leaf whose last access is oldest goes, the newest of equals. All nodes of a path share their
// last access, so a parent takes its last child's place among the leaves in O(1), and a path goes as a whole.
#include "eviction/path_policy.h"
#include "eviction/policies.h"

namespace shale {
namespace {

class Lru final : public RankedPolicy<> {
 public:
  Lru() : PathPolicy(Newcomers::kCompete) {}

 private:
  void arrive(NodeId id, std::uint8_t) override { leaves().put(id, 0, {tick(), ~next_serial()}); }
  void hit(NodeId id) override { leaves().put(id, 0, {tick(), leaves().rank(id).second}); }
  void renewed(NodeId id) override { hit(id); }
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lru(const EvictionOptions&) { return std::make_unique<Lru>(); }

}  // namespace shale
