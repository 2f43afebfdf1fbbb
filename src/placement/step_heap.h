// Steps of many cached prefixes in the order in which they are taken, where a cached prefix's change makes its earlier
// steps void without looking for them: each carries the cached prefix's version, and void ones are passed over when
// they come up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "placement/placement_backend.h"

namespace shale {

// `Step` has `slot`, `version` and `later_than(other)`. A version of 0 is nobody's.
template <class Step>
class StepHeap {
 public:
  // Whether the steps of all cached prefixes are in here; before, none is worth adding.
  bool made() const { return made_; }
  void make(std::vector<Step> steps) {
    steps_ = std::move(steps);
    std::ranges::make_heap(steps_, later);
    made_ = true;
  }
  void unmake() {
    steps_.clear();
    made_ = false;
  }
  void push(const Step& step) {
    steps_.push_back(step);
    std::ranges::push_heap(steps_, later);
  }
  // The first that is not void, null when there is none; valid until the next call.
  const Step* first(const std::vector<std::uint64_t>& versions) {
    while (!steps_.empty() && steps_.front().version != versions[steps_.front().slot]) drop_first();
    return steps_.empty() ? nullptr : &steps_.front();
  }
  const std::vector<Step>& all() const { return steps_; }  // void ones among them
  // The first, void or not.
  const Step* peek() const { return steps_.empty() ? nullptr : &steps_.front(); }
  void drop_first() {
    std::ranges::pop_heap(steps_, later);
    steps_.pop_back();
  }
  // Forgets void steps where they are most; O(1) a push over time.
  void tidy(const std::vector<std::uint64_t>& versions) {
    if (steps_.size() <= 2 * versions.size() + 64) return;
    std::erase_if(steps_, [&](const Step& step) { return step.version != versions[step.slot]; });
    std::ranges::make_heap(steps_, later);
  }

 private:
  static bool later(const Step& a, const Step& b) { return a.later_than(b); }

  std::vector<Step> steps_;
  bool made_ = false;
};

}  // namespace shale
