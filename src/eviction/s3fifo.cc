// S3-FIFO (Yang et al., SOSP 2023). Newcomers wait in a small FIFO queue, a tenth of the room; a leaf at its end that
// was visited twice meanwhile moves to the main queue, another one goes and its key becomes a ghost, as many keys as
// the main queue has blocks. A ghost that returns starts in the main queue, where a leaf at the end that was
// visited begins again, up to three times. Until the first eviction, what the small queue has no room for starts in the
// main queue too.
#include "eviction/ghost_table.h"
#include "eviction/path_policy.h"
#include "eviction/policies.h"

namespace shale {
namespace {

class S3Fifo final : public QueuePolicy<NodeFields{.visits = true, .keys = true}> {
 public:
  explicit S3Fifo(std::uint64_t capacity)
      : PathPolicy(Newcomers::kWait, LeafQueues<std::uint64_t>(2)),
        small_blocks_(capacity / 10),
        main_blocks_(capacity - small_blocks_),
        ghosts_(capacity * 9 / 10) {}

  std::uint64_t ghosts() const override { return ghosts_.size(); }

 private:
  enum : std::uint8_t { kSmall, kMain };

  std::uint8_t arriving(NodeId id) override { return ghosts_.take(key(id)) ? kMain : kSmall; }
  void arrive(NodeId id, std::uint8_t queue) override {
    const bool small_is_full = leaves().size(kSmall) >= small_blocks_;
    put(id, small_is_full && !full_ ? std::uint8_t{kMain} : queue, 0);
  }
  void put(NodeId id, std::uint8_t queue, std::uint32_t visited) {
    visits(id) = visited;
    leaves().put(id, queue, next_serial());
  }

  NodeId choose() override {
    full_ = true;
    for (;;) {
      const NodeId small = leaves().first(kSmall), main = leaves().first(kMain);
      if (main != kNoNode && (small == kNoNode || leaves().size(kMain) > main_blocks_)) {
        if (visits(main) == 0) return main;
        put(main, kMain, std::min(visits(main), 3u) - 1);
      } else {
        if (small == kNoNode || visits(small) < 2) return small;
        put(small, kMain, 0);
      }
    }
  }
  void leaving(NodeId id, bool) override {
    if (leaves().queue(id) == kSmall) ghosts_.insert(key(id), {});
  }

  std::uint64_t small_blocks_, main_blocks_;
  bool full_ = false;
  GhostTable<Nothing> ghosts_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_s3fifo(const EvictionOptions& options) {
  return std::make_unique<S3Fifo>(options.capacity_blocks);
}

}  // namespace shale
