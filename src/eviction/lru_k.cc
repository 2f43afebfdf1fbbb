// LRU-K with K = 2 (O'Neil, O'Neil, Weikum, SIGMOD 1993): the leaf whose second last visit is oldest goes; leaves
// visited once go before all others, by their last visit. The visits of evicted blocks are kept, four times as
// many blocks as the tree holds, and count when the block returns. A newcomer competes at once.
#include "eviction/ghost_table.h"
#include "eviction/path_policy.h"
#include "eviction/policies.h"

namespace shale {
namespace {

class LruK final : public RankedPolicy<NodeFields{.keys = true}> {
 public:
  explicit LruK(std::uint64_t capacity) : PathPolicy(Newcomers::kCompete), ghosts_(4 * capacity) {}

  std::uint64_t ghosts() const override { return ghosts_.size(); }

 private:
  void arrive(NodeId id, std::uint8_t) override { leaves().put(id, 0, {ghosts_.take(key(id)).value_or(0), tick()}); }
  void hit(NodeId id) override { leaves().put(id, 0, {leaves().rank(id).second, tick()}); }
  void leaving(NodeId id, bool) override { ghosts_.insert(key(id), leaves().rank(id).second); }

  GhostTable<std::uint64_t> ghosts_;  // the last visit
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lru_k(const EvictionOptions& options) {
  return std::make_unique<LruK>(options.capacity_blocks);
}

}  // namespace shale
