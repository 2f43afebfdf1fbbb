#include "profile/signal_fit.h"

#include <gtest/gtest.h>

#include <cmath>

namespace shale {
namespace {

// Contexts under two configurations: at the first quality follows the mass, at the second all are alike.
std::vector<SignalSample> samples(std::size_t contexts) {
  std::vector<SignalSample> all;
  for (std::size_t i = 0; i < contexts; ++i) {
    const double at = static_cast<double>(i) / static_cast<double>(contexts - 1);
    all.push_back({0, {.mass = 0.5 + 0.4 * at, .error = 0.1}, 0.6 + 0.3 * at});
    all.push_back({1, {.mass = 1, .error = 0.001}, 0.99});
  }
  return all;
}

TEST(SignalFit, MovesWhatIsExpectedAsOtherContextsDid) {
  const auto fit = SignalFit::of(samples(40));
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit->shift(0, {.mass = 0.7, .error = 0.1}), 0, 1e-9) << "like the mean";
  EXPECT_NEAR(fit->shift(0, {.mass = 0.9, .error = 0.1}), 0.15, 0.05);
  EXPECT_NEAR(fit->shift(0, {.mass = 0.5, .error = 0.1}), -0.15, 0.05);
  EXPECT_EQ(fit->shift(1, {.mass = 0.5, .error = 1}), 0) << "contexts do not differ there";
  EXPECT_EQ(fit->shift(7, {.mass = 0.5, .error = 1}), 0) << "never measured";
}

TEST(SignalFit, FewContextsMoveLittle) {
  const double few = SignalFit::of(samples(4))->shift(0, {.mass = 0.9, .error = 0.1});
  const double many = SignalFit::of(samples(40))->shift(0, {.mass = 0.9, .error = 0.1});
  EXPECT_GT(few, 0);
  EXPECT_LT(few, many);
  EXPECT_FALSE(SignalFit::of(samples(2)));
  EXPECT_FALSE(SignalFit::of({}));
}

TEST(SignalFit, WhatLiesFarOutIsNotExtrapolated) {
  const auto fit = SignalFit::of(samples(40));
  const double far = fit->shift(0, {.mass = 1e9, .error = 0});
  EXPECT_TRUE(std::isfinite(far));
  EXPECT_LT(far, 0.5);
}

}  // namespace
}  // namespace shale
