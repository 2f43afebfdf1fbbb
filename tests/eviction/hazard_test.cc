#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "eviction/hazard_model.h"
#include "eviction/tree.h"

namespace shale {
namespace {

constexpr std::uint32_t kOldest = 4000;

// Visits, one a tick, whose blocks return `gap` ticks later where `returns` says so.
template <class Gap, class Returns>
void observe(HazardModel& model, HazardModel::Cell cell, int visits, Gap gap, Returns returns) {
  for (int i = 0; i < visits; ++i) {
    const HazardModel::Sample sample = model.begin(cell, 0);
    const bool returned = returns();
    model.end(sample, returned ? gap() : kOldest, returned);
  }
}

double width(std::uint32_t age_class) {
  return HazardModel::youngest(age_class + 1) - HazardModel::youngest(age_class);
}

TEST(HazardModel, AgeClassesMeetWithoutGap) {
  for (std::uint32_t age = 0; age < 100'000; ++age) {
    const std::uint32_t in = HazardModel::age_class(age);
    ASSERT_LE(HazardModel::youngest(in), age);
    ASSERT_GT(HazardModel::youngest(in + 1), age);
  }
  EXPECT_EQ(HazardModel::age_class(~0u), HazardModel::kAgeClasses - 1);
}

TEST(HazardModel, BeforeAnythingIsSeenTheOlderBlockIsWorthLess) {
  HazardModel model;
  model.end(model.begin(model.cell({}), 0), kOldest, false);
  model.fit(kOldest, 1);
  const auto cell = model.cell({.visits = 3});
  for (std::uint32_t age = 2; age < 2000; age *= 2) EXPECT_LT(model.density(cell, age), model.density(cell, age / 2));
}

TEST(HazardModel, FindsTheRateOfReturn) {
  HazardModel model;
  std::mt19937 random(3);
  std::geometric_distribution<std::uint32_t> gap(0.01);
  const auto cell = model.cell({.visits = 1});
  observe(model, cell, 20'000, [&] { return 1 + gap(random); }, [] { return true; });
  model.fit(0, 1);
  for (const std::uint32_t age : {4u, 20u, 100u, 200u}) {
    EXPECT_NEAR(model.hazard(cell, age), 0.01, 0.001);
    EXPECT_NEAR(model.density(cell, age), 0.01, 0.0025);
  }
}

TEST(HazardModel, WhatStillWaitsCountsAsNotReturned) {
  HazardModel model;
  const auto cell = model.cell({});
  for (int i = 0; i < 100; ++i) model.end(model.begin(cell, 0), 10, true);
  model.fit(1000, 1);
  const float before = model.hazard(cell, 10);
  for (int i = 0; i < 900; ++i) model.begin(cell, 0);
  model.fit(1000, 1);
  EXPECT_LT(model.hazard(cell, 10), before / 5);
}

TEST(HazardModel, AValueSeenLittleChangesLittleAndOneSeenMuchDoes) {
  HazardModel model;
  const auto often = model.cell({.visits = 1, .fresh_blocks = 2});
  const auto never = model.cell({.visits = 1, .fresh_blocks = 9});
  const auto rare = model.cell({.visits = 1, .fresh_blocks = 40});
  observe(model, often, 1000, [] { return 30u; }, [] { return true; });
  observe(model, never, 1000, [] { return 30u; }, [] { return false; });
  observe(model, rare, 1, [] { return 30u; }, [] { return false; });
  model.fit(kOldest, 1);
  EXPECT_LT(model.density(never, 5), model.density(rare, 5) / 20);
  EXPECT_GT(model.density(often, 5), 1.5 * model.density(rare, 5));
}

// Turn and length of the answer each double the rate; both were never seen together.
TEST(HazardModel, AnUnseenCombinationFollowsFromItsProperties) {
  HazardModel model;
  std::mt19937 random(8);
  const auto observe_rate = [&](const HazardModel::Visit& visit, double rate) {
    std::geometric_distribution<std::uint32_t> gap(rate);
    observe(model, model.cell(visit), 20'000, [&] { return 1 + gap(random); }, [] { return true; });
  };
  observe_rate({.visits = 1}, 0.01);
  observe_rate({.visits = 1, .turn = 1}, 0.02);
  observe_rate({.visits = 1, .answer_tokens = 9}, 0.02);
  for (int i = 0; i < 10; ++i) model.fit(0, 1);
  EXPECT_NEAR(model.hazard(model.cell({.visits = 1, .turn = 1}), 20), 0.02, 0.002);
  EXPECT_NEAR(model.hazard(model.cell({.visits = 1, .turn = 1, .answer_tokens = 9}), 20), 0.04, 0.008);
}

TEST(HazardModel, DoesNotSeeWhatItIsToldNotTo) {
  HazardModel all, blind(1u << 1);  // visits
  EXPECT_NE(all.cell({.visits = 4}), all.cell({.visits = 9}));
  EXPECT_EQ(blind.cell({.visits = 4}), blind.cell({.visits = 9}));
  EXPECT_NE(blind.cell({.visits = 4}), blind.cell({.visits = 4, .gap = 9}));
}

TEST(HazardModel, CombinationsBeyondWhatItHoldsShareACell) {
  HazardModel model;
  std::uint32_t shared = 0;
  for (std::uint32_t fresh = 0; fresh < 11; ++fresh) {
    for (std::uint32_t answer = 0; answer < 12; ++answer) {
      for (std::uint32_t gap = 0; gap < 14; ++gap) {
        for (std::uint32_t turn = 0; turn < 6; ++turn) {
          const auto bit = [](std::uint32_t octave) { return octave == 0 ? 0 : 1u << (octave - 1); };
          const auto cell = model.cell(
              {.turn = bit(turn), .fresh_blocks = bit(fresh), .answer_tokens = bit(answer), .gap = bit(gap)});
          shared += cell == 0;
          EXPECT_GT(model.density(cell, 5), 0);
        }
      }
    }
  }
  EXPECT_GT(shared, 1000u);
}

TEST(HazardModel, ForgetsWhatIsKeptLess) {
  HazardModel model;
  const auto cell = model.cell({});
  observe(model, cell, 1000, [] { return 30u; }, [] { return true; });
  model.fit(kOldest, 0);
  observe(model, cell, 1000, [] { return 30u; }, [] { return false; });
  model.fit(kOldest, 1);
  EXPECT_LT(model.density(cell, 5), 1e-4);
}

// By trying every age at which the block could be given up.
TEST(HazardModel, DensityIsTheBestRatioOfReturnsToTime) {
  HazardModel model;
  std::mt19937 random(4);
  const auto cell = model.cell({});
  observe(
      model, cell, 500, [&] { return static_cast<std::uint32_t>(100 + random() % 200); },
      [&] { return random() % 3 > 0; });
  model.fit(kOldest, 1);
  for (std::uint32_t from = 1; from <= HazardModel::age_class(kOldest); ++from) {
    double survival = 1, returns = 0, time = 0, best = 0;
    for (std::uint32_t age = from; age <= HazardModel::age_class(kOldest); ++age) {
      const double rate = model.hazard(cell, HazardModel::youngest(age));
      const double still = survival / (1 + rate * width(age));
      returns += survival - still;
      time += still * width(age);
      survival = still;
      best = std::max(best, returns / time);
    }
    EXPECT_NEAR(model.density(cell, HazardModel::youngest(from)), best, 1e-4 * best) << "from class " << from;
  }
}

class HazardTest : public testing::Test {
 protected:
  static constexpr std::size_t kCapacity = 100;

  // Returns how many blocks were found.
  std::size_t serve(const std::vector<int>& labels, bool last_is_partial = false) {
    const std::size_t found = tree_.serve(labels, last_is_partial).inserted_from;
    while (tree_.size() > kCapacity) tree_.evict(policy_->victim());
    return found;
  }

  std::unique_ptr<EvictionPolicy> policy_ =
      std::move(make_eviction_policy("hazard", {.capacity_blocks = kCapacity}).value());
  Tree tree_{*policy_};
};

TEST_F(HazardTest, KeepsAPartOfALoopThatDoesNotFit) {
  std::size_t found = 0;
  for (int i = 0; i < 8000; ++i) found += serve({i % 200}) * (i >= 4000);
  EXPECT_GT(found, 4000 * 0.45);  // the optimum finds half, LRU nothing
}

TEST_F(HazardTest, AScanDoesNotDriveOutWhatReturns) {
  std::mt19937 random(5);
  std::size_t found = 0, asked = 0;
  for (int i = 0; i < 6000; ++i) {
    if (i % 3 != 0) {
      serve({1000 + i, 0, 1, 2, 3});
      continue;
    }
    found += serve({static_cast<int>(random() % 60)}) * (i >= 3000);
    asked += i >= 3000;
  }
  EXPECT_GT(static_cast<double>(found), 0.95 * static_cast<double>(asked));
}

TEST_F(HazardTest, LearnsThatPartialLastBlocksDoNotReturn) {
  std::mt19937 random(6);
  int next = 1000;
  std::size_t found = 0, asked = 0;
  for (int i = 0; i < 4000; ++i) {
    // 80 documents of one block, each time with another question: they fit if no question is kept.
    found += serve({static_cast<int>(random() % 80), next++}, true) * (i >= 2000);
    asked += i >= 2000;
  }
  EXPECT_GT(static_cast<double>(found), 0.95 * static_cast<double>(asked));
}

TEST_F(HazardTest, KnowsAConversationAgainByWhatItEvicted) {
  std::mt19937 random(7);
  std::vector<std::vector<int>> conversations;
  std::size_t found = 0, asked = 0;
  // Six conversations that go on, in a crowd of prompts that come once.
  for (int i = 0; i < 6; ++i) conversations.push_back({i, 0});
  for (int i = 0; i < 6000; ++i) {
    if (i % 10 != 0) {
      serve({1000 + i, 0, 1, 2, 3, 4});
      continue;
    }
    std::vector<int>& one = conversations[random() % 6];
    const std::size_t hit = serve(one);
    if (i >= 3000) found += hit, asked += one.size();
    one.push_back(i);
    if (one.size() > 14) one = {static_cast<int>(100'000 + i), 0};
  }
  EXPECT_GT(static_cast<double>(found), 0.6 * static_cast<double>(asked));
}

}  // namespace
}  // namespace shale
