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
      shape.prefixes = 1 + seed * 3;
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
    EXPECT_EQ(a.moves[i].prefix, b.moves[i].prefix);
    EXPECT_EQ(a.moves[i].from, b.moves[i].from);
    EXPECT_EQ(a.moves[i].to, b.moves[i].to);
  }
  EXPECT_EQ(a.utility, b.utility);
  EXPECT_EQ(a.feasible, b.feasible);
}

void expect_sound(const Problem& problem, const Plan& plan) {
  std::set<std::size_t> moved;
  for (const Move& move : plan.moves) {
    ASSERT_LT(move.prefix, problem.prefixes.size());
    const PlacedPrefix& prefix = problem.prefixes[move.prefix];
    EXPECT_TRUE(moved.insert(move.prefix).second) << "two moves of one prefix";
    EXPECT_FALSE(prefix.pinned);
    EXPECT_EQ(move.from, prefix.current);
    EXPECT_NE(move.to, move.from);
    ASSERT_LT(move.to, prefix.candidates.size());
  }
  const std::vector<std::uint32_t> placement = placement_after(problem, plan);
  EXPECT_NEAR(plan.utility, testing::utility_of(problem, placement), 1e-9);
  EXPECT_EQ(plan.feasible, fits(problem, placement));
}

bool pinned_fit(const Problem& problem) {
  Problem pinned = problem;
  std::erase_if(pinned.prefixes, [](const PlacedPrefix& prefix) { return !prefix.pinned; });
  return fits(pinned, testing::placement_of(pinned));
}

TEST_P(PlannerConformance, IsFoundByItsName) { EXPECT_EQ(planner_->name(), GetParam()); }

TEST_P(PlannerConformance, DemotionFitsUnlessPinnedPrefixesAloneDoNot) {
  int feasible = 0, infeasible = 0;
  for_instances([&](const Problem& problem) {
    const Plan plan = planner_->demote(problem);
    expect_sound(problem, plan);
    EXPECT_EQ(plan.feasible, pinned_fit(problem));
    ++(plan.feasible ? feasible : infeasible);
  });
  EXPECT_GT(feasible, 20);
  EXPECT_GT(infeasible, 3);
}

TEST_P(PlannerConformance, DemotionAppliedMoveByMoveNeverFillsATierFurther) {
  for_instances([&](Problem problem) {
    const Plan plan = planner_->demote(problem);
    auto placement = testing::placement_of(problem);
    auto most = testing::used_bytes(problem, placement);
    for (std::size_t tier = 0; tier < most.size(); ++tier) {
      most[tier] = std::max(most[tier], problem.tiers[tier].capacity_bytes);
    }
    for (const Move& move : plan.moves) {
      placement[move.prefix] = move.to;
      const auto used = testing::used_bytes(problem, placement);
      for (std::size_t tier = 0; tier < used.size(); ++tier) EXPECT_LE(used[tier], most[tier]);
    }
  });
}

TEST_P(PlannerConformance, NothingIsLeftToDemote) {
  for_instances([&](const Problem& problem) {
    const Plan plan = planner_->demote(problem);
    EXPECT_TRUE(!plan.feasible || planner_->demote(after(problem, plan)).moves.empty());
  });
}

TEST_P(PlannerConformance, PromotionNeverOverfills) {
  for_instances([&](const Problem& problem) {
    const Problem demoted = after(problem, planner_->demote(problem));
    const Plan plan = planner_->promote(demoted);
    expect_sound(demoted, plan);
    EXPECT_EQ(plan.feasible, fits(demoted, testing::placement_of(demoted)));
    EXPECT_TRUE(plan.feasible || plan.moves.empty());
  });
}

TEST_P(PlannerConformance, PromotionComesToRest) {
  for_instances([&](const Problem& problem) {
    Problem at_rest = after(problem, planner_->demote(problem));
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
    const Plan demotion = planner_->demote(problem);
    expect_same(demotion, planner_->demote(problem));
    expect_same(demotion, other->demote(problem));
    const Problem demoted = after(problem, demotion);
    expect_same(planner_->promote(demoted), other->promote(demoted));
  });
}

TEST_P(PlannerConformance, EverythingPinnedStays) {
  Problem problem = make_instance(7, {.prefixes = 20, .capacity_share = 0.1});
  for (PlacedPrefix& prefix : problem.prefixes) {
    prefix.pinned = true;
    prefix.current = 0;
  }
  const Plan demotion = planner_->demote(problem);
  EXPECT_TRUE(demotion.moves.empty());
  EXPECT_FALSE(demotion.feasible);
  EXPECT_TRUE(planner_->promote(problem).moves.empty());
}

TEST_P(PlannerConformance, WithoutRoomEverythingIsDropped) {
  Problem problem = make_instance(7, {.prefixes = 20});
  for (PlacedPrefix& prefix : problem.prefixes) prefix.current = 0;
  for (TierRoom& tier : problem.tiers) tier.capacity_bytes = 0;
  const Plan plan = planner_->demote(problem);
  EXPECT_TRUE(plan.feasible);
  for (const Move& move : plan.moves) EXPECT_EQ(problem.prefixes[move.prefix].candidates[move.to].tier, kDropped);
  EXPECT_EQ(plan.moves.size(), 20u);
  EXPECT_EQ(problem.prefixes[0].candidates[planner_->insert(problem, problem.prefixes[0])].tier, kDropped);
}

TEST_P(PlannerConformance, WhatMustStayIsNeverDropped) {
  for_instances([&](Problem problem) {
    for (std::size_t e = 0; e < problem.prefixes.size(); e += 3) {
      PlacedPrefix& prefix = problem.prefixes[e];
      if (prefix.candidates[prefix.current].tier == kDropped) prefix.current = 0;
      prefix.candidates.pop_back();
    }
    const Plan plan = planner_->demote(problem);
    expect_sound(problem, plan);
    const Problem demoted = after(problem, plan);
    const Plan promotion = planner_->promote(demoted);
    expect_sound(demoted, promotion);
    EXPECT_EQ(promotion.feasible, plan.feasible);
    EXPECT_LT(planner_->insert(problem, problem.prefixes[0]), problem.prefixes[0].candidates.size());
    if (plan.feasible) {
      EXPECT_LE(promotion.utility, utility_bound(problem) + 1e-9);
    }
  });
}

TEST_P(PlannerConformance, NoPrefixesAndNoTiers) {
  EXPECT_TRUE(planner_->demote({}).feasible);
  EXPECT_TRUE(planner_->promote({}).moves.empty());
  const Problem dropped_only = make_instance(1, {.prefixes = 3, .tiers = 0});
  EXPECT_EQ(planner_->insert(dropped_only, dropped_only.prefixes[0]), 0u);
  EXPECT_TRUE(planner_->demote(dropped_only).moves.empty());
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
