// Who carries out what a PlacementState decides: one that moves bytes, or one that only counts them.
#pragma once

#include <cstdint>
#include <vector>

#include "placement/placement.h"

namespace shale {

using PlacementSlot =
    std::uint32_t;  // a cached prefix's place in its state; free again once the cached prefix is removed

// Called at the end of the state's call that decided, with the state as it is after it. May call `update`, `pin` and
// `in_pool` of the state, and nothing else of it.
class PlacementBackend {
 public:
  virtual ~PlacementBackend() = default;
  // The cached prefix goes from one of its candidates to another. Moves come in order of application, at most one a
  // cached prefix and call: those that free room before those that take it. The state takes the move as made; an owner
  // that finds it cannot be made says so by `update`.
  virtual void start_move(PlacementSlot slot, const PlacedPrefix& prefix, const Candidate& from,
                          const Candidate& to) = 0;
  // The lowest tier is bounded, and has no room any more for the cached prefix's full copy beside what is placed there.
  // Called before the moves. The owner then says by `update` what the cached prefix can still become.
  virtual void drop_full_copy(PlacementSlot slot, const PlacedPrefix& prefix) = 0;
};

// Counts what would be written; reads and writes nothing.
class CountingBackend final : public PlacementBackend {
 public:
  explicit CountingBackend(std::size_t tiers) : bytes_written_(tiers) {}
  void start_move(PlacementSlot, const PlacedPrefix&, const Candidate& from, const Candidate& to) override {
    ++moves_;
    if (to.tier != kDropped && (to.tier != from.tier || to.bytes > from.bytes)) bytes_written_[to.tier] += to.bytes;
  }
  void drop_full_copy(PlacementSlot, const PlacedPrefix&) override {}

  std::uint64_t moves() const { return moves_; }
  const std::vector<std::uint64_t>& bytes_written() const { return bytes_written_; }  // by tier

 private:
  std::uint64_t moves_ = 0;
  std::vector<std::uint64_t> bytes_written_;
};

}  // namespace shale
