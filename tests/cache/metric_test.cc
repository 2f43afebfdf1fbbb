// Caches that measure quality in different metrics on one folder: a number in one is none in the other.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "support/cache_fixture.h"

namespace shale {
namespace {

using testing::CacheTest;
using testing::Tokens;

class AnyTextIsGood final : public AnswerMetric {
 public:
  std::string_view name() const override { return "any"; }
  Result<double> compare(std::string_view, std::string_view) override { return 1.0; }
};

class MetricTest : public CacheTest {
 protected:
  // With nothing in memory, by agreement or in another metric.
  void open_by(bool agreement, const std::string& planner = "shale") {
    CacheOptions options;
    options.planner = planner;
    if (!agreement) options.metric = std::make_shared<AnyTextIsGood>();
    open(64 << 20, kUnlimited, options);
    cache_->evict_until_free(pool_->blocks_total());
  }
  // A form that its saver says is worth 1, and nothing else of these tokens.
  Tokens saved(bool agreement) {
    open_by(agreement, "fixed:knorm+int8@0.5");
    const Tokens tokens = tokens_of(1, 150);
    store(tokens);
    drain();
    return tokens;
  }
  std::uint32_t found(const Tokens& tokens) {
    Sequence sequence(*pool_);
    return fetch(asked(tokens), sequence);
  }
};

TEST_F(MetricTest, WhatASaverSaysHoldsInItsOwnMetric) {
  const Tokens tokens = saved(true);
  open_by(false);
  EXPECT_EQ(found(tokens), 0u) << "nothing is known of it in this metric";
  open_by(true);
  EXPECT_EQ(found(tokens), 144u);
}

TEST_F(MetricTest, OthersAreNotToldOfQualityInAMetricOfItsOwn) {
  const Tokens tokens = saved(false);
  EXPECT_EQ(found(tokens), 144u) << "it is what was asked for here";
  open_by(true);
  EXPECT_EQ(found(tokens), 0u);
}

}  // namespace
}  // namespace shale
