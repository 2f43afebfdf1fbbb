// SIEVE (Zhang et al., NSDI 2024). Blocks lie in the order of insertion; a hand moves from the oldest to the newest and
// then begins again. At a leaf that was visited since the hand last came by it clears that and moves on; the first leaf
// that was not goes. Nothing ever changes its place, so the leaves are two queues, ahead of the hand and behind it,
// which trade names at the end of a round.
#include "eviction/path_policy.h"
#include "eviction/policies.h"

namespace shale {
namespace {

class Sieve final : public QueuePolicy<NodeFields{.visits = true}> {
 public:
  Sieve() : PathPolicy(Newcomers::kWait, LeafQueues<std::uint64_t>(2)) {}

 private:
  std::uint8_t behind() const { return static_cast<std::uint8_t>(1 - ahead_); }

  void begin_round_if_done() {
    if (leaves().first(ahead_) != kNoNode || leaves().first(behind()) == kNoNode) return;
    ahead_ = behind();
    hand_ = 0;
  }
  void arrive(NodeId id, std::uint8_t) override {
    begin_round_if_done();  // a round ends with the newest of its time
    visits(id) = 0;
    leaves().put(id, ahead_, next_serial());
  }
  void became_leaf(NodeId id) override {
    leaves().put(id, leaves().rank(id) < hand_ ? behind() : ahead_, leaves().rank(id));
  }
  NodeId choose() override {
    for (;;) {
      begin_round_if_done();
      const NodeId leaf = leaves().first(ahead_);
      if (leaf == kNoNode) return kNoNode;
      hand_ = leaves().rank(leaf);
      if (visits(leaf) == 0) return leaf;
      visits(leaf) = 0;
      leaves().put(leaf, behind(), hand_);
    }
  }

  std::uint8_t ahead_ = 0;  // the queue of that name
  std::uint64_t hand_ = 0;  // the place of the leaf that it last looked at
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_sieve(const EvictionOptions&) { return std::make_unique<Sieve>(); }

}  // namespace shale
