// A tier that stops answering, as a mount does whose server is away: it holds up what waits for it, and nothing else.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/placed_store.h"
#include "tier/faults.h"

namespace shale::testing {
namespace {

constexpr int kSmall = 100;               // chains of 16 blocks
constexpr std::uint32_t kLong = 18 * 64;  // blocks of a long chain: as large as 72 small ones
constexpr std::uint32_t kDear = 4 * 64;
constexpr double kSilentS = 60;

// Small chains that lie on the second tier and fill it, and a long one that fills the first, above one with room for
// everything. No time but a test's own.
class StoreSilenceTest : public StorePlacementTest {
 protected:
  void SetUp() override {
    const std::uint64_t small = small_bytes();
    StoreTier remote = {.tier = make_memory_tier(kUnlimited, time_, "remote")};
    remote.tier = make_faulty_tier(std::move(remote.tier), FaultFile::open(faults()).value(), time_);
    remote_ = remote.tier.get();
    StoreOptions options = small_options();
    options.threads = 0;
    StoreTier disk = {.tier = make_memory_tier(kSmall * small, time_, "disk")};
    auto tiers = tiers_of(memory_tier(time_, kSmall * small), std::move(disk), std::move(remote));
    store_ = Store::open(options, std::move(tiers), time_).value();

    for (int c = 0; c < kSmall; ++c) ASSERT_TRUE(save_all(*store_, small_chain(c), of("ann")));
    for (int c = 0; c < 2; ++c) ASSERT_TRUE(save_all(*store_, long_chain(c)));
    ASSERT_TRUE(store_->flush());
  }

  void TearDown() override {
    std::filesystem::remove(faults());
    store_.reset();
  }

  std::filesystem::path faults() const { return folder_.path() / "faults"; }
  static std::vector<BlockKey> small_chain(int number) { return chain_of(1000 * (number + 1), 16); }
  static std::vector<BlockKey> long_chain(int number) { return chain_of(1'000'000 * (number + 1), kLong); }
  static StoreHints of(std::string tenant, double recompute_s = 0) {
    StoreHints hints;
    hints.tenant = std::move(tenant);
    hints.recompute_s = recompute_s;
    return hints;
  }
  static std::vector<BlockKey> dear_chain(int number) { return chain_of(1'000'000 * (number + 1), kDear); }
  // Worth more than all before it.
  bool save_dear(int number) { return save(dear_chain(number), of({}, 1000 * (number + 1))); }
  bool save(std::span<const BlockKey> keys, StoreHints hints = {}) {
    const Kv kv(keys);
    const auto saving = store_->save(keys, kv.readable(), std::move(hints)).value();
    for (int i = 0; i < 100 && !saving->done(); ++i) work(0.5);
    return saving->done() && saving->wait();
  }
  std::uint64_t small_bytes() {
    const auto store = open(tiers_of(memory_tier(time_)));
    EXPECT_TRUE(save_all(*store, small_chain(0)));
    return store->stats().tiers[0].bytes;
  }
  void work(double seconds) {
    for (const double until_s = time_.now_s() + seconds; time_.now_s() < until_s; time_.advance(0.5)) {
      for (int works = 0; works < 100 && store_->work(executor_, 0); ++works) continue;
    }
  }
  std::uint64_t bytes_of(const std::string& tenant) const {
    for (const StoreTenantStats& each : store_->stats().tenants) {
      if (each.tenant == tenant) return each.bytes;
    }
    return 0;
  }

  VirtualClock time_;
  InlineExecutor executor_;
  const Tier* remote_ = nullptr;
  std::unique_ptr<Store> store_;
};

// As many moves as may be in flight hang there before anybody knows that it is silent.
TEST_F(StoreSilenceTest, WhatItHoldsUpHoldsUpNoOther) {
  std::ofstream(faults()) << "remote hang\n";
  ASSERT_TRUE(save(long_chain(2)));
  work(kSilentS);
  ASSERT_TRUE(remote_->silent());
  ASSERT_GE(store_->stats().moves_left, 64u);
  const auto written = store_->stats().tiers[2].bytes;

  for (int c = 0; c < 3; ++c) ASSERT_TRUE(save(small_chain(kSmall + c), of("bob", 1000)));
  const std::uint64_t one_of_bob = bytes_of("bob") / 3;
  store_->set_quota("bob", one_of_bob);
  work(kSilentS);
  EXPECT_LE(bytes_of("bob"), one_of_bob) << "bounds are kept";

  for (int c = 3; c < 5; ++c) ASSERT_TRUE(save_dear(c));
  work(kSilentS);
  for (int c = 3; c < 5; ++c) EXPECT_EQ(store_->lookup(dear_chain(c), kAny).blocks, kDear);
  EXPECT_EQ(store_->stats().tiers[2].bytes, written);

  std::filesystem::remove(faults());
  work(kSilentS);
  EXPECT_EQ(store_->stats().moves_left, 0u);
  EXPECT_GT(store_->stats().tiers[2].bytes, written) << "what was on its way has arrived";
  expect_sound(*store_);
}

TEST_F(StoreSilenceTest, NothingElseIsSentThere) {
  std::ofstream(faults()) << "remote hang\n";
  ASSERT_TRUE(save(small_chain(kSmall), of("ann", 1000)));
  work(kSilentS);
  ASSERT_TRUE(remote_->silent());
  const TierQueue queued = remote_->writes_queued();
  for (int c = 2; c < 6; ++c) ASSERT_TRUE(save_dear(c));
  work(kSilentS);
  EXPECT_EQ(remote_->writes_queued().operations, queued.operations);
  EXPECT_EQ(remote_->reads_queued().operations, 0u);
  std::filesystem::remove(faults());
  work(1);
  for (int c = 6; c < 10; ++c) ASSERT_TRUE(save_dear(c));
  work(kSilentS);
  EXPECT_FALSE(remote_->silent());
  EXPECT_EQ(remote_->writes_queued().operations, 0u);
  EXPECT_EQ(store_->lookup(dear_chain(6), kAny).blocks, kDear) << "it takes what sinks again";
  expect_sound(*store_);
}

// Chains that would rise from tiers that are the slower the lower they are.
class StoreSilentBelowTest : public StorePlacementTest {
 protected:
  static constexpr std::uint64_t kOne = 200 << 10;  // an exact chain takes about as much

  void open(StoreOptions options, std::uint64_t memory_bytes, std::uint64_t disk_bytes = 0) {
    options.threads = 0;
    options.placement.on_event = [this](const PlacementEvent& event) {
      updates_ += event.kind == PlacementEvent::Kind::kUpdate;
    };
    const auto throttled = [this](std::unique_ptr<Tier> tier, const char* throttle) {
      return make_throttled_tier(std::move(tier), parse_throttle(throttle).value(), time_);
    };
    std::vector<StoreTier> tiers = tiers_of(memory_tier(time_, memory_bytes));
    if (disk_bytes > 0) {
      tiers.push_back({.tier = throttled(make_memory_tier(disk_bytes, time_, "disk"), "20MB/s,5ms")});
    }
    auto remote = throttled(make_memory_tier(kUnlimited, time_, "remote"), "10MB/s,10ms");
    tiers.push_back({.tier = make_faulty_tier(std::move(remote), FaultFile::open(faults()).value(), time_)});
    remote_ = tiers.back().tier.get();
    store_ = Store::open(std::move(options), std::move(tiers), time_).value();
  }
  void TearDown() override {
    std::filesystem::remove(faults());
    store_.reset();
  }

  std::filesystem::path faults() const { return folder_.path() / "faults"; }
  void hang() { std::ofstream(faults()) << "remote hang\n"; }
  std::uint32_t tier_of(int chain, const StoreNeeds& needs = {}) const {
    return store_->lookup(chain_number(chain), needs).tier;
  }
  // Of those saved.
  int chain_on(std::uint32_t tier) const {
    int chain = 0;
    while (found(*store_, chain + 1) == found(*store_, chain) || tier_of(chain) != tier) ++chain;
    return chain;
  }
  // From a tier that answers.
  void remove(const std::vector<BlockKey>& keys) {
    for (const StoreExtent& extent : store_->inspect(keys)) ASSERT_EQ(extent.tiers, std::vector<std::uint32_t>{0});
    EXPECT_EQ(store_->remove(keys), keys.size());
  }
  void work(double seconds) {
    for (const double until_s = time_.now_s() + seconds; time_.now_s() < until_s; time_.advance(0.1)) {
      for (int works = 0; works < 100 && store_->work(executor_, 0); ++works) continue;
    }
  }

  VirtualClock time_;
  InlineExecutor executor_;
  const Tier* remote_ = nullptr;
  std::uint64_t updates_ = 0;  // of what the placement knows of a chain
  std::unique_ptr<Store> store_;
};

// It is looked at again once the tier answers, whether anybody asks for anything or not.
TEST_F(StoreSilentBelowTest, NothingIsMadeOfWhatLiesThere) {
  open(with_methods({"int8"}), kOne + kOne * 3 / 4);
  const std::vector<BlockKey> large = chain_number(0), small = chain_of(1'000'000, 32);
  for (const auto* keys : {&large, &small}) {
    ASSERT_TRUE(save_all(*store_, *keys));
    ASSERT_EQ(store_->pin(*keys), keys->size()) << "it is not compressed";
    for (int use = 0; use < 100; ++use) store_->touch(*keys);
  }
  save_chains(*store_, 2, {}, 1);
  ASSERT_EQ(tier_of(1), 1u);
  store_->unpin(small);
  remove(small);
  for (int use = 0; use < 10; ++use) store_->touch(chain_number(1));
  work(1);
  ASSERT_EQ(tier_of(1, kAny), 0u) << "compressed";
  ASSERT_EQ(tier_of(1), 1u);

  hang();
  Kv kv(chain_number(1).size());
  const auto load = store_->load(chain_number(1), kv.view()).value();
  work(kSilentS);
  ASSERT_TRUE(remote_->silent());
  store_->unpin(large);
  remove(large);
  work(kSilentS);
  updates_ = 0;
  work(kSilentS);
  EXPECT_EQ(updates_, 0u) << "though there is room above, nothing is tried in vain";

  std::filesystem::remove(faults());
  ASSERT_TRUE(load->wait());
  work(kSilentS);
  EXPECT_EQ(tier_of(1), 0u);
  expect_sound(*store_);
}

TEST_F(StoreSilentBelowTest, WhatHangsTakesNoRoomOfOtherMoves) {
  StoreOptions options = small_options();
  options.staging_bytes = kOne * 3 / 2;
  open(std::move(options), 2 * kOne + kOne / 2, kOne + kOne / 2);
  save_chains(*store_, 4);
  const int hangs = chain_on(2), other = chain_on(1);
  store_->in_pool(chain_number(other), static_cast<std::uint32_t>(chain_number(other).size()), PoolNews::kHeld);
  for (int i = 0; i < 2; ++i) remove(chain_number(chain_on(0)));
  hang();
  work(kSilentS);
  ASSERT_TRUE(remote_->silent());
  ASSERT_EQ(remote_->writes_queued().operations, 0u) << "what hangs rises";

  store_->in_pool(chain_number(other), 0, PoolNews::kEvicted);
  work(kSilentS);
  EXPECT_EQ(tier_of(other), 0u);
  EXPECT_EQ(tier_of(hangs), 2u);
  std::filesystem::remove(faults());
  work(kSilentS);
  EXPECT_EQ(tier_of(hangs), 0u);
  expect_sound(*store_);
}

}  // namespace
}  // namespace shale::testing
