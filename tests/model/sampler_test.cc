#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <random>

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

// vLLM's apply_penalties, over the whole vocabulary at once.
std::vector<float> penalized(const SamplingOptions& options, const std::vector<float>& logits,
                             const std::vector<Token>& prompt, const std::vector<Token>& drawn) {
  std::vector<double> result(logits.begin(), logits.end()), counts(logits.size());
  std::vector<bool> in_prompt(logits.size());
  for (const Token token : prompt) in_prompt[static_cast<std::size_t>(token)] = true;
  for (const Token token : drawn) ++counts[static_cast<std::size_t>(token)];
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double repetition = in_prompt[i] || counts[i] > 0 ? options.repetition_penalty : 1.0;
    result[i] *= result[i] > 0 ? 1 / repetition : repetition;
    result[i] -= options.frequency_penalty * counts[i];
    result[i] -= options.presence_penalty * (counts[i] > 0);
  }
  return {result.begin(), result.end()};
}

TEST(SamplerTest, PenalizesAsVllmDoes) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.5F, 2);
  std::vector<float> logits(50);
  for (float& logit : logits) logit = normal(random);
  const std::vector<Token> prompt = {0, 7, 7, 21, 49};
  for (const float temperature : {0.0F, 1.0F}) {
    for (const auto& [repetition, frequency, presence] : std::vector<std::array<float, 3>>{{1, 0, 0},
                                                                                           {1.3F, 0, 0},
                                                                                           {0.8F, 0, 0},
                                                                                           {1, 0.7F, 0},
                                                                                           {1, 0, 1.5F},
                                                                                           {1, -0.1F, -0.2F},
                                                                                           {1.2F, 0.3F, 0.4F}}) {
      const SamplingOptions plain{.temperature = temperature, .seed = 9};
      SamplingOptions options = plain;
      options.repetition_penalty = repetition;
      options.frequency_penalty = frequency;
      options.presence_penalty = presence;
      Sampler sampler(options), naive(plain);
      sampler.note_prompt(prompt);
      std::vector<Token> drawn;
      for (int i = 0; i < 200; ++i) {
        const Token token = sampler.sample(logits);
        ASSERT_EQ(token, naive.sample(penalized(options, logits, prompt, drawn)))
            << i << ": " << repetition << " " << frequency << " " << presence;
        drawn.push_back(token);
      }
    }
  }
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
