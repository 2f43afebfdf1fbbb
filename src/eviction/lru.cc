// Least recently used: the leaf whose last access is oldest goes, the newest of equals.
#include "eviction/policies.h"
#include "eviction/ranked_policy.h"

namespace shale {
namespace {

class Lru final : public RankedPolicy {
  std::uint64_t value(const Node& node) const override { return node.last_access; }
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lru(const EvictionOptions&) { return std::make_unique<Lru>(); }

}  // namespace shale
