// The request that arrived first.
#include <cassert>
#include <deque>

#include "scheduling/schedulers.h"

namespace shale {
namespace {

class Fifo final : public Scheduler {
 public:
  void add(const WaitingRequest& request) override { queue_.push_back(request.id); }
  std::size_t waiting() const override { return queue_.size(); }
  std::uint32_t take() override {
    assert(!queue_.empty());
    const std::uint32_t id = queue_.front();
    queue_.pop_front();
    return id;
  }
  void withdraw(std::uint32_t id) override { std::erase(queue_, id); }

 private:
  std::deque<std::uint32_t> queue_;
};

}  // namespace

std::unique_ptr<Scheduler> make_fifo(const SchedulerOptions&, PrefixLookup&) { return std::make_unique<Fifo>(); }

}  // namespace shale
