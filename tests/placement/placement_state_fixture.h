// A PlacementState by itself, and cached prefixes for it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "placement/placement_state.h"

namespace shale::testing {

inline constexpr std::uint64_t kAny = ~std::uint64_t{0};

// Records what it was told.
class Told final : public PlacementBackend {
 public:
  struct Moved {
    PlacementSlot slot;
    std::uint32_t from, to;  // tiers
    bool operator==(const Moved&) const = default;
  };
  void start_move(PlacementSlot slot, const PlacedPrefix& prefix, const Candidate& from, const Candidate& to) override {
    EXPECT_EQ(prefix.candidates[prefix.current].tier, to.tier);
    moves.push_back({slot, from.tier, to.tier});
  }
  void drop_full_copy(PlacementSlot slot, const PlacedPrefix&) override { copies_dropped.push_back(slot); }
  std::vector<Moved> moves;
  std::vector<PlacementSlot> copies_dropped;
};

inline Candidate on(std::uint32_t tier, std::uint64_t bytes, double worth) {
  return {.tier = tier, .bytes = bytes, .quality = worth, .ttft_s = 0};
}

inline PlacedPrefix prefix(std::vector<Candidate> candidates, std::uint32_t current = 0, double frequency = 1) {
  return {.frequency = frequency, .candidates = std::move(candidates), .current = current};
}

// In memory, on disk or nowhere, worth 1, 0.5 and 0.
inline PlacedPrefix whole(std::uint64_t bytes, double frequency = 1) {
  return prefix({on(0, bytes, 1), on(1, bytes, 0.5), on(kDropped, 0, 0)}, 2, frequency);
}

class PlacementStateTest : public ::testing::Test {
 protected:
  PlacementState state(std::vector<TierRoom> tiers, const PlacementOptions& options = {}) {
    return PlacementState(*planner_, options, std::move(tiers), told_);
  }
  std::unique_ptr<Planner> planner_ = make_planner("shale").value();
  Told told_;
};

}  // namespace shale::testing
