// What the planner makes of a cache: runs compressed where room is short, by what was measured of them.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "support/cache_fixture.h"

namespace shale {
namespace {

using testing::CacheTest;
using testing::Tokens;

const std::uint64_t kRunBytes = 160 * PageShape{.layers = 3, .kv_heads = 2, .head_dim = 32}.token_bytes();

class PlacedRunsTest : public CacheTest {
 protected:
  void measured(const Hash128& run, const Method& method, double keep, double agreement) {
    ASSERT_TRUE(cache_->metadata_store()->record_quality(
        {.key = run, .method = method, .keep = keep, .quality = agreement, .kl = 0, .questions = 2}));
  }
  bool in_memory(const Tokens& tokens) {
    const auto extents = stored(tokens);
    return std::ranges::any_of(extents, [](const StoreExtent& extent) { return extent.tiers.front() == 0; });
  }
};

TEST_F(PlacedRunsTest, AProfiledRunIsCompressedWhereRoomIsShort) {
  CacheOptions options;
  options.methods = {"knorm"};
  open(2 * kRunBytes, kUnlimited, options);
  for (int i = 0; i < 4; ++i) {
    const Hash128 run = store(tokens_of(200 + i, 150));
    for (const double keep : kKeepGrid) measured(run, {.scorer = "knorm", .quantizer = "none"}, keep, 1);
    drain();
  }
  for (int i = 0; i < 4; ++i) {
    Sequence sequence(*pool_);
    fetch(asked(tokens_of(200 + i, 150)), sequence);
    drain();
  }
  std::size_t near = 0;
  for (int i = 0; i < 4; ++i) near += in_memory(tokens_of(200 + i, 150));
  EXPECT_GE(near, 3u) << "where two whole ones fit";
  EXPECT_LE(cache_->tiers()[0]->used_bytes(), 2 * kRunBytes);
}

class FixedFormTest : public PlacedRunsTest {
 protected:
  void open_fixed(const std::string& planner, std::uint64_t memory_bytes) {
    CacheOptions options;
    options.planner = planner;
    open(memory_bytes, kUnlimited, options);
  }
};

TEST_F(FixedFormTest, IsAllThatIsStored) {
  open_fixed("fixed:knorm+int8@0.5", 2 * kRunBytes);
  EXPECT_FALSE(cache_->weighs_quality());
  for (int i = 0; i < 4; ++i) {
    store(tokens_of(400 + i, 150));
    drain();
  }
  for (int i = 0; i < 4; ++i) {
    const Tokens tokens = tokens_of(400 + i, 150);
    EXPECT_TRUE(in_memory(tokens)) << "a quarter of the bytes";
    for (const StoreExtent& extent : stored(tokens)) {
      EXPECT_EQ(extent.method.text(), "knorm+int8");
      EXPECT_NEAR(extent.keep, 0.5, 1e-6);
    }
    Sequence sequence(*pool_), exact(*pool_);
    EXPECT_EQ(fetch(asked(tokens), sequence), 144u) << "asked or not";
    EXPECT_TRUE(sequence.lossy());
    RequestPolicy policy;
    policy.exact = true;
    EXPECT_EQ(fetch(asked(tokens), exact, policy), 0u);
  }
}

// Their first blocks are stored once.
TEST_F(FixedFormTest, ServesRunsThatBeginAlike) {
  open_fixed("fixed:int8", 4 * kRunBytes);
  const Tokens first = tokens_of(410, 150);
  Tokens second = tokens_of(411, 150);
  std::ranges::copy(std::span(first).first(32), second.begin());
  for (const Tokens& tokens : {first, second}) {
    store(tokens);
    drain();
  }
  for (const Tokens& tokens : {first, second}) {
    Sequence sequence(*pool_);
    EXPECT_EQ(fetch(asked(tokens), sequence), 144u);
    EXPECT_TRUE(sequence.lossy());
  }
  Tokens third = tokens_of(412, 150);
  std::ranges::copy(std::span(first).first(32), third.begin());
  Sequence sequence(*pool_);
  EXPECT_EQ(fetch(asked(third), sequence), 0u) << "what is computed on them would be lossy";
}

// Nobody measured it, and nobody else asked for it.
TEST_F(FixedFormTest, AnotherFormThatARequestNamedIsItsOwn) {
  open_fixed("fixed:int8", 4 * kRunBytes);
  const Tokens tokens = tokens_of(450, 150);
  store(tokens, 0, Method{.scorer = "knorm", .quantizer = "none"}, 0.1);
  drain();
  ASSERT_EQ(stored(tokens).size(), 2u);
  Sequence sequence(*pool_);
  Retrieval retrieval = cache_->retrieve(asked(tokens), {}, sequence);
  ASSERT_TRUE(retrieval.ensure_all(executor_));
  ASSERT_EQ(retrieval.sources().size(), 1u);
  EXPECT_EQ(retrieval.sources()[0].method.text(), "int8");
}

TEST_F(FixedFormTest, IsNotLoadedWhereItsLossIsWorthMoreThanComputing) {
  open_fixed("fixed:knorm+int8@0.5", 4 * kRunBytes);
  const Tokens tokens = tokens_of(460, 150);
  const Hash128 run = store(tokens);
  drain();
  measured(run, {.scorer = "knorm", .quantizer = "int8"}, 0.5, 0.5);
  for (const double alpha : {1.0, 100.0}) {
    CacheOptions options;
    options.alpha = alpha;
    open(4 * kRunBytes, kUnlimited, options);
    drain();
    for (const char* where : {"of a tier", "of the pool"}) {
      Sequence sequence(*pool_);
      EXPECT_EQ(fetch(asked(tokens), sequence), alpha == 1 ? 144u : 0u) << where << ": half of the quality, or 15 s";
    }
  }
}

TEST_F(FixedFormTest, WhatWasUsedLastStaysNear) {
  open_fixed("fixed:int8", kRunBytes * 5 / 4);  // two of them, and not three
  const auto used = [&](int i) {
    Sequence sequence(*pool_);
    fetch(asked(tokens_of(500 + i, 150)), sequence);
    drain();
  };
  for (int i = 0; i < 2; ++i) {
    store(tokens_of(500 + i, 150));
    drain();
  }
  used(0);
  store(tokens_of(502, 150));
  drain();
  EXPECT_TRUE(in_memory(tokens_of(500, 150)));
  EXPECT_FALSE(in_memory(tokens_of(501, 150)));
  EXPECT_FALSE(stored(tokens_of(501, 150)).empty()) << "lower";
}

TEST_F(FixedFormTest, WhatCannotBeFixedIsRefused) {
  for (const char* planner : {"fixed", "fixed:triattention", "fixed:cachegen"}) {
    CacheOptions options;
    options.planner = planner;
    std::vector<StoreTier> tiers(1);
    tiers[0].tier = make_memory_tier(1 << 20, clock_);
    const auto cache =
        Cache::open(options, {.hash = {7, 7}, .model = "test"}, *pool_, std::move(tiers), nullptr, clock_);
    ASSERT_FALSE(cache) << planner;
    EXPECT_EQ(cache.error().code, ErrorCode::kInvalidArgument);
  }
}

// A run of four of the store's chunks, of which requests read a quarter.
class ImpressTest : public FixedFormTest {
 protected:
  static constexpr std::uint32_t kTokens = 1024;

  void SetUp() override {
    open_fixed("impress@0.25", kTokens / 2 * kShape.token_bytes() + (64 << 10));
    tokens_ = tokens_of(600, kTokens);
    Sequence sequence(*pool_);
    compute(tokens_, kTokens, sequence);
    NewRun run{.tokens = tokens_, .recompute_s = 5};
    AttentionStatistics& seen = run.statistics;
    seen = {.layers = kShape.layers, .query_heads = kShape.kv_heads, .kv_heads = kShape.kv_heads};
    seen.head_dim = kShape.head_dim;
    seen.tokens = kTokens;
    seen.window = 64;
    std::mt19937 random(5);
    seen.queries.resize(std::size_t{kShape.layers} * kShape.kv_heads * seen.window * kShape.head_dim);
    for (float& value : seen.queries) value = static_cast<float>(random() % 100) / 500 - 0.1F;
    cache_->store(std::move(run), sequence);
    drain();
  }

  Tokens tokens_;
};

TEST_F(ImpressTest, ChunksThatHoldMostOfWhatMattersLieNearest) {
  for (const StoreExtent& extent : stored(tokens_)) {
    EXPECT_EQ(extent.blocks, 16u) << "a chunk";
    EXPECT_EQ(extent.keep, 1) << "nothing is thrown away";
  }
  const Problem problem = cache_->store().problem();
  ASSERT_EQ(problem.prefixes.size(), 4u);
  double sum = 0, near_least = 1, far_most = 0;
  std::size_t near = 0;
  for (const PlacedPrefix& prefix : problem.prefixes) {
    sum += prefix.importance;
    const bool is_near = prefix.candidates[prefix.current].tier == 0;
    near += is_near;
    (is_near ? near_least : far_most) =
        is_near ? std::min(near_least, prefix.importance) : std::max(far_most, prefix.importance);
  }
  EXPECT_NEAR(sum / 4, 0.25, 0.02) << "so much is read of the whole run";
  EXPECT_EQ(near, 2u);
  EXPECT_GE(near_least, far_most);
}

TEST_F(ImpressTest, RequestsReadOnlyWhatMattersAndItsNeighbours) {
  Sequence sequence(*pool_);
  Retrieval retrieval = cache_->retrieve(asked(tokens_), {}, sequence);
  ASSERT_TRUE(retrieval.ensure_all(executor_));
  EXPECT_EQ(retrieval.tokens(), kTokens);
  std::uint64_t bytes = 0;
  for (const SourceUsed& source : retrieval.sources()) {
    EXPECT_EQ(source.keep, 0.25);
    bytes += source.bytes;
  }
  EXPECT_LT(bytes, kTokens * kShape.token_bytes() / 3);
  for (std::uint32_t layer = 0; layer < kShape.layers; ++layer) {
    EXPECT_EQ(sequence.table(layer, 0).tokens, kTokens / 4) << "whole chunks of 64";
  }
  EXPECT_EQ(cache_->stats().head_bytes, std::uint64_t{kTokens} * kShape.token_bytes() / 2) << "keys of both heads";
  const Problem problem = cache_->store().problem();
  for (const PlacedPrefix& prefix : problem.prefixes) EXPECT_EQ(prefix.accesses, 2u);
}

TEST_F(ImpressTest, WhoeverAsksForAQualityGetsAllTokens) {
  Sequence half(*pool_);
  EXPECT_EQ(fetch(asked(tokens_), half), kTokens);
  RequestPolicy policy;
  policy.quality_min = 0.9;
  Sequence sequence(*pool_);
  EXPECT_EQ(fetch(asked(tokens_), sequence, policy), kTokens);
  EXPECT_EQ(sequence.table(0, 0).tokens, kTokens);
  policy.exact = true;
  Sequence exact(*pool_);
  EXPECT_EQ(fetch(asked(tokens_), exact, policy), 0u);
}

TEST_F(ImpressTest, WhatMattersIsKnownAgainOnceItWasRead) {
  open_fixed("impress@0.25", kUnlimited);
  drain();
  const auto known = [&] {
    const auto prefixes = cache_->store().problem().prefixes;
    return std::ranges::count_if(prefixes, [](const PlacedPrefix& prefix) { return prefix.importance < 1; });
  };
  EXPECT_EQ(known(), 0) << "by another process, whose manifests are not at hand";
  Sequence sequence(*pool_);
  const std::uint32_t there = fetch(asked(tokens_), sequence);
  ASSERT_GE(there, kTokens / 4) << "what lay in memory alone is gone";
  drain();
  EXPECT_EQ(known(), there / (kTokens / 4));
}

// Nobody profiled what is stored: others were.
class UnprofiledRunsTest : public PlacedRunsTest {
 protected:
  // Opens with room for two runs, stores four, and says how many lie in memory.
  std::size_t near(double prior, double floor) {
    CacheOptions options;
    options.methods = {"knorm"};
    options.quality_floor = floor;
    open(2 * kRunBytes, kUnlimited, options);
    for (std::uint64_t other = 1; other <= kPriorPrefixesMin; ++other) {
      for (const double keep : kKeepGrid)
        measured({other, other}, {.scorer = "knorm", .quantizer = "none"}, keep, prior);
    }
    for (int i = 0; i < 4; ++i) store(tokens_of(300 + i, 150));
    drain();
    for (int i = 0; i < 4; ++i) {
      Sequence sequence(*pool_);
      fetch(asked(tokens_of(300 + i, 150)), sequence);
      drain();
    }
    std::size_t near = 0;
    for (int i = 0; i < 4; ++i) near += in_memory(tokens_of(300 + i, 150));
    return near;
  }
};

TEST_F(UnprofiledRunsTest, AreCompressedByThePrior) { EXPECT_GE(near(1, 0.95), 3u) << "where two whole ones fit"; }

TEST_F(UnprofiledRunsTest, AreCompressedNoFurtherThanTheFloor) {
  EXPECT_LE(near(0.9, 0.95), 2u);
  for (int i = 0; i < 4; ++i) {
    for (const StoreExtent& extent : stored(tokens_of(300 + i, 150))) EXPECT_TRUE(extent.method.is_full());
  }
}

TEST_F(UnprofiledRunsTest, AreServedNoLongerInAFormThatIsBelowTheFloor) {
  EXPECT_GE(near(1, 0.95), 3u);
  const auto lossy = [&](int i) {
    const auto extents = stored(tokens_of(300 + i, 150));
    return std::ranges::any_of(extents, [](const StoreExtent& each) { return !each.method.is_full(); });
  };
  int i = 0;
  while (i < 4 && !lossy(i)) ++i;
  ASSERT_LT(i, 4);
  const Tokens tokens = tokens_of(300 + i, 150);
  const Hash128 run = cache_->run_of(tokens);
  for (const double keep : kKeepGrid) measured(run, {.scorer = "knorm", .quantizer = "none"}, keep, 0.2);
  EXPECT_LT(cache_->metadata_store()->quality_for(run, Method::parse("knorm").value(), 0.1)->expected, 0.95);
  cache_->store().place_again(run);
  drain();
  cache_->evict_until_free(pool_->blocks_total());
  Sequence sequence(*pool_);
  fetch(asked(tokens), sequence);
  EXPECT_FALSE(sequence.lossy());
}

TEST_F(PlacedRunsTest, RandomTrafficKeepsEveryBookInOrder) {
  std::mt19937 random(11);
  open(3 * kRunBytes, 9 * kRunBytes);
  std::vector<Hash128> runs;
  for (int round = 0; round < 150; ++round) {
    const Tokens tokens = tokens_of(static_cast<int>(random() % 14), 120 + random() % 2 * 30);
    switch (random() % 8) {
      case 0:
      case 1:
      case 2:
        runs.push_back(store(tokens));
        break;
      case 3:
        if (!runs.empty()) {
          const double keep = std::array{0.25, 0.5, 1.0}[random() % 3];
          measured(runs[random() % runs.size()], {.scorer = "knorm", .quantizer = "none"}, keep, 0.5 + 0.5 * keep);
        }
        break;
      case 4:
        if (!runs.empty()) cache_->store().remove_run(runs[random() % runs.size()]);
        break;
      case 5:
        if (random() % 4 == 0) {
          drain();
          open(3 * kRunBytes, 9 * kRunBytes);
        }
        break;
      default: {
        Sequence sequence(*pool_);
        Retrieval retrieval = cache_->retrieve(asked(tokens), exact(random() % 2 == 0), sequence);
        if (!retrieval.ensure_all(executor_)) {  // removed meanwhile
          retrieval = cache_->keep_what_came(std::move(retrieval), sequence);
        }
        if (!sequence.lossy()) expect_exact(tokens, sequence);
      }
    }
    for (int i = 0; i < 5; ++i) cache_->work(executor_);
    if (round % 10 == 0) drain();
    ASSERT_TRUE(pool_->check_integrity());
  }
  drain();
  EXPECT_LE(cache_->tiers()[0]->used_bytes(), 3 * kRunBytes);
}

}  // namespace
}  // namespace shale
