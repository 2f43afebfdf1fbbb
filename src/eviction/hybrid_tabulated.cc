// Hybrid of recency and use as the table of "A Systematic Study of KV Cache Management for Efficient LLM Inference" has
// it: the leaf of the smallest last access + 2.5 · visits goes, in requests, the newest of equals. The paper prints
// another formula, which is `hybrid`; this one gives its numbers.
#include "eviction/path_policy.h"
#include "eviction/policies.h"

namespace shale {
namespace {

class HybridTabulated final : public RankedPolicy<NodeFields{.visits = true}> {
 public:
  HybridTabulated() : PathPolicy(Newcomers::kCompete) {}

 private:
  std::uint64_t score(NodeId id) { return 2 * tick() + 5 * std::uint64_t{visits(id)}; }
  void arrive(NodeId id, std::uint8_t) override { leaves().put(id, 0, {score(id), ~next_serial()}); }
  void hit(NodeId id) override { leaves().put(id, 0, {score(id), leaves().rank(id).second}); }
  void renewed(NodeId id) override { hit(id); }
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_hybrid_tabulated(const EvictionOptions&) {
  return std::make_unique<HybridTabulated>();
}

}  // namespace shale
