#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "model/model.h"

namespace shale {
namespace {

std::map<Token, double> shares(const SamplingOptions& options, const std::vector<float>& logits, int draws = 20000) {
  Sampler sampler(options);
  std::map<Token, double> result;
  for (int i = 0; i < draws; ++i) result[sampler.sample(logits)] += 1.0 / draws;
  return result;
}

// Logits whose softmax at temperature 1 is this.
std::vector<float> logits_of(std::initializer_list<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)) + 3);
  return logits;
}

constexpr double kTolerance = 0.015;  // 4 standard deviations of 20,000 draws

TEST(SamplerTest, GreedyTakesTheFirstMaximum) {
  Sampler sampler({});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 5, 5, 2}), 1);
}

TEST(SamplerTest, FollowsTheSoftmax) {
  const auto drawn = shares({.temperature = 1, .seed = 1}, logits_of({0.5, 0.3, 0.15, 0.05}));
  EXPECT_NEAR(drawn.at(0), 0.5, kTolerance);
  EXPECT_NEAR(drawn.at(1), 0.3, kTolerance);
  EXPECT_NEAR(drawn.at(2), 0.15, kTolerance);
  EXPECT_NEAR(drawn.at(3), 0.05, kTolerance);
}

TEST(SamplerTest, TemperatureSharpens) {
  const auto drawn = shares({.temperature = 0.5F, .seed = 2}, logits_of({0.5, 0.3, 0.2}));
  EXPECT_NEAR(drawn.at(0), 0.25 / 0.38, kTolerance);
}

TEST(SamplerTest, TopKKeepsTheLikeliest) {
  const auto drawn = shares({.temperature = 1, .top_k = 2, .seed = 3}, logits_of({0.1, 0.4, 0.2, 0.3}));
  EXPECT_EQ(drawn.size(), 2);
  EXPECT_NEAR(drawn.at(1), 4.0 / 7, kTolerance);
  EXPECT_NEAR(drawn.at(3), 3.0 / 7, kTolerance);
}

TEST(SamplerTest, TopPKeepsTheSmallestSetThatReachesTheMass) {
  const auto drawn = shares({.temperature = 1, .top_p = 0.6F, .seed = 4}, logits_of({0.1, 0.5, 0.25, 0.15}));
  EXPECT_EQ(drawn.size(), 2);
  EXPECT_NEAR(drawn.at(1), 2.0 / 3, kTolerance);
  EXPECT_NEAR(drawn.at(2), 1.0 / 3, kTolerance);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 0, .seed = 4}, logits_of({0.1, 0.5, 0.4})).size(), 1);
}

TEST(SamplerTest, MinPKeepsTokensNearTheBest) {
  const auto drawn = shares({.temperature = 1, .min_p = 0.5F, .seed = 5}, logits_of({0.5, 0.3, 0.2}));
  EXPECT_EQ(drawn.size(), 2);
  EXPECT_NEAR(drawn.at(0), 0.5 / 0.8, kTolerance);
}

TEST(SamplerTest, ASeedDecidesEverything) {
  const auto logits = logits_of({0.25, 0.25, 0.25, 0.25});
  const auto draw = [&](std::uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed});
    std::vector<Token> tokens;
    for (int i = 0; i < 64; ++i) tokens.push_back(sampler.sample(logits));
    return tokens;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(SamplerTest, SurvivesInfinitiesAndNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const float top_p : {1.0F, 0.5F}) {
    Sampler sampler({.temperature = 1, .top_p = top_p, .min_p = 0.1F});
    EXPECT_EQ(sampler.sample(std::vector<float>{-kInfinity, 1, -kInfinity}), 1);
    EXPECT_LT(sampler.sample(std::vector<float>{kNaN, kNaN}), 2);
    EXPECT_LT(sampler.sample(std::vector<float>{1, kInfinity, kNaN}), 3);
  }
}

}  // namespace
}  // namespace shale
