#include "eviction/optimum.h"

#include <cassert>

#include "eviction/path_policy.h"

namespace shale {
namespace {

// How soon the next use is, the latest first; then the deepest.
using UseRank = std::pair<std::uint32_t, std::uint32_t>;

class Optimum final : public PathPolicy<LeafQueues<UseRank>, NodeFields{.depths = true}> {
 public:
  explicit Optimum(std::span<const std::uint32_t> next_uses) : PathPolicy(Newcomers::kCompete), next_uses_(next_uses) {}

 private:
  void begin(const PathAccess& visit) override {
    visit_ = next_visit_;
    next_visit_ += visit.path.size();
    assert(next_visit_ <= next_uses_.size());
  }
  void arrive(NodeId id, std::uint8_t) override { hit(id); }
  void hit(NodeId id) override { leaves().put(id, 0, {kNeverUsed - next_uses_[visit_ + depth(id) - 1], ~depth(id)}); }

  std::span<const std::uint32_t> next_uses_;
  std::size_t visit_ = 0, next_visit_ = 0;  // where the paths of this and the next visit begin
};

}  // namespace

std::vector<std::uint32_t> next_uses(std::span<const std::uint32_t> blocks, std::uint32_t block_count) {
  assert(blocks.size() < kNeverUsed);
  std::vector<std::uint32_t> next(blocks.size()), seen(block_count, kNeverUsed);
  for (std::size_t i = blocks.size(); i-- > 0;) {
    next[i] = seen[blocks[i]];
    seen[blocks[i]] = static_cast<std::uint32_t>(i);
  }
  return next;
}

std::unique_ptr<EvictionPolicy> make_optimum(std::span<const std::uint32_t> next_uses) {
  return std::make_unique<Optimum>(next_uses);
}

}  // namespace shale
