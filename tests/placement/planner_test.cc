// What every registered planner must do, run over all of them.
#include <gtest/gtest.h>

#include <set>

#include "placement/instances.h"
#include "placement/placement.h"

namespace shale {
namespace {

using testing::after;
using testing::fits;
using testing::inserted;
using testing::InstanceShape;
using testing::make_instance;

class PlannerConformance : public ::testing::TestWithParam<std::string_view> {
 protected:
  std::unique_ptr<Planner> planner_ = make_planner(GetParam(), {.fixed_method_index = 1, .fixed_keep = 0.5}).value();

  // Problems of many shapes, as inserted and so over their capacities.
  template <class Check>
  void for_instances(const Check& check) const {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      InstanceShape shape;
      shape.entries = 1 + seed * 3;
      shape.tiers = 1 + seed % 3;
      shape.smaller_forms = 1 + seed % 4;
      shape.capacity_share = seed % 5 == 0 ? 0 : 0.05 * static_cast<double>(seed % 7);
      shape.pinned_share = seed % 2 == 0 ? 0 : 0.1;
      check(inserted(make_instance(seed, shape), *planner_));
    }
  }
};

void expect_same(const Plan& a, const Plan& b) {
  ASSERT_EQ(a.moves.size(), b.moves.size());
  for (std::size_t i = 0; i < a.moves.size(); ++i) {
    EXPECT_EQ(a.moves[i].entry, b.moves[i].entry);
    EXPECT_EQ(a.moves[i].from, b.moves[i].from);
    EXPECT_EQ(a.moves[i].to, b.moves[i].to);
  }
  EXPECT_EQ(a.utility, b.utility);
  EXPECT_EQ(a.feasible, b.feasible);
}

void expect_sound(const Problem& problem, const Plan& plan) {
  std::set<std::size_t> moved;
  for (const Move& move : plan.moves) {
    ASSERT_LT(move.entry, problem.entries.size());
    const PlacedEntry& entry = problem.entries[move.entry];
    EXPECT_TRUE(moved.insert(move.entry).second) << "two moves of one entry";
    EXPECT_FALSE(entry.pinned);
    EXPECT_EQ(move.from, entry.current);
    EXPECT_NE(move.to, move.from);
    ASSERT_LT(move.to, entry.candidates.size());
  }
  const std::vector<std::uint32_t> placement = placement_after(problem, plan);
  EXPECT_NEAR(plan.utility, testing::utility_of(problem, placement), 1e-9);
  EXPECT_EQ(plan.feasible, fits(problem, placement));
}

bool pinned_fit(const Problem& problem) {
  Problem pinned = problem;
  std::erase_if(pinned.entries, [](const PlacedEntry& entry) { return !entry.pinned; });
  return fits(pinned, testing::placement_of(pinned));
}

TEST_P(PlannerConformance, IsFoundByItsName) { EXPECT_EQ(planner_->name(), GetParam()); }

TEST_P(PlannerConformance, ReliefFitsUnlessPinnedEntriesAloneDoNot) {
  int feasible = 0, infeasible = 0;
  for_instances([&](const Problem& problem) {
    const Plan plan = planner_->relieve(problem);
    expect_sound(problem, plan);
    EXPECT_EQ(plan.feasible, pinned_fit(problem));
    ++(plan.feasible ? feasible : infeasible);
  });
  EXPECT_GT(feasible, 20);
  EXPECT_GT(infeasible, 3);
}

TEST_P(PlannerConformance, ReliefAppliedMoveByMoveNeverFillsATierFurther) {
  for_instances([&](Problem problem) {
    const Plan plan = planner_->relieve(problem);
    auto placement = testing::placement_of(problem);
    auto most = testing::used_bytes(problem, placement);
    for (std::size_t tier = 0; tier < most.size(); ++tier) {
      most[tier] = std::max(most[tier], problem.tiers[tier].capacity_bytes);
    }
    for (const Move& move : plan.moves) {
      placement[move.entry] = move.to;
      const auto used = testing::used_bytes(problem, placement);
      for (std::size_t tier = 0; tier < used.size(); ++tier) EXPECT_LE(used[tier], most[tier]);
    }
  });
}

TEST_P(PlannerConformance, NothingIsLeftToRelieve) {
  for_instances([&](const Problem& problem) {
    const Plan plan = planner_->relieve(problem);
    EXPECT_TRUE(!plan.feasible || planner_->relieve(after(problem, plan)).moves.empty());
  });
}

TEST_P(PlannerConformance, PromotionNeverOverfills) {
  for_instances([&](const Problem& problem) {
    const Problem relieved = after(problem, planner_->relieve(problem));
    const Plan plan = planner_->promote(relieved);
    expect_sound(relieved, plan);
    EXPECT_EQ(plan.feasible, fits(relieved, testing::placement_of(relieved)));
    EXPECT_TRUE(plan.feasible || plan.moves.empty());
  });
}

TEST_P(PlannerConformance, PromotionComesToRest) {
  for_instances([&](const Problem& problem) {
    Problem at_rest = after(problem, planner_->relieve(problem));
    int rounds = 0;
    for (Plan plan = planner_->promote(at_rest); !plan.moves.empty(); plan = planner_->promote(at_rest)) {
      ASSERT_LT(++rounds, 50);
      at_rest = after(at_rest, plan);
    }
  });
}

TEST_P(PlannerConformance, SameInputSamePlan) {
  const auto other = make_planner(GetParam(), {.fixed_method_index = 1, .fixed_keep = 0.5}).value();
  for_instances([&](const Problem& problem) {
    const Plan relief = planner_->relieve(problem);
    expect_same(relief, planner_->relieve(problem));
    expect_same(relief, other->relieve(problem));
    const Problem relieved = after(problem, relief);
    expect_same(planner_->promote(relieved), other->promote(relieved));
  });
}

TEST_P(PlannerConformance, EverythingPinnedStays) {
  Problem problem = make_instance(7, {.entries = 20, .capacity_share = 0.1});
  for (PlacedEntry& entry : problem.entries) {
    entry.pinned = true;
    entry.current = 0;
  }
  const Plan relief = planner_->relieve(problem);
  EXPECT_TRUE(relief.moves.empty());
  EXPECT_FALSE(relief.feasible);
  EXPECT_TRUE(planner_->promote(problem).moves.empty());
}

TEST_P(PlannerConformance, WithoutRoomEverythingIsDropped) {
  Problem problem = make_instance(7, {.entries = 20});
  for (PlacedEntry& entry : problem.entries) entry.current = 0;
  for (TierRoom& tier : problem.tiers) tier.capacity_bytes = 0;
  const Plan plan = planner_->relieve(problem);
  EXPECT_TRUE(plan.feasible);
  for (const Move& move : plan.moves) EXPECT_EQ(problem.entries[move.entry].candidates[move.to].tier, kDropped);
  EXPECT_EQ(plan.moves.size(), 20u);
  EXPECT_EQ(problem.entries[0].candidates[planner_->insert(problem, problem.entries[0])].tier, kDropped);
}

TEST_P(PlannerConformance, WhatMustStayIsNeverDropped) {
  for_instances([&](Problem problem) {
    for (std::size_t e = 0; e < problem.entries.size(); e += 3) {
      PlacedEntry& entry = problem.entries[e];
      if (entry.candidates[entry.current].tier == kDropped) entry.current = 0;
      entry.candidates.pop_back();
    }
    const Plan plan = planner_->relieve(problem);
    expect_sound(problem, plan);
    const Problem relieved = after(problem, plan);
    const Plan promotion = planner_->promote(relieved);
    expect_sound(relieved, promotion);
    EXPECT_EQ(promotion.feasible, plan.feasible);
    EXPECT_LT(planner_->insert(problem, problem.entries[0]), problem.entries[0].candidates.size());
    if (plan.feasible) {
      EXPECT_LE(promotion.utility, utility_bound(problem) + 1e-9);
    }
  });
}

TEST_P(PlannerConformance, NoEntriesAndNoTiers) {
  EXPECT_TRUE(planner_->relieve({}).feasible);
  EXPECT_TRUE(planner_->promote({}).moves.empty());
  const Problem dropped_only = make_instance(1, {.entries = 3, .tiers = 0});
  EXPECT_EQ(planner_->insert(dropped_only, dropped_only.entries[0]), 0u);
  EXPECT_TRUE(planner_->relieve(dropped_only).moves.empty());
}

INSTANTIATE_TEST_SUITE_P(All, PlannerConformance, ::testing::ValuesIn(planner_names()),
                         [](const auto& instance) { return std::string(instance.param); });

TEST(PlannerRegistry, IsSortedAndRefusesOthersByName) {
  EXPECT_TRUE(std::ranges::is_sorted(planner_names()));
  const auto unknown = make_planner("belady");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(unknown.error().message.find("belady"), std::string::npos);
  EXPECT_NE(unknown.error().message.find("prefill"), std::string::npos);
  EXPECT_FALSE(make_planner("shale", {.hysteresis = -0.1}));
}

}  // namespace
}  // namespace shale
