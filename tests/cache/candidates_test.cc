#include "cache/candidates.h"

#include <gtest/gtest.h>

#include "tier/tiers.h"

namespace shale {
namespace {

constexpr PageShape kShape{.layers = 3, .kv_heads = 2, .head_dim = 32, .page_tokens = 16};

class CandidatesTest : public ::testing::Test {
 protected:
  CandidatesTest() {
    for (int i = 0; i < 3; ++i) {
      tiers_.push_back(make_memory_tier(1 << 20, clock_));
      tiers_.back()->expect({1e-3 * (i + 1), 1e9 / (i + 1), 1e9, 0});
    }
    entry_.tokens.resize(300);
    entry_.recompute_s = 5;
    entry_.frequency.access(0);
  }
  Candidates create(Candidates::QualityOf quality) {
    return Candidates::create({"knorm", "int8"}, kShape, tiers_, costs_, std::move(quality)).value();
  }

  VirtualClock clock_;
  std::vector<std::unique_ptr<Tier>> tiers_;
  CostModel costs_;
  Entry entry_;
};

// Planning asks for every entry's offer: what does not depend on the tier is found out once.
TEST_F(CandidatesTest, AnOfferAsksForEachQualityOnceAndSetsItOnEveryTier) {
  int asked = 0;
  const Candidates candidates = create([&](const EntryKey&, const Method&, double keep) {
    ++asked;
    return std::optional(keep);
  });
  const PlacedEntry offer = candidates.offer(entry_, {Method::full(), 1, 1}, true, 0);
  EXPECT_EQ(asked, 5 + 1);
  ASSERT_EQ(offer.candidates.size(), 3 * (1 + 5 + 1) + 1u);
  EXPECT_EQ(candidates.configuration(offer.candidates[offer.current]), (Configuration{Method::full(), 1, 1}));
  for (const Candidate& candidate : offer.candidates) {
    if (candidate.tier == kDropped) continue;
    const Method& method = candidates.methods()[candidate.method];
    EXPECT_EQ(candidate.bytes, candidates.bytes(method, candidate.keep, 300));
    EXPECT_DOUBLE_EQ(candidate.ttft_s, candidates.load_s(method, candidate.keep, 300, candidate.tier));
    EXPECT_EQ(candidate.quality, candidate.keep);
  }
}

TEST_F(CandidatesTest, WhatNobodyMeasuredIsOfferedOnlyWhereItIs) {
  const Candidates candidates = create([](auto&&...) { return std::optional<double>(); });
  const Configuration forced{Method{.scorer = "knorm", .quantizer = "none"}, 0.5, 1};
  const PlacedEntry offer = candidates.offer(entry_, forced, true, 0);
  EXPECT_EQ(offer.candidates.size(), 3 + 1 + 1u) << "full on each tier, the forced one, and none";
  EXPECT_EQ(candidates.configuration(offer.candidates[offer.current]), forced);
  EXPECT_EQ(offer.candidates[offer.current].quality, 0);
}

}  // namespace
}  // namespace shale
