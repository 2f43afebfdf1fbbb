#include "model/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace shale {
namespace {

TEST(Logprobs, AreThoseOfTheSoftmax) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(10, 8);
  std::vector<float> logits(300);
  for (float& logit : logits) logit = normal(random);
  logits[7] = logits[9] = 40;  // as likely as each other
  long double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<long double>(logit));
  std::vector<std::pair<double, Token>> wanted;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    wanted.emplace_back(-static_cast<double>(std::log(std::exp(static_cast<long double>(logits[i])) / total)),
                        static_cast<Token>(i));
  }
  for (const Token drawn : {0, 7, 9, 299}) {
    const Logprobs given = logprobs_of(logits, drawn, 20);
    EXPECT_NEAR(given.drawn, -wanted[static_cast<std::size_t>(drawn)].first, 1e-4);
    const auto all = logprobs_of(logits, drawn, 300).top;
    EXPECT_EQ(all.at(given.rank - 1).first, drawn) << "its rank is its place among all";
  }
  std::ranges::sort(wanted);
  for (const std::uint32_t top : {0u, 1u, 20u, 1000u}) {
    const Logprobs given = logprobs_of(logits, 0, top);
    ASSERT_EQ(given.top.size(), std::min<std::size_t>(top, logits.size()));
    for (std::size_t i = 0; i < given.top.size(); ++i) {
      EXPECT_EQ(given.top[i].first, wanted[i].second) << i;
      EXPECT_NEAR(given.top[i].second, -wanted[i].first, 1e-4) << i;
    }
  }
}

TEST(Logprobs, BearWhatCannotBeDrawn) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Logprobs given = logprobs_of(std::vector<float>{-kInfinity, 5, -kInfinity}, 0, 1);
  EXPECT_EQ(given.drawn, -kInfinity);
  EXPECT_EQ(given.top.at(0), std::pair(Token{1}, 0.0F));
}

}  // namespace
}  // namespace shale
