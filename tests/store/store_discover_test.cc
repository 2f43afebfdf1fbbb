// How often a shared tier is asked for what a store does not know.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "store/store_fixture.h"
#include "tier/pending.h"
#include "tier/tier_wrapper.h"

namespace shale::testing {
namespace {

// Counts round trips as a tier behind a network makes them: reads that are started together, and questions for the
// parts of any number of objects, cost one.
class CountingTier final : public TierWrapper {
 public:
  CountingTier(std::unique_ptr<Tier> inner, const Clock& clock) : TierWrapper(std::move(inner), {}, clock) {}

  AskedAtOnce asked_at_once() const override { return asked_at_once_; }
  void set_guesses(std::size_t guesses) { asked_at_once_.guesses = guesses; }
  void hold(bool on) { held_ = on; }
  unsigned trips() const { return questions_ + bursts_; }
  unsigned objects() const { return objects_; }

 private:
  std::shared_ptr<TierRead> read_impl(const BlobId& id, const BlobRange& range, double start_s) override {
    if (!reading_.exchange(true)) ++bursts_;
    auto read = inner().read(id, range);
    while (!read->ready()) std::this_thread::yield();
    auto taken = std::make_shared<PendingRead>(read->first_byte());
    Result<BlobBytes> result = read->take();
    finished_read(start_s, 0, result, range);
    taken->complete(std::move(result), 0);
    return taken;
  }
  std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double start_s) override {
    const std::uint64_t size = bytes->size();
    auto write = inner().write(id, std::move(bytes));
    const Status status = write->wait();
    finished_write(start_s, 0, size, write->created(), status);
    return write;
  }
  Result<std::vector<std::vector<std::uint32_t>>> parts_of_impl(std::span<const Hash128> objects) const override {
    while (held_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++questions_;
    objects_ += static_cast<unsigned>(objects.size());
    reading_ = false;
    return inner().parts_of(objects);
  }

  AskedAtOnce asked_at_once_ = {.objects = 512, .guesses = 512};
  mutable std::atomic<unsigned> questions_ = 0, objects_ = 0, bursts_ = 0;
  mutable std::atomic<bool> reading_ = false;
  std::atomic<bool> held_ = false;
};

class StoreDiscoverTest : public StoreTest {
 protected:
  // On a folder that all stores of a test share.
  std::unique_ptr<Store> open_counted(CountingTier*& tier) {
    auto counting = std::make_unique<CountingTier>(
        make_directory_tier(folder_.path() / "shared", kUnlimited, clock_).value(), clock_);
    tier = counting.get();
    return open(tiers_of(memory_tier(clock_), StoreTier{.tier = std::move(counting), .shared = true}));
  }
  static StoreLookup settled(Store& store, std::span<const BlockKey> keys) {
    StoreLookup found = store.lookup(keys);
    for (int i = 0; i < 4000 && found.pending; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      found = store.lookup(keys);
    }
    EXPECT_FALSE(found.pending);
    return found;
  }

  static constexpr std::uint32_t kBlocks = 512 * kChunkTokens / kBlockTokens;
};

TEST_F(StoreDiscoverTest, UnknownChunksAreAskedForTogether) {
  CountingTier* tier = nullptr;
  const auto store = open_counted(tier);
  EXPECT_EQ(settled(*store, chain_of(1, kBlocks)).blocks, 0u);
  EXPECT_EQ(tier->objects(), 512u);
  EXPECT_EQ(tier->trips(), 1u);
}

TEST_F(StoreDiscoverTest, WhatAnotherSavedIsFoundInThreeRoundTrips) {
  CountingTier *its_tier = nullptr, *tier = nullptr;
  const auto keys = chain_of(1, kBlocks);
  const auto other = open_counted(its_tier);
  ASSERT_TRUE(save_all(*other, std::span(keys).first(kBlocks / 4)));
  ASSERT_TRUE(save_all(*other, keys, {.first_block = kBlocks / 4}));
  ASSERT_TRUE(other->flush());
  const auto store = open_counted(tier);
  EXPECT_EQ(settled(*store, keys).blocks, kBlocks);
  EXPECT_GT(store->stats().discovered_extents, 10u);
  EXPECT_LE(tier->trips(), 3u);
}

TEST_F(StoreDiscoverTest, ManyChainsThatWaitAreAskedForTogether) {
  constexpr int kChains = 300;
  const auto chain = [](int number) { return chain_of(1000 + 10 * number, 4); };
  CountingTier *its_tier = nullptr, *tier = nullptr;
  const auto other = open_counted(its_tier);
  for (int c = 0; c < kChains; c += 2) ASSERT_TRUE(save_all(*other, chain(c)));
  ASSERT_TRUE(other->flush());
  const auto store = open_counted(tier);
  tier->hold(true);
  for (int c = 0; c < kChains; ++c) EXPECT_TRUE(store->lookup(chain(c)).pending);
  tier->hold(false);
  for (int c = 0; c < kChains; ++c) EXPECT_EQ(settled(*store, chain(c)).blocks, c % 2 == 0 ? 4u : 0u) << c;
  EXPECT_LT(tier->trips(), 20u) << "some for those that nobody waited behind, and all others in two";
}

TEST_F(StoreDiscoverTest, ExtentsOfAShortPromptMayBeginAnywhere) {
  CountingTier *its_tier = nullptr, *tier = nullptr;
  const auto keys = chain_of(1, 300);
  const auto other = open_counted(its_tier);
  for (const std::uint32_t end : {57u, 110u, 299u, 300u}) {
    ASSERT_TRUE(save_all(*other, std::span(keys).first(end)));
  }
  ASSERT_TRUE(other->flush());
  const auto store = open_counted(tier);
  EXPECT_EQ(settled(*store, keys).blocks, 300u);
  EXPECT_LE(tier->trips(), 3u);
}

TEST_F(StoreDiscoverTest, WhereGuessesCostFewerObjectsAreAskedFor) {
  CountingTier *its_tier = nullptr, *tier = nullptr;
  const auto keys = chain_of(1, 300);
  const auto other = open_counted(its_tier);
  for (const std::uint32_t end : {57u, 300u}) ASSERT_TRUE(save_all(*other, std::span(keys).first(end)));
  ASSERT_TRUE(other->flush());
  const auto store = open_counted(tier);
  tier->set_guesses(32);
  EXPECT_EQ(settled(*store, keys).blocks, 300u);
  EXPECT_LT(tier->objects(), 150u);
  EXPECT_LE(tier->trips(), 5u);
}

// Answers only once two ask.
class PairingTier final : public TierWrapper {
 public:
  PairingTier(std::unique_ptr<Tier> inner, const Clock& clock) : TierWrapper(std::move(inner), {}, clock) {}
  bool met() const { return asking_ == 2; }

 private:
  std::shared_ptr<TierRead> read_impl(const BlobId& id, const BlobRange& range, double) override {
    return inner().read(id, range);
  }
  std::shared_ptr<TierWrite> write_impl(const BlobId& id, BlobBytes bytes, double) override {
    return inner().write(id, std::move(bytes));
  }
  Result<std::vector<std::vector<std::uint32_t>>> parts_of_impl(std::span<const Hash128> objects) const override {
    ++asking_;
    for (int i = 0; i < 5000 && !met(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return inner().parts_of(objects);
  }
  mutable std::atomic<int> asking_ = 0;
};

TEST_F(StoreDiscoverTest, OneLookUpDoesNotWaitForAnothersRoundTrip) {
  auto tier = std::make_unique<PairingTier>(make_directory_tier(folder_.path(), kUnlimited, clock_).value(), clock_);
  const PairingTier& pairing = *tier;
  const auto store = open(tiers_of(StoreTier{.tier = std::move(tier), .shared = true}));
  const auto one = chain_of(1, 4), other = chain_of(500, 4);
  EXPECT_TRUE(store->lookup(one).pending);
  EXPECT_TRUE(store->lookup(other).pending);
  for (int i = 0; i < 1000 && store->lookup(one).pending; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(pairing.met());
}

}  // namespace
}  // namespace shale::testing
