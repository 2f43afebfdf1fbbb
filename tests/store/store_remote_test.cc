// Stores over Redis and S3 whose server is killed, hangs or refuses while they save and load: no wrong byte, nothing
// that waits for longer than the tier's deadline, and all as before once the server is back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "io/net_proxy.h"
#include "store/store_fixture.h"
#include "support/eventually.h"
#include "support/s3_server.h"
#include "tiers/redis_server.h"

namespace shale::testing {
namespace {

constexpr double kDeadlineS = 0.5;
constexpr double kLate = 0.1 * kDeadlineS + 1;  // a tenth of it, and two threads and a server on a busy machine
constexpr std::uint32_t kBlocks = 100;          // seven chunks of a chain

class StoreRemoteTest : public StoreTest {
 protected:
  // A store that has nothing but the tier.
  std::unique_ptr<Store> open_on(const std::string& url, const Tier** tier = nullptr) {
    auto made = make_tier(url, clock_);
    EXPECT_TRUE(made) << made.error().message;
    if (tier) *tier = made->get();
    return open(tiers_of(StoreTier{.tier = std::move(*made), .shared = true}));
  }
  static std::uint32_t found(Store& store, std::span<const BlockKey> keys) {
    StoreLookup lookup = store.lookup(keys);
    for (int i = 0; i < 2000 && lookup.pending; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      lookup = store.lookup(keys);
    }
    EXPECT_FALSE(lookup.pending);
    return lookup.blocks;
  }

  // Saves and loads, by two threads, while `trouble` happens, and looks at every byte that comes. An extent is a read
  // or write or two behind each other, its manifest and its chunks, and a save one or two of them.
  void expect_right_bytes_during(Store& store, const std::function<void()>& trouble) {
    std::atomic<bool> over = false;
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 2; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::int32_t round = 0; !over; ++round) {
          const auto keys = chain_of(1000 * (8 * thread + round % 8), kBlocks);
          const double start_s = clock_.now_s();
          if (save_all(store, keys)) ++saved_;
          loaded_ += load_all(store, keys);
          longest_s_ = std::max(longest_s_.load(), clock_.now_s() - start_s);
          ++rounds_;
        }
      });
    }
    trouble();
    over = true;
    threads.clear();
    EXPECT_LE(longest_s_, 4 * (kDeadlineS + kLate));
    EXPECT_GT(rounds_, 10u);
  }
  // What is new is saved, found by another store, and loaded.
  void expect_all_as_before(Store& store, const std::string& url, std::int32_t first) {
    const auto keys = chain_of(first, kBlocks);
    EXPECT_TRUE(eventually_beside_others([&] { return save_all(store, keys).has_value(); }));
    EXPECT_TRUE(eventually_beside_others([&] { return load_all(store, keys) == kBlocks; }));
    const auto other = open_on(url);
    EXPECT_EQ(found(*other, keys), kBlocks);
    EXPECT_EQ(load_all(*other, keys), kBlocks);
    EXPECT_TRUE(store.flush());
  }
  static void rest(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

  std::atomic<std::uint64_t> saved_ = 0, loaded_ = 0, rounds_ = 0;
  std::atomic<double> longest_s_ = 0;
};

TEST_F(StoreRemoteTest, ARedisThatIsKilledAndComesBackEmptyCostsWhatItHeld) {
  const auto server = RedisServer::start();
  if (code_of(server) == ErrorCode::kUnsupported) GTEST_SKIP() << server.error().message;
  const std::string url = fmt::format("redis://127.0.0.1:{}?timeout={}ms&deadline={}ms", (*server)->port(),
                                      kDeadlineS * 500, kDeadlineS * 1000);
  const Tier* tier = nullptr;
  const auto store = open_on(url, &tier);
  std::mt19937 random(7);
  expect_right_bytes_during(*store, [&] {
    for (int times = 0; times < 4; ++times) {
      rest(0.2 + 0.1 * static_cast<double>(random() % 3));
      (*server)->kill();
      rest(0.1 * static_cast<double>(1 + random() % 6));
      EXPECT_TRUE((*server)->restart());
    }
    rest(0.5);
  });
  EXPECT_GT(loaded_, 0u);
  EXPECT_GT(tier->stats().read_errors + tier->stats().write_errors, 0u);
  EXPECT_GT(tier->breaker()->failures, 0u);
  EXPECT_GT(tier->breaker()->opened, 0u);
  expect_all_as_before(*store, url, 500'000);
  EXPECT_EQ(tier->breaker()->kind, BreakerState::Kind::kClosed);
}

TEST_F(StoreRemoteTest, ARedisThatHangsAndDripsIsGivenUpInTime) {
  const auto server = RedisServer::start();
  if (code_of(server) == ErrorCode::kUnsupported) GTEST_SKIP() << server.error().message;
  const auto proxy = NetProxy::start("127.0.0.1", (*server)->port()).value();
  const std::string url =
      fmt::format("redis://127.0.0.1:{}?timeout=60s&deadline={}ms", proxy->port(), kDeadlineS * 1000);
  const Tier* tier = nullptr;
  const auto store = open_on(url, &tier);
  expect_right_bytes_during(*store, [&] {
    for (const ProxyFault& fault : {ProxyFault{.hang = true}, ProxyFault{.bytes_per_s = 1000}, ProxyFault{.gone = true},
                                    ProxyFault{.bytes_per_s = 1e6}}) {
      rest(0.3);
      proxy->set(fault);
      rest(2.5 * kDeadlineS);
      proxy->set({});
      rest(0.6);
    }
  });
  EXPECT_GT(loaded_, 0u);
  EXPECT_GT(tier->breaker()->failures, 0u);
  expect_all_as_before(*store, url, 500'000);
}

// Requests cost money there: no more than docs/guides/remote.md says.
TEST_F(StoreRemoteTest, WhatIsUnknownIsAskedOfS3InFewLists) {
  std::atomic<unsigned> lists = 0;
  S3Server server;
  auto tier = make_tier(server.url("kv"), clock_).value();
  const VirtualClock time;  // of the store
  const auto store =
      Store::open(small_options(), tiers_of(StoreTier{.tier = std::move(tier), .shared = true}), time).value();
  server.set_fault([&](const S3Asked& asked, S3Answer right) {
    lists += is_list(asked);
    return right;
  });
  const auto asked_for = [&](std::int32_t first, std::uint32_t blocks) {
    const unsigned before = lists;
    EXPECT_EQ(found(*store, chain_of(first, blocks)), 0u);
    return lists - before;
  };
  constexpr std::uint32_t kChunkBlocks = kChunkTokens / kBlockTokens;
  EXPECT_EQ(asked_for(1, 5000 * kChunkBlocks), 512u);
  EXPECT_EQ(asked_for(1, 5000 * kChunkBlocks), 0u) << "within a second";
  EXPECT_EQ(asked_for(1'000'000, 10 * kChunkBlocks), 10u) << "by chunk";
  EXPECT_EQ(asked_for(2'000'000, 32), 32u) << "by block";
}

TEST_F(StoreRemoteTest, AnS3ThatAnswers503AndHangsIsGivenUpInTime) {
  S3Server server;
  const std::string url = server.url("kv", fmt::format("&timeout={}ms", kDeadlineS * 1000));
  const Tier* tier = nullptr;
  const auto store = open_on(url, &tier);
  const auto slow_down = [](const S3Asked&, const S3Answer&) {
    return S3Answer{503, "<Error><Code>SlowDown</Code><Message>no</Message></Error>"};
  };
  const auto hang = [](const S3Asked&, S3Answer right) {
    right.delay_s = 60;
    return right;
  };
  const auto cut = [](const S3Asked& asked, S3Answer right) {
    if (asked.method != "GET" || right.body.size() < 2) return right;
    right.headers["Content-Length"] = std::to_string(right.body.size());
    right.cut = right.body.size() / 2;
    return right;
  };
  expect_right_bytes_during(*store, [&] {
    for (const auto& fault :
         std::initializer_list<std::function<S3Answer(const S3Asked&, S3Answer)>>{slow_down, hang, cut}) {
      rest(0.3);
      server.set_fault(fault);
      rest(2.5 * kDeadlineS);
      server.set_fault({});
      rest(0.6);
    }
  });
  EXPECT_GT(saved_, 0u);
  EXPECT_GT(loaded_, 0u);
  EXPECT_GT(tier->stats().read_errors + tier->stats().write_errors, 0u);
  EXPECT_GT(tier->breaker()->failures, 0u);
  expect_all_as_before(*store, url, 500'000);
  EXPECT_EQ(tier->breaker()->kind, BreakerState::Kind::kClosed);
}

}  // namespace
}  // namespace shale::testing
