// Eight threads at one store, over tiers that are too small for all of it.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "store/store_fixture.h"

namespace shale::testing {
namespace {

// A chain out of a few, cut anywhere.
std::vector<BlockKey> some_chain(std::mt19937& random) {
  std::vector<std::int32_t> blocks(1 + random() % 60);
  std::iota(blocks.begin(), blocks.end(), static_cast<std::int32_t>(1000 * (random() % 6)));
  const auto parts = static_cast<std::uint32_t>(random() % 60);
  for (std::uint32_t b = parts; b < blocks.size(); ++b) blocks[b] += static_cast<std::int32_t>(100000 * (random() % 3));
  return chain_of(blocks);
}

void hammer(Store& store, unsigned seed, int rounds, std::atomic<std::uint64_t>& loaded) {
  std::mt19937 random(seed);
  for (int round = 0; round < rounds; ++round) {
    const auto keys = some_chain(random);
    switch (random() % 10) {
      case 0:
        (void)store.remove(keys);
        break;
      case 1: {
        const std::uint32_t pinned = store.pin(keys);
        (void)store.touch(keys);
        (void)store.unpin(std::span(keys).first(pinned));
        (void)store.stats();
        (void)store.take_events(10);
        break;
      }
      case 2:
      case 3:
      case 4:
      case 5: {
        const Kv kv(keys);
        const auto save = store.save(keys, kv.readable()).value();
        if (random() % 4 == 0) break;  // dropped: the view goes with it
        const Status saved = save->wait();
        EXPECT_TRUE(saved || saved.error().code == ErrorCode::kFull) << saved.error().message;
        break;
      }
      case 6: {
        Kv kv(keys.size());
        const auto load = store.load(keys, kv.view()).value();
        load->poll();
        load->cancel();
        break;
      }
      default:
        (void)store.lookup(keys);
        loaded += load_all(store, keys);
    }
  }
}

TEST(StoreThreads, EightAtOneStore) {
  const TemporaryFolder folder;
  const RealClock clock;
  auto options = small_options();
  options.threads = 2;
  options.staging_bytes = 256 << 10;
  const auto store =
      Store::open(options, tiers_of(memory_tier(clock, 600 << 10), disk_tier(folder.path(), clock, 2 << 20)), clock)
          .value();
  std::atomic<std::uint64_t> loaded = 0;
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < 8; ++t) threads.emplace_back([&, t] { hammer(*store, t, 60, loaded); });
  }
  EXPECT_GT(loaded, 0u);
  const Status sound = store->check_integrity();
  EXPECT_TRUE(sound) << sound.error().message;
  EXPECT_EQ(store->stats().staged_bytes, 0u);
}

}  // namespace
}  // namespace shale::testing
