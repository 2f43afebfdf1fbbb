// Hybrid of recency, use and length as printed in "A Systematic Study of KV Cache Management for Efficient LLM
// Inference": the leaf of the smallest visits · length / (1 + recency) goes, `length` its depth in blocks (or 1, by
// option) and `recency` the requests since its last access; the newest of equals. The score falls as time passes, and
// faster for some leaves than for others. Exact. The paper's table follows `hybrid_tabulated` instead.
#include "eviction/kinetic_leaves.h"
#include "eviction/path_policy.h"
#include "eviction/policies.h"

namespace shale {
namespace {

class Hybrid final : public PathPolicy<KineticLeaves, NodeFields{.visits = true, .depths = true}> {
 public:
  explicit Hybrid(bool counts_length) : PathPolicy(Newcomers::kCompete), counts_length_(counts_length) {}

 private:
  void begin(const PathAccess& visit) override { leaves().advance(visit.tick); }
  void arrive(NodeId id, std::uint8_t) override { put(id, next_serial()); }
  void hit(NodeId id) override { put(id, leaves().serial(id)); }
  void renewed(NodeId id) override { hit(id); }
  void put(NodeId id, std::uint64_t serial) {
    leaves().put(id, std::uint64_t{visits(id)} * (counts_length_ ? depth(id) : 1), tick(), serial);
  }

  bool counts_length_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_hybrid(const EvictionOptions& options) {
  return std::make_unique<Hybrid>(options.hybrid_counts_length);
}

}  // namespace shale
