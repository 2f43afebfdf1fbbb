// Pins against time: leases that are renewed or lapse, and times to live that end meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "store/store_fixture.h"
#include "support/eventually.h"

namespace shale::testing {
namespace {

// The machine's clock, which a test may turn on.
class TurnedClock final : public Clock {
 public:
  double now_s() const override { return real_.now_s() + ahead_s_; }
  void sleep_until_s(double time_s) const override { real_.sleep_until_s(time_s - ahead_s_); }
  void turn(double seconds) { ahead_s_ += seconds; }

 private:
  const RealClock real_;
  std::atomic<double> ahead_s_ = 0;
};

class PinTest : public StoreTest {
 protected:
  std::unique_ptr<Store> open_disk() {
    StoreOptions options = small_options();
    options.wall_clock = [this] { return 1e9 + turned_.now_s() - start_s_; };
    return Store::open(options, tiers_of(disk_tier(folder_.path(), turned_)), turned_).value();
  }
  bool pinned(const Store& store) const {
    const auto extents = store.inspect(keys_);
    return !extents.empty() && extents[0].pinned;
  }
  // One that leads the folder, and another that has pinned what the first has saved.
  void open_two() {
    leader_ = open_disk();
    other_ = open_disk();
    ASSERT_TRUE(save_all(*leader_, keys_));
    ASSERT_TRUE(eventually_beside_others([&] { return other_->pin(keys_) == 16; }));
    ASSERT_TRUE(eventually_beside_others([&] { return pinned(*leader_); }));
  }

  TurnedClock turned_;
  const double start_s_ = turned_.now_s();
  const std::vector<BlockKey> keys_ = chain_of(1, 16);
  std::unique_ptr<Store> leader_, other_;
};

TEST_F(PinTest, HoldsForAsLongAsItsProcessLives) {
  open_two();
  for (int round = 0; round < 5; ++round) {
    turned_.turn(30);
    ASSERT_TRUE(eventually_beside_others([&] { return pinned(*leader_); })) << "it was renewed";
    EXPECT_EQ(leader_->remove(keys_), 0u);
  }
  EXPECT_EQ(load_all(*leader_, keys_), 16u);
}

TEST_F(PinTest, LapsesAMinuteAfterItsProcessDied) {
  open_two();
  other_.reset();
  turned_.turn(30);
  EXPECT_EQ(leader_->remove(keys_), 0u);
  turned_.turn(31);
  EXPECT_FALSE(pinned(*leader_));
  EXPECT_EQ(leader_->remove(keys_), 16u);
  ASSERT_TRUE(leader_->flush());
  EXPECT_TRUE(blob_files(folder_.path(), true).empty());
}

// So does a load: what is in use when its time is over goes once it is not.
TEST_F(PinTest, OutlivesATimeToLive) {
  const auto store = open_disk();
  const auto read = chain_of(1000, 16), idle = chain_of(2000, 16);
  for (const auto& keys : {keys_, read, idle}) ASSERT_TRUE(save_all(*store, keys, {.time_to_live_s = 60}));
  EXPECT_EQ(store->pin(keys_), 16u);
  Kv kv(16);
  auto load = store->load(read, kv.view()).value();
  const auto expired = [&] { return store->stats().expired_extents; };
  const auto all_but = [&](std::uint64_t left) {
    EXPECT_TRUE(eventually_beside_others([&] { return expired() >= 3 - left; }));
    EXPECT_TRUE(store->flush());
    EXPECT_EQ(expired(), 3 - left);
    EXPECT_EQ(blob_files(folder_.path(), true).size(), left);
  };
  turned_.turn(61);
  all_but(2);
  EXPECT_EQ(store->lookup(keys_).blocks, 16u);
  EXPECT_EQ(store->lookup(read).blocks, 0u);
  ASSERT_TRUE(load->wait());
  EXPECT_TRUE(load->failures().empty());
  load.reset();
  turned_.turn(3);
  all_but(1);
  EXPECT_EQ(load_all(*store, keys_), 16u);
  EXPECT_EQ(store->unpin(keys_), 16u);
  EXPECT_EQ(store->lookup(keys_).blocks, 0u);
  turned_.turn(3);
  all_but(0);
  expect_sound(*store);
}

TEST_F(PinTest, HoldsItsRunsExtents) {
  const auto store = open(tiers_of(memory_tier(clock_)));
  const StoreHints hints{.run = {7, 9}};
  const auto rest = chain_of(1000, 16);
  for (const auto& keys : {keys_, rest}) ASSERT_TRUE(save_all(*store, keys, hints));
  EXPECT_EQ(store->pin(keys_), 16u);
  EXPECT_EQ(store->remove_run(hints.run), 1u);
  EXPECT_EQ(store->lookup(rest).blocks, 0u);
  EXPECT_EQ(load_all(*store, keys_), 16u);
  EXPECT_EQ(store->unpin(keys_), 16u);
  EXPECT_EQ(store->remove_run(hints.run), 1u);
  EXPECT_EQ(store->lookup(keys_).blocks, 0u);
}

}  // namespace
}  // namespace shale::testing
