// Budgets: what holds for each, and their naive twins.
#include "scoring/budgets/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "scoring/scorer.h"

namespace shale {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Scene {
  std::uint32_t layers, kv_heads, tokens;
  std::vector<float> scores;

  ModelScores view() const { return {layers, kv_heads, tokens, scores}; }
  std::uint32_t count(const Kept& kept, std::uint32_t head) const {
    const auto row = std::span(kept).subspan(std::size_t{head} * tokens, tokens);
    return static_cast<std::uint32_t>(std::ranges::count(row, 1));
  }
};

// Heads of different scale, with ties.
Scene random_scene(std::uint32_t layers, std::uint32_t kv_heads, std::uint32_t tokens, std::uint64_t seed) {
  Scene scene{layers, kv_heads, tokens, {}};
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int> draw(0, 40);
  for (std::uint32_t i = 0; i < layers * kv_heads * tokens; ++i) {
    scene.scores.push_back(static_cast<float>(draw(random)) * static_cast<float>(1 + i / tokens % kv_heads));
  }
  return scene;
}

class EveryBudget : public ::testing::TestWithParam<std::string_view> {
 protected:
  std::unique_ptr<Budget> budget_ = std::move(make_budget(GetParam()).value());
};

TEST_P(EveryBudget, KnowsItsName) { EXPECT_EQ(budget_->name(), GetParam()); }

TEST_P(EveryBudget, KeepsTheBestOfEveryHead) {
  const Scene scene = random_scene(3, 2, 150, 1);
  for (const double keep : {0.01, 0.1, 0.37, 0.5, 0.9, 1.0}) {
    const Kept kept = budget_->select(scene.view(), keep, 8);
    ASSERT_EQ(kept.size(), scene.scores.size());
    for (std::uint32_t head = 0; head < 6; ++head) {
      const auto order = ranking(std::span(scene.scores).subspan(head * 150, 150));
      const std::uint32_t count = scene.count(kept, head);
      EXPECT_GE(count, 1u);
      for (std::uint32_t i = 0; i < 150; ++i) EXPECT_EQ(kept[head * 150 + order[i]], i < count) << "rank " << i;
    }
  }
}

TEST_P(EveryBudget, NestsWhereItSaysSo) {
  const Scene scene = random_scene(2, 3, 60, 2);
  Kept smaller(scene.scores.size());
  for (int percent = 1; budget_->nested() && percent <= 100; ++percent) {
    const Kept larger = budget_->select(scene.view(), percent / 100.0, 4);
    for (std::size_t i = 0; i < larger.size(); ++i) ASSERT_GE(larger[i], smaller[i]) << percent;
    smaller = larger;
  }
}

TEST_P(EveryBudget, TakesFewTokens) {
  EXPECT_TRUE(budget_->select({2, 2, 0, {}}, 0.5, 64).empty());
  const Scene one = random_scene(1, 2, 1, 3);
  EXPECT_EQ(budget_->select(one.view(), 0.1, 64), Kept(2, 1));
  const Scene few = random_scene(3, 1, 5, 4);  // fewer than the window
  for (std::uint32_t head = 0; head < 3; ++head) {
    EXPECT_GE(few.count(budget_->select(few.view(), 0.5, 64), head), 1u);
  }
}

TEST_P(EveryBudget, KeepsUnusableTokensLast) {
  Scene scene = random_scene(2, 2, 40, 5);
  for (std::size_t i = 0; i < scene.scores.size(); i += 3) scene.scores[i] = -kInfinity;
  const Kept kept = budget_->select(scene.view(), 0.3, 8);
  for (std::size_t i = 0; i < kept.size(); i += 3) EXPECT_EQ(kept[i], 0) << i;
}

INSTANTIATE_TEST_SUITE_P(Budgets, EveryBudget, ::testing::ValuesIn(budget_names()),
                         [](const auto& budget) { return std::string(budget.param); });

TEST(Budgets, AnUnknownNameListsTheKnownOnes) {
  const auto made = make_budget("nope");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(made.error().message, ::testing::HasSubstr("adakv, global, pyramid, uniform"));
}

TEST(Uniform, KeepsTheSameNumberEverywhere) {
  const Scene scene = random_scene(2, 3, 77, 6);
  const Kept kept = (*make_budget("uniform"))->select(scene.view(), 0.3, 8);
  for (std::uint32_t head = 0; head < 6; ++head) EXPECT_EQ(scene.count(kept, head), 23u);
}

TEST(AdaKv, PoolsALayerAboveEachHeadsShare) {
  // Head 1 has every high score; head 0 keeps its safeguard, ⌊0.2 · 20⌋, and head 1 the rest of the pool.
  Scene scene{1, 2, 40, std::vector<float>(80)};
  std::iota(scene.scores.begin(), scene.scores.end(), 0.0f);
  const Kept kept = (*make_budget("adakv"))->select(scene.view(), 0.5, 8);
  EXPECT_EQ(scene.count(kept, 0), 4u);
  EXPECT_EQ(scene.count(kept, 1), 36u);
}

TEST(AdaKv, AgreesWithItsDefinition) {
  const Scene scene = random_scene(3, 4, 90, 7);
  for (const double keep : {0.05, 0.3, 0.8}) {
    const Kept kept = (*make_budget("adakv"))->select(scene.view(), keep, 8);
    const auto count = static_cast<std::uint32_t>(90 * keep);
    const auto safe = std::max(1u, static_cast<std::uint32_t>(0.2 * count));
    for (std::uint32_t layer = 0; layer < 3; ++layer) {
      std::vector<float> pool, kept_beyond;
      std::uint32_t total = 0;
      for (std::uint32_t head = layer * 4; head < layer * 4 + 4; ++head) {
        const auto scores = std::span(scene.scores).subspan(head * 90, 90);
        const auto order = ranking(scores);
        total += scene.count(kept, head);
        EXPECT_GE(scene.count(kept, head), safe);
        for (std::uint32_t i = safe; i < 90; ++i) {
          pool.push_back(scores[order[i]]);
          if (kept[head * 90 + order[i]]) kept_beyond.push_back(scores[order[i]]);
        }
      }
      EXPECT_EQ(total, 4 * count);
      std::ranges::sort(pool, std::greater<>());
      std::ranges::sort(kept_beyond, std::greater<>());
      pool.resize(kept_beyond.size());
      EXPECT_EQ(kept_beyond, pool);
    }
  }
}

TEST(Global, PoolsTheWholeModelAboveEachHeadsBest) {
  // Scores grow from head to head across layers: the first heads keep their best token, the last take the pool.
  Scene scene{2, 2, 40, std::vector<float>(160)};
  std::iota(scene.scores.begin(), scene.scores.end(), 0.0f);
  const Kept kept = (*make_budget("global"))->select(scene.view(), 0.25, 8);
  const std::vector<std::uint32_t> expected = {1, 1, 1, 37};  // 10 tokens a head, 40 together
  for (std::uint32_t head = 0; head < 4; ++head) EXPECT_EQ(scene.count(kept, head), expected[head]);
}

TEST(Global, KeepsAsManyAsUniform) {
  const Scene scene = random_scene(3, 2, 70, 9);
  for (const double keep : {0.02, 0.3, 1.0}) {
    const Kept kept = (*make_budget("global"))->select(scene.view(), keep, 8);
    EXPECT_EQ(std::ranges::count(kept, 1), 6 * kept_tokens(70, keep)) << keep;
  }
}

TEST(Pyramid, KeepsFewerTokensInHigherLayers) {
  const Scene scene = random_scene(5, 1, 1000, 8);
  const Kept kept = (*make_budget("pyramid"))->select(scene.view(), 0.2, 8);
  // b = 200, lo = 10, hi = 390
  const std::vector<std::uint32_t> expected = {390, 295, 200, 105, 10};
  for (std::uint32_t layer = 0; layer < 5; ++layer) EXPECT_EQ(scene.count(kept, layer), expected[layer]);
}

// The context's tokens bound the lowest layer, not how many of them are left.
TEST(Pyramid, GoesByTheContextOfWhatIsLeft) {
  const Scene scene = random_scene(5, 1, 392, 8);
  ModelScores left = scene.view();
  left.context_tokens = 1000;
  const Kept kept = (*make_budget("pyramid"))->select(left, 200.0 / 392, 8);
  const std::vector<std::uint32_t> expected = {390, 295, 200, 105, 10};
  for (std::uint32_t layer = 0; layer < 5; ++layer) EXPECT_EQ(scene.count(kept, layer), expected[layer]);
  const Scene few = random_scene(5, 1, 300, 8);  // fewer than a layer's share
  left = few.view();
  left.context_tokens = 1000;
  EXPECT_EQ(few.count((*make_budget("pyramid"))->select(left, 200.0 / 300, 8), 0), 300u);
}

TEST(Pyramid, IsUniformWhereAWindowDoesNotFit) {
  const Scene scene = random_scene(4, 1, 1000, 9);
  const Kept kept = (*make_budget("pyramid"))->select(scene.view(), 0.2, 11);  // lo = 10
  for (std::uint32_t layer = 0; layer < 4; ++layer) EXPECT_EQ(scene.count(kept, layer), 200u);
}

}  // namespace
}  // namespace shale
