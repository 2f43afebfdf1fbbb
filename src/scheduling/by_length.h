// The base of schedulers that go by the number of a prompt's blocks alone: O(log waiting) a request.
#pragma once

#include <algorithm>
#include <cassert>
#include <set>

#include "scheduling/scheduler.h"

namespace shale {

// `Before(a, b)`: a prompt of `a` blocks goes before one of `b`.
template <class Before>
class ByLength final : public Scheduler {
 public:
  void add(const WaitingRequest& request) override { order_.insert({request.prompt_blocks, request.id}); }
  std::size_t waiting() const override { return order_.size(); }
  std::uint32_t take() override {
    assert(!order_.empty());
    return order_.extract(order_.begin()).value().id;
  }
  void withdraw(std::uint32_t id) override { order_.erase(std::ranges::find(order_, id, &Item::id)); }

 private:
  struct Item {
    std::uint64_t blocks;
    std::uint32_t id;
    bool operator<(const Item& other) const {
      return blocks != other.blocks ? Before()(blocks, other.blocks) : id < other.id;
    }
  };
  std::set<Item> order_;
};

}  // namespace shale
