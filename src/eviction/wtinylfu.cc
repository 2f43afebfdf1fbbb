// W-TinyLFU (Einziger, Friedman, Manes, 2017). Newcomers enter a window, an LRU queue of a hundredth of the room; the
// rest is a segmented LRU, a fifth probation and four fifths protected. Where one has to go, the window's least recent
// block meets the least recent leaf on probation, and the one seen less often lately, by a sketch over all keys, goes.
// A block with children cannot go and needs no meeting: it was seen whenever one of them was.
#include "eviction/frequency_sketch.h"
#include "eviction/path_policy.h"
#include "eviction/policies.h"
#include "eviction/segments.h"

namespace shale {
namespace {

class WTinyLfu final : public QueuePolicy<NodeFields{.keys = true}> {
 public:
  explicit WTinyLfu(std::uint64_t capacity)
      : PathPolicy(Newcomers::kWait, LeafQueues<std::uint64_t>(3)),
        main_blocks_(capacity - std::max<std::uint64_t>(1, capacity / 100)),
        segments_(leaves(), {0, main_blocks_ * 4 / 5, ~std::uint64_t{0}}),
        sketch_(capacity) {}

 private:
  enum : std::uint8_t { kProbation, kProtected, kWindow };

  void grow(std::size_t nodes) override { segments_.grow(nodes); }
  std::uint8_t arriving(NodeId id) override {
    sketch_.add(key(id));
    return 0;
  }
  void arrive(NodeId id, std::uint8_t) override { segments_.put(id, kWindow); }
  void hit(NodeId id) override {
    sketch_.add(key(id));
    segments_.put(id, leaves().queue(id) == kWindow ? kWindow : kProtected);
  }

  NodeId choose() override {
    for (;;) {
      const NodeId on_probation = leaves().first(kProbation);
      const NodeId main = on_probation != kNoNode ? on_probation : leaves().first(kProtected);
      const NodeId candidate = segments_.least_recent(kWindow);
      if (candidate == kNoNode) return main;
      const bool main_has_room = leaves().size(kProbation) + leaves().size(kProtected) < main_blocks_;
      if (!main_has_room && main == kNoNode) return leaves().first(kWindow);
      if (!main_has_room && is_candidate(candidate) &&
          sketch_.estimate(key(candidate)) <= sketch_.estimate(key(main))) {
        return candidate;
      }
      segments_.put(candidate, kProbation);
      if (!main_has_room) return main;
    }
  }
  void leaving(NodeId id, bool) override { segments_.unlink(id); }

  std::uint64_t main_blocks_;
  Segments segments_;
  FrequencySketch sketch_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_wtinylfu(const EvictionOptions& options) {
  return std::make_unique<WTinyLfu>(options.capacity_blocks);
}

}  // namespace shale
