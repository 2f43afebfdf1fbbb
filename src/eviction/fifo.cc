// First in, first out: of the leaves, the one inserted first goes. Visits change nothing.
#include "eviction/path_policy.h"
#include "eviction/policies.h"

namespace shale {
namespace {

class Fifo final : public QueuePolicy<> {
  void arrive(NodeId id, std::uint8_t) override { leaves().put(id, 0, next_serial()); }
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_fifo(const EvictionOptions&) { return std::make_unique<Fifo>(); }

}  // namespace shale
