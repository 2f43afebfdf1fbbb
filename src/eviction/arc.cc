// ARC, the Adaptive Replacement Cache (Megiddo and Modha, FAST 2003). Blocks visited by one request only and blocks
// visited again are two LRU queues, and so are the keys of those that went from either. A key that returns shifts the
// room between the two: towards the queue that it should not have left. The evicted leaf is the least recent one of the
// queue that has more than its room.
#include "eviction/ghost_table.h"
#include "eviction/path_policy.h"
#include "eviction/policies.h"

namespace shale {
namespace {

class Arc final : public QueuePolicy<NodeFields{.keys = true}> {
 public:
  explicit Arc(std::uint64_t capacity)
      : PathPolicy(Newcomers::kWait, LeafQueues<std::uint64_t>(2)),
        capacity_(capacity),
        once_ghosts_(capacity),
        again_ghosts_(2 * capacity) {}

  std::uint64_t ghosts() const override { return once_ghosts_.size() + again_ghosts_.size(); }

 private:
  enum : std::uint8_t { kOnce, kAgain };

  std::uint8_t arriving(NodeId id) override {
    const auto once = static_cast<double>(once_ghosts_.size()), again = static_cast<double>(again_ghosts_.size());
    returned_to_again_ = false;
    if (once_ghosts_.take(key(id))) {
      once_room_ = std::min(once_room_ + std::max(again / once, 1.0), static_cast<double>(capacity_));
      return kAgain;
    }
    if (again_ghosts_.take(key(id))) {
      once_room_ = std::max(once_room_ - std::max(once / again, 1.0), 0.0);
      returned_to_again_ = true;
      return kAgain;
    }
    return kOnce;
  }
  void arrive(NodeId id, std::uint8_t queue) override {
    if (queue == kOnce) forget_for_one_more();
    leaves().put(id, queue, next_serial());
  }
  void hit(NodeId id) override { leaves().put(id, kAgain, next_serial()); }

  NodeId choose() override {
    const NodeId once = leaves().first(kOnce), again = leaves().first(kAgain);
    const auto size = static_cast<double>(leaves().size(kOnce));
    const bool too_many = size > once_room_ || (size == once_room_ && returned_to_again_);
    return again == kNoNode || (once != kNoNode && too_many) ? once : again;
  }
  void leaving(NodeId id, bool) override {
    (leaves().queue(id) == kOnce ? once_ghosts_ : again_ghosts_).insert(key(id), {});
  }

  // At most `capacity_` blocks visited once, here or gone, and twice as many of all.
  void forget_for_one_more() {
    const std::uint64_t once = leaves().size(kOnce) + once_ghosts_.size();
    const std::uint64_t again = leaves().size(kAgain) + again_ghosts_.size();
    if (once >= capacity_) {
      once_ghosts_.forget_oldest();
    } else if (once + again >= 2 * capacity_) {
      again_ghosts_.forget_oldest();
    }
  }

  std::uint64_t capacity_;
  GhostTable<Nothing> once_ghosts_, again_ghosts_;
  double once_room_ = 0;
  bool returned_to_again_ = false;  // the last newcomer's key was among `again_ghosts_`
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_arc(const EvictionOptions& options) {
  return std::make_unique<Arc>(options.capacity_blocks);
}

}  // namespace shale
