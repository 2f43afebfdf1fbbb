// Segmented LRU (Karedla, Love, Wherry, 1994) with four segments of equal room (S4LRU: Huang et al., SOSP 2013). A
// visit lifts a block to the next segment; what overflows a segment falls to the one below, and leaves go from the
// lowest. A newcomer starts in the lowest segment that has room.
#include "eviction/path_policy.h"
#include "eviction/policies.h"
#include "eviction/segments.h"

namespace shale {
namespace {

class Slru final : public QueuePolicy<> {
 public:
  explicit Slru(std::uint64_t capacity)
      : PathPolicy(Newcomers::kWait, LeafQueues<std::uint64_t>(kSegments)),
        segments_(leaves(), std::vector(kSegments, capacity / kSegments)) {}

 private:
  static constexpr std::uint8_t kSegments = 4;

  void grow(std::size_t nodes) override { segments_.grow(nodes); }
  void arrive(NodeId id, std::uint8_t) override {
    std::uint8_t segment = 0;
    while (segment < kSegments && !segments_.has_room(segment)) ++segment;
    segments_.put(id, segment % kSegments);
  }
  void hit(NodeId id) override {
    segments_.put(id, static_cast<std::uint8_t>(std::min(leaves().queue(id) + 1, kSegments - 1)));
  }
  NodeId choose() override {
    std::uint8_t segment = 0;
    while (segment < kSegments - 1 && leaves().first(segment) == kNoNode) ++segment;
    return leaves().first(segment);
  }
  void leaving(NodeId id, bool) override { segments_.unlink(id); }

  Segments segments_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_slru(const EvictionOptions& options) {
  return std::make_unique<Slru>(options.capacity_blocks);
}

}  // namespace shale
