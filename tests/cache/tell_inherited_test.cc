// When the metadata store is told what runs inherited that were computed behind lossy forms.
#include <gtest/gtest.h>

#include "metadata/sqlite.h"
#include "support/cache_fixture.h"

namespace shale {
namespace {

class TellInheritedTest : public testing::CacheTest {
 protected:
  TellInheritedTest() {
    std::vector<StoreTier> tiers(1);
    tiers[0].tier = make_memory_tier(1 << 20, time_);
    cache_ =
        Cache::open({}, {.hash = kModel, .model = "test"}, *pool_, std::move(tiers), metadata_store(), time_).value();
    other_ = metadata_store();
  }
  ~TellInheritedTest() override { cache_.reset(); }  // before its clock

  std::unique_ptr<MetadataStore> metadata_store() const {
    return MetadataStore::open(folder_.path() / "catalogue.sqlite", kModel).value();
  }

  Hash128 store_behind_lossy(int seed) {
    NewRun run{.tokens = tokens_of(seed, 16), .lossy_from = 0, .inherited = 0.9};
    run.kind = ContextKind::kCode;
    Sequence sequence(*pool_);
    compute(run.tokens, run.tokens.size(), sequence);
    sequence.mark_lossy();
    return cache_->store(std::move(run), sequence);
  }

  std::size_t told(std::span<const Hash128> runs) {
    EXPECT_TRUE(other_->refresh());
    return static_cast<std::size_t>(
        std::ranges::count_if(runs, [&](const Hash128& run) { return other_->inherited(run).has_value(); }));
  }

  static constexpr Hash128 kModel{7, 7};
  VirtualClock time_;
  std::unique_ptr<MetadataStore> other_;
};

TEST_F(TellInheritedTest, ItIsNoReasonForOthersToReadAllAgainThatWasLearned) {
  const Hash128 run = store_behind_lossy(1);
  cache_->work(executor_);
  EXPECT_FALSE(other_->refresh().value_or(true));
  EXPECT_EQ(other_->inherited(run), 0.9);
  EXPECT_EQ(other_->prefix(run)->accesses, 1u);
  cache_.reset();
  EXPECT_TRUE(other_->refresh().value_or(false)) << "of what kind it is";
  EXPECT_EQ(other_->kind(run), ContextKind::kCode);
  EXPECT_EQ(other_->prefix(run)->accesses, 1u) << "told once";
}

TEST_F(TellInheritedTest, AFewAreToldAtOnceAndTheOthersNext) {
  std::vector<Hash128> runs;
  for (int seed = 0; seed < 100; ++seed) runs.push_back(store_behind_lossy(seed));
  cache_->work(executor_);
  EXPECT_EQ(told(runs), 64u);
  cache_->work(executor_);
  EXPECT_EQ(told(runs), 100u);
  runs.push_back(store_behind_lossy(100));
  cache_->work(executor_);
  EXPECT_EQ(told(runs), 100u);
  time_.advance(5);
  cache_->work(executor_);
  EXPECT_EQ(told(runs), 101u);
}

TEST_F(TellInheritedTest, WhatCannotBeToldIsTriedAgainLessAndLessOften) {
  const Hash128 run = store_behind_lossy(1);
  const auto works_after = [&](double seconds) {
    time_.advance(seconds);
    cache_->work(executor_);
    return told({&run, 1}) == 1;
  };
  {
    const auto another = SqlDatabase::open(folder_.path() / "catalogue.sqlite", 1000).value();
    ASSERT_TRUE(another.execute("BEGIN IMMEDIATE"));
    EXPECT_FALSE(works_after(0));
    EXPECT_FALSE(works_after(5));
  }
  EXPECT_FALSE(works_after(5));
  EXPECT_TRUE(works_after(5));
}

}  // namespace
}  // namespace shale
