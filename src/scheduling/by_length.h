// The base of schedulers that go by the number of a prompt's blocks alone: a binary heap, O(log waiting) a request.
#pragma once

#include <cassert>
#include <queue>
#include <vector>

#include "scheduling/scheduler.h"

namespace shale {

// `Before(a, b)`: a prompt of `a` blocks goes before one of `b`.
template <class Before>
class ByLength final : public Scheduler {
 public:
  void add(const WaitingRequest& request) override { heap_.push({request.blocks.size(), request.id}); }
  std::size_t waiting() const override { return heap_.size(); }
  std::uint32_t take() override {
    assert(!heap_.empty());
    const std::uint32_t id = heap_.top().id;
    heap_.pop();
    return id;
  }

 private:
  struct Item {
    std::size_t blocks;
    std::uint32_t id;
  };
  struct Later {
    bool operator()(const Item& a, const Item& b) const {
      return a.blocks != b.blocks ? Before()(b.blocks, a.blocks) : b.id < a.id;
    }
  };
  std::priority_queue<Item, std::vector<Item>, Later> heap_;
};

}  // namespace shale
