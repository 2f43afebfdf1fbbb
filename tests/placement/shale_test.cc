#include <gtest/gtest.h>

#include "placement/instances.h"
#include "placement/placement.h"

namespace shale {
namespace {

using testing::after;
using testing::inserted;
using testing::make_instance;

constexpr std::uint64_t kAny = ~std::uint64_t{0};

Candidate on(std::uint32_t tier, std::uint64_t bytes, double worth) {
  return {.tier = tier, .bytes = bytes, .quality = worth, .ttft_s = 0};
}

PlacedPrefix prefix(std::vector<Candidate> candidates, std::uint32_t current = 0, double frequency = 1) {
  PlacedPrefix made;
  made.frequency = frequency;
  made.candidates = std::move(candidates);
  made.current = current;
  return made;
}

std::unique_ptr<Planner> shale(const PlannerOptions& options = {}) { return make_planner("shale", options).value(); }

std::vector<std::uint32_t> demoted(const Problem& problem, const PlannerOptions& options = {}) {
  return placement_after(problem, shale(options)->demote(problem));
}

std::vector<std::uint32_t> promoted(const Problem& problem, const PlannerOptions& options = {}) {
  return placement_after(problem, shale(options)->promote(problem));
}

TEST(Shale, InsertsWhereUtilityIsHighest) {
  // The worked example: keydiff at keep 0.4 scores 0.60 and loses to keep 0.1 with 0.62.
  const PlacedPrefix example =
      prefix({{1, 0.4, 0, 40, 0.65, 0.05}, {1, 0.1, 0, 10, 0.67, 0.05}, {0, 1, kDropped, 0, 1, 9}});
  const Problem problem{.tiers = {{100}}, .prefixes = {example}};
  EXPECT_EQ(shale()->insert(problem, example), 1u);
}

TEST(Shale, InsertsByAlpha) {
  const PlacedPrefix example =
      prefix({{1, 0.4, 0, 40, 0.82, 0.20}, {1, 0.5, 0, 50, 0.92, 0.24}, {0, 1, kDropped, 0, 1, 9}});
  EXPECT_EQ(shale()->insert(Problem{.alpha = 0.39, .tiers = {{100}}, .prefixes = {}}, example), 0u);
  EXPECT_EQ(shale()->insert(Problem{.alpha = 0.41, .tiers = {{100}}, .prefixes = {}}, example), 1u);
}

TEST(Shale, InsertsNothingThatTheWholeTierCouldNotHold) {
  const PlacedPrefix big = prefix({on(0, 500, 1), on(1, 500, 0.5), on(kDropped, 0, 0.1)});
  EXPECT_EQ(shale()->insert(Problem{.tiers = {{100}, {1000}}, .prefixes = {}}, big), 1u);
}

TEST(Shale, OfEqualUtilityTheSmallerIsInserted) {
  const PlacedPrefix tied = prefix({on(0, 50, 1), on(0, 20, 1), on(kDropped, 0, 0.1)});
  EXPECT_EQ(shale()->insert(Problem{.tiers = {{100}}, .prefixes = {}}, tied), 1u);
}

TEST(Shale, CompressingAndMovingAreComparedPerByte) {
  // Compressing a: drop 0.1 for 50 bytes. Moving b down: drop 0.1 for 100 bytes.
  Problem problem{.tiers = {{150}, {kAny}},
                  .prefixes = {prefix({on(0, 100, 1), on(0, 50, 0.9), on(1, 100, 0.2), on(kDropped, 0, 0)}),
                               prefix({on(0, 100, 1), on(0, 50, 0.2), on(1, 100, 0.9), on(kDropped, 0, 0)})}};
  EXPECT_EQ(demoted(problem), (std::vector<std::uint32_t>{0, 2}));
}

TEST(Shale, UndividedTakesTheLeastDropHoweverLittleItFrees) {
  // a gives 10 bytes for 0.01 (0.001 a byte); b 100 bytes for 0.05 (0.0005 a byte). Ten bytes are too many.
  Problem problem{.tiers = {{190}},
                  .prefixes = {prefix({on(0, 100, 1), on(0, 90, 0.99), on(kDropped, 0, 0)}),
                               prefix({on(0, 100, 1), on(kDropped, 0, 0.95)})}};
  EXPECT_EQ(demoted(problem), (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(demoted(problem, {.divide_by_bytes = false}), (std::vector<std::uint32_t>{1, 0}));
}

TEST(Shale, OffersAreRefreshedOnceAPrefixIsChanged) {
  // a's first press is the cheapest offer, its second is dearer than b's: one step each.
  Problem problem{.tiers = {{120}},
                  .prefixes = {prefix({on(0, 100, 1), on(0, 60, 0.99), on(0, 20, 0.3), on(kDropped, 0, 0)}),
                               prefix({on(0, 100, 1), on(0, 60, 0.9), on(0, 20, 0.3), on(kDropped, 0, 0)})}};
  EXPECT_EQ(demoted(problem), (std::vector<std::uint32_t>{1, 1}));
}

TEST(Shale, WhatMovesDownMayPushOthersOut) {
  Problem problem{.tiers = {{100}, {100}},
                  .prefixes = {prefix({on(0, 100, 1), on(1, 100, 0.8), on(kDropped, 0, 0)}, 0, 10),
                               prefix({on(0, 100, 1), on(1, 100, 0.8), on(kDropped, 0, 0)}, 0, 5),
                               prefix({on(0, 100, 1), on(1, 100, 0.8), on(kDropped, 0, 0)}, 1, 1)}};
  EXPECT_EQ(demoted(problem), (std::vector<std::uint32_t>{0, 1, 2}));
}

TEST(Shale, EqualOffersGoInTheOrderOfPrefixes) {
  Problem problem{.tiers = {{200}}, .prefixes = {}};
  for (int i = 0; i < 4; ++i) problem.prefixes.push_back(prefix({on(0, 100, 1), on(kDropped, 0, 0)}));
  EXPECT_EQ(demoted(problem), (std::vector<std::uint32_t>{1, 1, 0, 0}));
}

TEST(Shale, PinnedPrefixesStayAndTheOthersAreDemoted) {
  Problem problem{
      .tiers = {{100}},
      .prefixes = {prefix({on(0, 100, 0.1), on(kDropped, 0, 0)}), prefix({on(0, 100, 1), on(kDropped, 0, 0)})}};
  problem.prefixes[0].pinned = true;
  EXPECT_EQ(demoted(problem), (std::vector<std::uint32_t>{0, 1}));
}

TEST(Shale, FreeRoomGoesToTheLargestGainPerByte) {
  // More in all would be gained by the other, but not by 10 % more.
  Problem problem{.tiers = {{100}, {kAny}},
                  .prefixes = {prefix({on(0, 100, 0.92), on(1, 100, 0.5), on(kDropped, 0, 0)}, 1),
                               prefix({on(0, 50, 0.9), on(1, 50, 0.5), on(kDropped, 0, 0)}, 1)}};
  EXPECT_EQ(promoted(problem), (std::vector<std::uint32_t>{1, 0}));
}

TEST(Shale, UpgradesInPlaceIntoFreeRoom) {
  Problem problem{.tiers = {{100}}, .prefixes = {prefix({on(0, 100, 1), on(0, 10, 0.7), on(kDropped, 0, 0)}, 1)}};
  EXPECT_EQ(promoted(problem), (std::vector<std::uint32_t>{0}));
  problem.tiers[0].capacity_bytes = 99;
  EXPECT_EQ(promoted(problem), (std::vector<std::uint32_t>{1}));
}

TEST(Shale, TakesTheSmallerFormWhereTheLargerDoesNotFit) {
  Problem problem{.tiers = {{60}, {kAny}},
                  .prefixes = {prefix({on(0, 100, 1), on(0, 50, 0.7), on(1, 100, 0.5), on(kDropped, 0, 0)}, 2)}};
  EXPECT_EQ(promoted(problem), (std::vector<std::uint32_t>{1}));
}

// One place in memory, taken by a cached prefix that loses 0.5 when it leaves; another would gain `gain`.
std::vector<std::uint32_t> contest(double gain, const PlannerOptions& options = {}) {
  return promoted({.tiers = {{100}, {kAny}},
                   .prefixes = {prefix({on(0, 100, 1), on(1, 100, 0.5), on(kDropped, 0, 0)}, 0),
                                prefix({on(0, 100, 0.4 + gain), on(1, 100, 0.4), on(kDropped, 0, 0)}, 1)}},
                  options);
}

TEST(Shale, PromotionMustWinByTheHysteresis) {
  const std::vector<std::uint32_t> stays = {0, 1}, swaps = {1, 0};
  EXPECT_EQ(contest(0.549), stays);
  EXPECT_EQ(contest(0.551), swaps);
  EXPECT_EQ(contest(0.549, {.hysteresis = 0}), swaps);
  EXPECT_EQ(contest(0.499, {.hysteresis = 0}), stays);
}

TEST(Shale, PromotionCountsWhatItPushesOutFurtherDown) {
  // b gains 1.0 in memory, where a loses 0.5; a then pushes c out of the disk, which loses `last`.
  const auto swapped = [](double last) {
    const Problem problem{.tiers = {{100}, {150}},
                          .prefixes = {prefix({on(0, 100, 1), on(1, 100, 0.5), on(kDropped, 0, 0)}, 0),
                                       prefix({on(0, 100, 1.5), on(1, 50, 0.5), on(kDropped, 0, 0)}, 1),
                                       prefix({on(1, 100, last), on(kDropped, 0, 0)}, 0)}};
    return promoted(problem);
  };
  EXPECT_EQ(swapped(0.40), (std::vector<std::uint32_t>{1, 0, 1}));
  EXPECT_EQ(swapped(0.42), (std::vector<std::uint32_t>{0, 1, 0}));
}

TEST(Shale, PromotionNeverLosesUtility) {
  int with_moves = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    // Placed by lru, which leaves much to improve.
    const auto lru = make_planner("lru").value();
    Problem problem = inserted(make_instance(seed, {.prefixes = 1 + seed * 2, .pinned_share = 0.05}), *lru);
    problem = after(problem, lru->demote(problem));
    for (const double hysteresis : {0.0, 0.1, 1.0}) {
      const Plan plan = shale({.hysteresis = hysteresis})->promote(problem);
      EXPECT_GE(plan.utility, testing::utility_of(problem, testing::placement_of(problem)));
      with_moves += !plan.moves.empty();
    }
  }
  EXPECT_GT(with_moves, 100);
}

TEST(Baselines, PushWholeCachesDownAndOutInTheirOrder) {
  Problem problem{.tiers = {{100}, {100}}, .prefixes = {}};
  for (const auto& [last_access_s, accesses] : {std::pair{3.0, 1u}, {1.0, 9u}, {2.0, 5u}}) {
    problem.prefixes.push_back(prefix({on(0, 100, 1), on(1, 100, 0.5), on(kDropped, 0, 0)}));
    problem.prefixes.back().last_access_s = last_access_s;
    problem.prefixes.back().accesses = accesses;
  }
  const auto placed = [&](std::string_view name) {
    return placement_after(problem, make_planner(name).value()->demote(problem));
  };
  EXPECT_EQ(placed("lru"), (std::vector<std::uint32_t>{0, 2, 1}));
  EXPECT_EQ(placed("lfu"), (std::vector<std::uint32_t>{2, 0, 1}));
  EXPECT_EQ(placed("impress"), placed("lfu")) << "all alike important";
  problem.prefixes[1].importance = 0.1;  // 9 accesses
  problem.prefixes[0].importance = 0.95;
  EXPECT_EQ(placed("impress"), (std::vector<std::uint32_t>{1, 2, 0})) << "0.9 goes before 0.95";
  EXPECT_EQ(placed("prefill"), (std::vector<std::uint32_t>{2, 2, 2}));
}

TEST(Baselines, LruBringsAHitBackUp) {
  Problem problem{.tiers = {{100}, {100}},
                  .prefixes = {prefix({on(0, 100, 1), on(1, 100, 0.5), on(kDropped, 0, 0)}, 0),
                               prefix({on(0, 100, 1), on(1, 100, 0.5), on(kDropped, 0, 0)}, 1)}};
  problem.prefixes[1].last_access_s = 5;
  const auto lru = make_planner("lru").value();
  EXPECT_EQ(placement_after(problem, lru->promote(problem)), (std::vector<std::uint32_t>{1, 0}));
}

TEST(Baselines, FixedKeepsItsOneConfiguration) {
  Problem problem = make_instance(2, {.prefixes = 30, .smaller_forms = 2});
  const auto fixed = make_planner("fixed", {.fixed_method_index = 2, .fixed_keep = 0.25}).value();
  problem = inserted(problem, *fixed);
  problem = after(problem, fixed->demote(problem));
  int stored = 0;
  for (const PlacedPrefix& placed : problem.prefixes) {
    const Candidate& candidate = placed.candidates[placed.current];
    if (candidate.tier == kDropped) continue;
    EXPECT_EQ(candidate.method, 2u);
    ++stored;
  }
  EXPECT_GT(stored, 15);
}

}  // namespace
}  // namespace shale
