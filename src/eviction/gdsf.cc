// Greedy-Dual-Size-Frequency (Cherkasova 1998) on the cost of computing a block again. The leaf of the smallest
// inflation + visits · cost goes, the one visited longest ago of equals; inflation is the score of the last one that
// went. All blocks are of one size. A block's cost is its tokens' share of the weights plus attention over its prefix:
// 1 + (depth - 1) / 64, as for a model of 8 B parameters, 32 layers and blocks of 512 tokens, where attention over 32 k
// tokens costs as much as the weights.
#include <bit>

#include "eviction/path_policy.h"
#include "eviction/policies.h"

namespace shale {
namespace {

class Gdsf final : public RankedPolicy<NodeFields{.visits = true, .depths = true}> {
  void arrive(NodeId id, std::uint8_t) override { hit(id); }
  void hit(NodeId id) override {
    const double cost = 1 + (depth(id) - 1) / 64.0;
    const double score = inflation_ + visits(id) * cost;
    leaves().put(id, 0, {std::bit_cast<std::uint64_t>(score), next_serial()});  // bits of positive numbers are in order
  }
  void leaving(NodeId id, bool chosen) override {
    if (chosen) inflation_ = std::bit_cast<double>(leaves().rank(id).first);
  }

  double inflation_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_gdsf(const EvictionOptions&) { return std::make_unique<Gdsf>(); }

}  // namespace shale
