// What one process leaves in the metadata store for the next.
#include <gtest/gtest.h>

#include <atomic>

#include "support/cache_fixture.h"

namespace shale {
namespace {

using testing::CacheTest;
using testing::Tokens;

TEST_F(CacheTest, ProcessesAddTheirAccessesToOneAnothers) {
  const Tokens tokens = tokens_of(6, 200);
  const auto use = [&](Cache& cache, int times) {
    for (int i = 0; i < times; ++i) {
      Sequence sequence(*pool_);
      EXPECT_EQ(cache.retrieve(asked(tokens), {}, sequence).tokens(), 192u);
    }
  };
  open();
  const Hash128 run = store(tokens);
  drain();
  auto first = std::move(cache_);
  open();
  use(*first, 2);
  use(*cache_, 3);
  cache_.reset();
  first.reset();
  const auto known = MetadataStore::open(folder_.path() / "catalogue.sqlite", {7, 7}).value()->prefix(run);
  ASSERT_TRUE(known);
  EXPECT_EQ(known->accesses, 1u + 2u + 3u);
  EXPECT_NEAR(known->frequency, 6, 0.1);
  EXPECT_EQ(known->label, "a document") << "of who stored it, whoever used it last";
  EXPECT_EQ(known->recompute_s, 5);
}

TEST_F(CacheTest, HowLongARunIsIsKnownToProcessesThatMerelyUsedIt) {
  open();
  const Method method{.scorer = "knorm", .quantizer = "none"};
  for (std::uint64_t other = 1; other <= kPriorPrefixesMin; ++other) {
    ASSERT_TRUE(cache_->metadata_store()->record_quality(
        {.key = {other, other}, .method = method, .keep = 0.5, .quality = 1, .kl = 0, .questions = 2}));
  }
  const Tokens tokens = tokens_of(8, 112);
  Sequence computed(*pool_);
  compute(tokens, tokens.size(), computed);
  const Hash128 run = cache_->store({.tokens = tokens, .recompute_s = 5, .kind = ContextKind::kProse}, computed);
  drain();
  for (int process = 0; process < 2; ++process) {
    open();
    EXPECT_EQ(cache_->metadata_store()->prefix(run).value().tokens, 112u);
    EXPECT_FALSE(cache_->metadata_store()->quality_for(run, method, 0.5)) << "others say nothing of so short a run";
    Sequence sequence(*pool_);
    EXPECT_EQ(fetch(asked(tokens), sequence), 112u);
  }
}

TEST_F(CacheTest, WhatThingsCostIsRecordedForTheNextProcess) {
  open();
  const Tokens tokens = tokens_of(6, 200);
  store(tokens);
  drain();
  open();
  Sequence sequence(*pool_);
  EXPECT_EQ(fetch(asked(tokens), sequence), 192u);
  sequence.clear();
  cache_.reset();
  auto metadata_store = MetadataStore::open(folder_.path() / "catalogue.sqlite", {7, 7}).value();
  const auto delay = metadata_store->delay("disk", "");
  ASSERT_TRUE(delay);
  EXPECT_GT(delay->samples, 0u);
  EXPECT_GT(metadata_store->decode_bytes_per_s("none").value_or(0), 0);

  ASSERT_TRUE(metadata_store->record_delay("disk", "", {0.5, 1.25e6, 1.5e6, 9}));
  ASSERT_TRUE(metadata_store->record_decode("int8", 3e6));
  open();
  EXPECT_EQ(cache_->tiers()[1]->speed().read_bytes_per_s, 1.25e6) << "a manifest tells nothing of it";
  EXPECT_EQ(cache_->costs().decode_s("int8", 3000000), 1);
}

// Goes on whenever somebody looks at it: nothing takes no time.
class TickingClock final : public Clock {
 public:
  double now_s() const override { return now_s_.fetch_add(1e-3); }
  void sleep_until_s(double time_s) const override {
    while (now_s() < time_s) continue;
  }
  void advance(double seconds) { now_s_ += seconds; }

 private:
  mutable std::atomic<double> now_s_ = 0;
};

// On a disk of which everything was measured long ago.
class OldSpeedsTest : public CacheTest {
 protected:
  static constexpr DelayRecord kMeasured{0.5, 1.25e6, 1.5e6, 9};

  void SetUp() override {
    open();
    store(tokens_);
    drain();
    cache_.reset();
    ASSERT_TRUE(metadata_store().record_delay("disk", "", kMeasured));
    StoreTier disk = disk_tier();
    disk.tier = make_disk_tier({.folder = disk.folder, .several_writers = true}, time_).value();
    cache_ = open_over(4096, std::move(disk), {});  // memory has room for nothing
    ASSERT_EQ(cache_->tiers()[1]->speed().write_bytes_per_s, kMeasured.write_bytes_per_s);
    time_.advance(3600);
  }
  MetadataStore& metadata_store() {
    metadata_store_ = MetadataStore::open(folder_.path() / "catalogue.sqlite", {7, 7}).value();
    return *metadata_store_;
  }
  DelayRecord recorded() {
    cache_.reset();
    return metadata_store().delay("disk", "").value();
  }

  const Tokens tokens_ = tokens_of(6, 200);
  TickingClock time_;
  std::unique_ptr<MetadataStore> metadata_store_;
};

TEST_F(OldSpeedsTest, WhoMerelyReadsSaysNothingOfWriting) {
  Sequence sequence(*pool_);
  EXPECT_EQ(fetch(asked(tokens_), sequence), 192u);
  sequence.clear();
  const DelayRecord now = recorded();
  EXPECT_NE(now.read_bytes_per_s, kMeasured.read_bytes_per_s);
  EXPECT_EQ(now.write_bytes_per_s, kMeasured.write_bytes_per_s);
}

TEST_F(OldSpeedsTest, WhoMerelyWritesSaysNothingOfReading) {
  store(tokens_of(7, 200));
  drain();
  const DelayRecord now = recorded();
  EXPECT_EQ(now.latency_s, kMeasured.latency_s);
  EXPECT_EQ(now.read_bytes_per_s, kMeasured.read_bytes_per_s);
  EXPECT_EQ(now.samples, kMeasured.samples);
  EXPECT_NE(now.write_bytes_per_s, kMeasured.write_bytes_per_s);
}

// They tell of the latency alone, as manifests do.
TEST_F(OldSpeedsTest, FewBytesSayNothingOfBandwidths) {
  const Tokens few = tokens_of(8, 48);
  store(few);
  drain();
  Sequence sequence(*pool_);
  EXPECT_EQ(fetch(asked(few), sequence), 48u);
  sequence.clear();
  const DelayRecord now = recorded();
  EXPECT_NE(now.latency_s, kMeasured.latency_s);
  EXPECT_EQ(now.read_bytes_per_s, kMeasured.read_bytes_per_s);
  EXPECT_EQ(now.write_bytes_per_s, kMeasured.write_bytes_per_s);
}

TEST_F(OldSpeedsTest, WhoDoesNeitherSaysNothing) {
  const DelayRecord now = recorded();
  EXPECT_EQ(now.read_bytes_per_s, kMeasured.read_bytes_per_s);
  EXPECT_EQ(now.write_bytes_per_s, kMeasured.write_bytes_per_s);
}

TEST_F(CacheTest, WhatNobodyMeasuredIsNotExpected) {
  open(4096);  // memory has room for nothing
  const double read_bytes_per_s = cache_->tiers()[1]->speed().read_bytes_per_s;
  const Tokens few = tokens_of(8, 48);
  store(few);
  drain();
  Sequence sequence(*pool_);
  EXPECT_EQ(fetch(asked(few), sequence), 48u);
  sequence.clear();
  cache_.reset();
  auto metadata_store = MetadataStore::open(folder_.path() / "catalogue.sqlite", {7, 7}).value();
  DelayRecord record = metadata_store->delay("disk", "").value();
  EXPECT_GT(record.samples, 0u);
  EXPECT_EQ(record.read_bytes_per_s, 0);
  EXPECT_EQ(record.write_bytes_per_s, 0);

  record = {.latency_s = 0.25, .read_bytes_per_s = 0, .write_bytes_per_s = 1.5e6, .samples = 0};
  ASSERT_TRUE(metadata_store->record_delay("disk", "", record));
  open(4096);
  const TierSpeed expected = cache_->tiers()[1]->speed();
  EXPECT_NE(expected.latency_s, record.latency_s);
  EXPECT_EQ(expected.read_bytes_per_s, read_bytes_per_s);
  EXPECT_EQ(expected.write_bytes_per_s, 1.5e6);
}

// A server records what it has learned before it stores what is left, and again when that is done.
TEST_F(CacheTest, WhatIsOldIsForgottenOnce) {
  open();
  const Hash128 old{7, 1}, later{7, 2};
  const auto ask = [&](const Hash128& key, std::size_t newer) {
    EXPECT_TRUE(cache_->metadata_store()->together([&]() -> Status {
      SHALE_TRY(cache_->metadata_store()->record_question(key, {"why?", false}));
      for (std::uint64_t i = 0; i < newer; ++i) {
        SHALE_TRY(cache_->metadata_store()->record_question({key.low + 7, i}, {"why?", false}));
      }
      return {};
    }));
  };
  ask(old, MetadataStore::kUnusedQuestionsMax);
  cache_->record_learned();
  EXPECT_TRUE(cache_->metadata_store()->questions(old)->empty());
  ask(later, MetadataStore::kUnusedQuestionsMax);
  cache_.reset();
  const auto metadata_store = MetadataStore::open(folder_.path() / "catalogue.sqlite", {7, 7}).value();
  EXPECT_EQ(metadata_store->questions(later)->size(), 1u);
}

}  // namespace
}  // namespace shale
