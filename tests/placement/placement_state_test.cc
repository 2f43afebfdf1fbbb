#include "placement/placement_state.h"

#include <gtest/gtest.h>

#include "placement/instances.h"
#include "placement/naive_placement.h"
#include "placement/placement_state_fixture.h"

namespace shale {
namespace {

using testing::kAny;
using testing::make_instance;
using testing::NaivePlacement;
using testing::on;
using testing::PlacementStateTest;
using testing::prefix;
using testing::Told;
using testing::whole;

constexpr PlannerOptions kHalf{.fixed_method_index = 1, .fixed_keep = 0.5};

class EveryPlanner : public ::testing::TestWithParam<std::string_view> {
 protected:
  std::unique_ptr<Planner> planner_ = make_planner(GetParam(), kHalf).value();
};

// Random traffic beside a twin that looks at everything at every step, far beyond one scale of frequencies.
class Traffic {
 public:
  Traffic(std::uint64_t seed, const Planner& planner)
      : random_(seed),
        pool_(make_instance(seed, {.prefixes = 60, .tiers = 1 + seed % 3, .capacity_share = 0.1})),
        state_(planner, kOptions, pool_.tiers, backend_),
        naive_(planner, kOptions, pool_.tiers) {}

  // Whether the step was one that may promote.
  bool step() {
    const double passed_s = static_cast<double>(random_() % 8);
    now_s_ += passed_s;
    naive_.pass(passed_s);
    const PlacementSlot slot = some();
    const auto kind = slots_.empty() ? 0 : random_() % 10;
    switch (kind) {
      case 0:
      case 1:
        add();
        return false;
      case 2:
        state_.remove(slot);
        naive_.remove(slot);
        std::erase(slots_, slot);
        return false;
      case 3:
        pin(slot, random_() % 4 == 0);
        return false;
      case 4: {
        const double share = static_cast<double>(random_() % 3) / 2;
        state_.in_pool(slot, share, now_s_);
        naive_.in_pool(slot, share, now_s_);
        return false;
      }
      case 5: {
        const auto tier = static_cast<std::uint32_t>(random_() % pool_.tiers.size());
        const std::uint64_t bytes = pool_.tiers[tier].capacity_bytes * (70 + 15 * (random_() % 5)) / 100;
        state_.set_capacity(tier, bytes);
        naive_.problem().tiers[tier].capacity_bytes = bytes;
        state_.demote();
        naive_.demote();
        return false;
      }
      case 6: {
        PlacedPrefix other = state_.prefix(slot);  // quality was measured anew
        for (Candidate& candidate : other.candidates) candidate.quality *= 0.9;
        naive_.prefix(slot).candidates = other.candidates;
        state_.update(slot, std::move(other));
        return false;
      }
      case 7:
        while (state_.settle(1 + random_() % 4)) {
        }
        for (const PlacementSlot each : slots_) naive_.prefix(each).current = state_.prefix(each).current;
        return true;
      default:
        state_.access(slot, now_s_);
        naive_.access(slot, now_s_);
        return false;
    }
  }

  void expect_same() {
    const Status sound = state_.check_integrity();
    ASSERT_TRUE(sound) << sound.error().message;
    ASSERT_EQ(state_.size(), slots_.size());
    for (const PlacementSlot slot : slots_) ASSERT_EQ(state_.prefix(slot).current, naive_.prefix(slot).current) << slot;
    for (std::uint32_t tier = 0; tier < pool_.tiers.size(); ++tier) {
      ASSERT_EQ(state_.used_bytes(tier), naive_.used(tier));
    }
  }
  void unpin_all() {
    for (const PlacementSlot slot : slots_) pin(slot, false);
    state_.demote();
    naive_.demote();
  }
  // Promotions wait while something pinned passes a capacity.
  bool rests() const { return naive_.over() || !naive_.anything_pays(); }
  std::size_t moves() const { return backend_.moves.size(); }
  double halvings() const { return now_s_ / kOptions.half_life_s; }

 private:
  static constexpr PlacementOptions kOptions{.half_life_s = 3};

  PlacementSlot some() { return slots_.empty() ? 0 : slots_[random_() % slots_.size()]; }
  void pin(PlacementSlot slot, bool pinned) {
    state_.pin(slot, pinned);
    naive_.prefix(slot).pinned = pinned;
  }
  void add() {
    PlacedPrefix made = pool_.prefixes[random_() % pool_.prefixes.size()];
    made.id = ++ids_;
    std::uniform_real_distribution<double> around(0.9, 1.1);  // so that no two steps are equal but for rounding
    made.frequency *= around(random_);
    for (Candidate& candidate : made.candidates) candidate.ttft_s *= around(random_);
    made.last_access_s = now_s_;
    const PlacementSlot slot = state_.add(made, now_s_);
    naive_.put(slot, made);
    slots_.push_back(slot);
    state_.place(slot);
    naive_.place(slot);
  }

  std::mt19937_64 random_;
  Problem pool_;  // of cached prefixes to add
  Told backend_;
  PlacementState state_;
  NaivePlacement naive_;
  std::vector<PlacementSlot> slots_;
  double now_s_ = 0;
  PrefixId ids_ = 0;
};

TEST_P(EveryPlanner, DecidesAsIfItHadLookedAtEverything) {
  std::size_t moves = 0, rested = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Traffic traffic(seed, *planner_);
    for (int i = 0; i < 500; ++i) {
      const bool settled = traffic.step();
      ASSERT_NO_FATAL_FAILURE(traffic.expect_same()) << "seed " << seed << ", step " << i;
      if (!settled || i % 5 > 0) continue;
      ASSERT_TRUE(traffic.rests()) << "seed " << seed << ", step " << i;
      ++rested;
    }
    EXPECT_GT(traffic.halvings(), 512) << "the scale of frequencies was to be left twice";
    moves += traffic.moves();
  }
  EXPECT_GT(rested, 50u);
  if (planner_->stores()) {
    EXPECT_GT(moves, 1000u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryPlanner, ::testing::ValuesIn(planner_names()),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_F(PlacementStateTest, OthersAreToldToMoveAndTheNewPrefixIsAnswered) {
  PlacementState s = state({{100}, {kAny}});
  const PlacementSlot rare = s.add(whole(100, 1), 0);
  EXPECT_EQ(s.place(rare), 0u);
  const PlacementSlot often = s.add(whole(100, 2), 0);
  EXPECT_EQ(s.place(often), 0u);
  EXPECT_EQ(told_.moves, (std::vector<Told::Moved>{{rare, 0, 1}}));
  const PlacementSlot seldom = s.add(whole(100, 0.5), 0);
  EXPECT_EQ(s.place(seldom), 1u) << "it makes the room itself";
  EXPECT_EQ(told_.moves.size(), 1u);
}

TEST_F(PlacementStateTest, WhatFitsIntoFreeRoomAndItsOwnDemotesNothing) {
  PlacementState s = state({{100}, {kAny}});
  s.place(s.add(whole(30), 0));
  PlacedPrefix half = prefix({on(0, 90, 1), on(0, 70, 0.8), on(0, 30, 0.6), on(1, 90, 0.5)}, 2);
  for (std::uint32_t method = 0; method < 3; ++method) half.candidates[method].method = method;
  const PlacementSlot slot = s.add(half, 0);
  PlacedPrefix better = s.that_fit(half);
  ASSERT_EQ(better.candidates.size(), 3u);
  EXPECT_EQ(better.candidates[better.current].bytes, 30u);
  s.update(slot, std::move(better));
  s.place(slot);
  EXPECT_EQ(s.placed(slot).bytes, 70u);
  EXPECT_TRUE(told_.moves.empty());
}

TEST_F(PlacementStateTest, WhatIsUsedMoreComesUpAndWhatItDisplacesGoesFirst) {
  PlacementState s = state({{100}, {kAny}});
  const PlacementSlot one = s.add(whole(100), 0), other = s.add(whole(100), 0);
  s.place(one);
  s.place(other);
  const PlacementSlot above = s.placed(one).tier == 0 ? one : other, below = above == one ? other : one;
  told_.moves.clear();
  for (int i = 0; i < 5; ++i) s.access(below, 10 + i);
  EXPECT_TRUE(s.settle());
  EXPECT_EQ(told_.moves, (std::vector<Told::Moved>{{above, 0, 1}, {below, 1, 0}}));
  while (s.settle()) {
  }
  EXPECT_FALSE(s.settle()) << "at rest, it stays at rest";
  EXPECT_EQ(told_.moves.size(), 2u);
}

TEST_F(PlacementStateTest, WhoUsesAPartCountsForSoMuch) {
  PlacementState s = state({{100}, {kAny}});
  const PlacementSlot one = s.add(whole(100, 1), 0), other = s.add(whole(100, 1), 0);
  for (int i = 0; i < 10; ++i) s.access(one, 0, 0.05);
  s.access(other, 0);
  EXPECT_NEAR(s.frequency(one, 0), 1.5, 1e-9);
  EXPECT_NEAR(s.frequency(other, 0), 2, 1e-9);
  s.place(one);
  s.place(other);
  EXPECT_EQ(s.placed(one).tier, 1u);
  EXPECT_EQ(s.placed(other).tier, 0u);
}

// At any time, however far frequencies have decayed until then.
TEST_F(PlacementStateTest, APromotionHasToSaveMoreThanItCosts) {
  constexpr double kSavedByAnAccess = 0.5;
  for (const double now_s : {0.0, 100.0, 10000.0}) {
    PlacementState s = state({{100}, {kAny}}, {.half_life_s = 10, .move_s_per_byte = 0.05});  // 5 s a move
    PlacedPrefix below = whole(100, 1);
    below.current = 1;
    PlacedPrefix above = below;
    above.current = 0;
    s.add(std::move(above), 0);
    const PlacementSlot slot = s.add(std::move(below), 0);
    int accesses = 1;
    while (s.settle() || (s.placed(slot).tier == 1 && accesses < 100)) {
      if (s.placed(slot).tier == 1) s.access(slot, now_s), ++accesses;
    }
    EXPECT_NEAR(accesses * kSavedByAnAccess, 5 + kSavedByAnAccess, 1) << "at " << now_s;
  }
}

TEST_F(PlacementStateTest, ARoundLooksAtSoManyPromotionsOnly) {
  PlacementState s = state({{1000}, {kAny}});
  for (int i = 0; i < 10; ++i) {
    PlacedPrefix below = whole(100);
    below.current = 1;
    s.add(std::move(below), 0);
  }
  EXPECT_TRUE(s.settle(3));
  EXPECT_EQ(told_.moves.size(), 3u);
  EXPECT_TRUE(s.settle(3));
  EXPECT_EQ(told_.moves.size(), 6u);
}

TEST_F(PlacementStateTest, WhatThePoolHoldsLossyRisesToABetterFormAlone) {
  PlacementState s = state({{1000}, {kAny}});
  Candidate lossy = on(0, 40, 0.4), lossy_below = on(1, 40, 0.4);
  lossy.keep = lossy_below.keep = 0.5;
  lossy_below.ttft_s = 0.1;
  const PlacementSlot near = s.add(prefix({lossy, on(0, 100, 1), on(1, 100, 0.5)}), 0);
  const PlacementSlot below = s.add(prefix({lossy, lossy_below}, 1), 0);
  lossy.quality = lossy_below.quality = 0.97;
  lossy_below.ttft_s = 0.5;
  const PlacementSlot good = s.add(prefix({lossy, on(0, 100, 1), lossy_below}, 2), 0);
  const auto settle = [&](bool as_lossy) {
    for (const PlacementSlot slot : {near, below, good}) s.in_pool(slot, 1, 0, false, as_lossy);
    while (s.settle()) {
    }
  };
  settle(false);
  EXPECT_TRUE(told_.moves.empty());
  settle(true);
  EXPECT_EQ(told_.moves, (std::vector<Told::Moved>{{near, 0, 0}, {good, 1, 0}}))
      << "the other is no better there than in the pool";
  EXPECT_EQ(s.placed(good).quality, 1) << "though the lossy form gains more a byte";
  EXPECT_TRUE(s.check_integrity());
}

TEST_F(PlacementStateTest, APinnedPrefixStaysUntilItIsFree) {
  PlacementState s = state({{100}, {kAny}});
  const PlacementSlot used = s.add(whole(100, 1), 0);
  s.place(used);
  s.pin(used, true);
  const PlacementSlot often = s.add(whole(100, 9), 0);
  EXPECT_EQ(s.place(often), 1u);
  s.pin(used, false);
  while (s.settle()) {
  }
  EXPECT_EQ(s.placed(often).tier, 0u);
}

TEST_F(PlacementStateTest, RoomMadeByRemovingIsUsed) {
  PlacementState s = state({{100}, {kAny}});
  const PlacementSlot often = s.add(whole(100, 2), 0), rare = s.add(whole(100, 1), 0);
  s.place(often);
  s.place(rare);
  s.settle();
  s.remove(often);
  s.settle();
  EXPECT_EQ(s.placed(rare).tier, 0u);
  EXPECT_EQ(s.add(whole(100), 0), often) << "a free slot is taken again";
}

TEST_F(PlacementStateTest, ACapacityThatGrowsFitsWhatItNeverCould) {
  PlacementState s = state({{50}, {kAny}});
  const PlacementSlot big = s.add(whole(100), 0);
  EXPECT_EQ(s.place(big), 1u);
  s.settle();
  s.set_capacity(0, 100);
  s.settle();
  EXPECT_EQ(s.placed(big).tier, 0u);
}

// Cached prefixes hold 10 bytes in memory and 100 as a full copy on the lowest tier.
PlacedPrefix with_copy(double frequency) {
  PlacedPrefix made = prefix(
      {{1, 0.1, 0, 10, 0.9, 0.1}, {kFullMethod, 1, 1, 100, 1, 0.5}, {kFullMethod, 1, kDropped, 0, 1, 2}}, 0, frequency);
  made.full_copy_bytes = 100;
  return made;
}

TEST_F(PlacementStateTest, ASilentTierKeepsWhatItHasAndGetsNothing) {
  PlacementState placement = state({{100}, {100}});
  const PlacementSlot below = placement.add(prefix({on(0, 60, 1), on(1, 60, 0.5), on(kDropped, 0, 0)}, 1, 2), 0);
  const PlacementSlot first = placement.add(whole(60), 0);
  EXPECT_TRUE(placement.set_silent(1, true));
  EXPECT_FALSE(placement.set_silent(1, true));
  placement.place(first);
  EXPECT_EQ(placement.placed(first).tier, 0u);
  placement.set_capacity(1, 10);
  EXPECT_FALSE(placement.settle(kAllPromotions)) << "nothing leaves it";
  EXPECT_EQ(placement.placed(below).tier, 1u);
  placement.set_capacity(1, 200);
  const PlacementSlot second = placement.add(whole(60, 3), 0);
  placement.place(second);
  EXPECT_EQ(placement.placed(second).tier, 0u);
  EXPECT_EQ(placement.placed(first).tier, kDropped) << "it would have gone there";
  placement.set_silent(1, false);
  const PlacementSlot third = placement.add(whole(60, 4), 0);
  placement.place(third);
  EXPECT_EQ(placement.placed(second).tier, 1u);
  EXPECT_TRUE(placement.check_integrity());
}

TEST_F(PlacementStateTest, FullCopiesOfTheLeastUsedGoFirst) {
  PlacementState s = state({{1000}, {250}});
  s.add(with_copy(2), 0);
  const PlacementSlot rare = s.add(with_copy(1), 0), often = s.add(with_copy(3), 0);
  s.demote();
  EXPECT_EQ(told_.copies_dropped, std::vector<PlacementSlot>{rare});
  EXPECT_EQ(s.full_copy_bytes(), 200u);
  PlacedPrefix lies_below = with_copy(9);
  lies_below.current = 1;
  s.add(std::move(lies_below), 0);
  s.demote();
  EXPECT_EQ(told_.copies_dropped.size(), 2u) << "what is placed comes before copies";
  EXPECT_EQ(s.prefix(often).full_copy_bytes, 100u);
}

TEST_F(PlacementStateTest, FullCopiesOnATierWithoutBoundStay) {
  PlacementState s = state({{1000}, {kAny}});
  for (int i = 0; i < 3; ++i) s.add(with_copy(1), 0);
  s.demote();
  EXPECT_TRUE(told_.copies_dropped.empty());
}

// Measured: 0.989 here, where few forms and little room leave much to chance, and above 0.999 with the cached prefixes
// of `shale bench planner`, which asks for the half per cent.
TEST_F(PlacementStateTest, ManyChangesStayNearTheBound) {
  const Problem made = make_instance(5, {.prefixes = 2000});
  PlacementState s = state(made.tiers, {.half_life_s = kAnyDrop});
  std::mt19937_64 random(1);
  for (const PlacedPrefix& each : made.prefixes) {
    s.place(s.add(each, 0));
    s.settle();
  }
  for (int i = 0; i < 4000; ++i) {
    s.access(static_cast<PlacementSlot>(random() % made.prefixes.size() * (random() % 100) / 100), 0);
    s.settle();
  }
  const Problem problem = s.problem(0);
  const double nothing = testing::dropped_utility(problem), bound = utility_bound(problem);
  const double share = (testing::utility_of(problem, testing::placement_of(problem)) - nothing) / (bound - nothing);
  EXPECT_LE(share, 1);
  EXPECT_GE(share, 0.98);
}

}  // namespace
}  // namespace shale
