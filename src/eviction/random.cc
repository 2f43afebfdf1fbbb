// Any leaf goes, each as likely as the others: the floor that a policy must beat. The seed decides.
#include <random>

#include "eviction/path_policy.h"
#include "eviction/policies.h"

namespace shale {
namespace {

class Random final : public QueuePolicy<> {
 public:
  explicit Random(std::uint64_t seed) : random_(seed) {}

 private:
  void arrive(NodeId id, std::uint8_t) override { leaves().put(id, 0, next_serial()); }
  NodeId choose() override {
    const auto leaves_now = leaves().leaves(0);
    return leaves_now.empty() ? kNoNode : leaves_now[random_() % leaves_now.size()];
  }

  std::mt19937_64 random_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_random(const EvictionOptions& options) {
  return std::make_unique<Random>(options.seed);
}

}  // namespace shale
