// The descriptor that is readable after anything has arrived or ended, also where that was so when the call returned.
#include <poll.h>
#include <unistd.h>

#include "store/store_fixture.h"

namespace shale::testing {
namespace {

// Nothing happens beside the test's own calls.
class StoreEventFdTest : public StoreTest {
 protected:
  StoreEventFdTest() {
    StoreOptions options = small_options();
    options.threads = 0;
    auto tier = memory_tier(virtual_clock_);
    tier.tier = make_throttled_tier(std::move(tier.tier), parse_throttle("1GB/s,100ms").value(), virtual_clock_);
    slow_ = Store::open(options, tiers_of(std::move(tier)), virtual_clock_).value();
    fast_ = Store::open(options, tiers_of(memory_tier(virtual_clock_)), virtual_clock_).value();
    for (Store* store : {slow_.get(), fast_.get()}) {
      EXPECT_TRUE(save_all(*store, keys_));
      EXPECT_TRUE(store->flush());
      read_all(*store);
    }
  }
  static bool readable(const Store& store) {
    pollfd waited{.fd = store.event_fd(), .events = POLLIN, .revents = 0};
    return poll(&waited, 1, 0) == 1;
  }
  static void read_all(Store& store) {
    (void)store.take_events(1000);
    std::uint64_t count = 0;
    while (read(store.event_fd(), &count, sizeof count) > 0) {
    }
    EXPECT_FALSE(readable(store));
  }

  const VirtualClock virtual_clock_;
  const std::vector<BlockKey> keys_ = chain_of(1, 16);
  std::unique_ptr<Store> slow_, fast_;
};

TEST_F(StoreEventFdTest, TellsOfALoadThatHasArrivedAtOnce) {
  Kv kv(keys_.size());
  const auto load = fast_->load(keys_, kv.view()).value();
  EXPECT_TRUE(readable(*fast_));
  EXPECT_TRUE(load->poll());
}

TEST_F(StoreEventFdTest, TellsOfALoadThatFindsNothing) {
  const auto unknown = chain_of(1000, 16);
  for (Store* store : {slow_.get(), fast_.get()}) {
    Kv kv(unknown.size());
    const auto load = store->load(unknown, kv.view()).value();
    EXPECT_TRUE(readable(*store));
    EXPECT_TRUE(load->poll());
    EXPECT_EQ(load->blocks(), 0u);
  }
}

TEST_F(StoreEventFdTest, TellsOfASaveOfWhatIsThereAlready) {
  const Kv kv(keys_);
  const auto save = fast_->save(keys_, kv.readable()).value();
  EXPECT_TRUE(save->done());
  EXPECT_TRUE(save->released());
  EXPECT_TRUE(readable(*fast_));
}

TEST_F(StoreEventFdTest, TellsOnceOfWhatAskingForThePlanFoundArrived) {
  Kv kv(keys_.size());
  const auto load = slow_->load(keys_, kv.view()).value();
  read_all(*slow_);
  EXPECT_TRUE(load->planned());
  EXPECT_FALSE(readable(*slow_)) << "nothing has arrived";
  virtual_clock_.sleep_until_s(virtual_clock_.now_s() + 10);
  EXPECT_TRUE(load->planned());
  EXPECT_TRUE(readable(*slow_));
  read_all(*slow_);
  EXPECT_TRUE(load->planned());
  EXPECT_FALSE(readable(*slow_));
  EXPECT_TRUE(load->wait());
}

}  // namespace
}  // namespace shale::testing
