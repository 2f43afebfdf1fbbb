// The tier in Redis within its deadline, whatever the server, the network or a cluster does meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "io/net_proxy.h"
#include "tiers/blobs.h"
#include "tiers/redis_server.h"
#include "tiers/silent_address.h"
#include "tiers/tiers.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kBlobBytes = 9 << 20;  // three pieces
constexpr double kDeadlineS = 0.6;

// A server behind a proxy that errs.
class RedisDeadlineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = RedisServer::start();
    if (code_of(server) == ErrorCode::kUnsupported) GTEST_SKIP() << server.error().message;
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    proxy_ = NetProxy::start("127.0.0.1", server_->port()).value();
    tier_ = make_tier(url(proxy_->port()), clock_).value();
    ASSERT_TRUE(put(blob_id(1, 0), kBlobBytes));
  }
  // Silence alone would take much longer to notice.
  static std::string url(std::uint16_t port) {
    return fmt::format("redis://127.0.0.1:{}?timeout=60s&deadline={}ms", port, kDeadlineS * 1000);
  }
  Status put(const BlobId& id, std::size_t bytes) { return tier_->write(id, blob_bytes(id, bytes))->wait(); }
  static bool holds(Tier& tier, const BlobId& id, std::size_t bytes) {
    const auto read = tier.read(id)->take();
    if (!read) ADD_FAILURE() << read.error().message;
    return read && same_bytes(**read, *blob_bytes(id, bytes));
  }
  bool holds(const BlobId& id, std::size_t bytes) { return holds(*tier_, id, bytes); }
  void expect_given_up(const std::function<ErrorCode()>& operation, ErrorCode expected = ErrorCode::kIo) {
    const double start_s = clock_.now_s();
    EXPECT_EQ(operation(), expected);
    EXPECT_GE(clock_.now_s() - start_s, 0.95 * kDeadlineS);
  }
  // Every kind of operation, each before three failures in a row.
  void expect_all_given_up(const ProxyFault& fault) {
    const std::function<ErrorCode()> operations[] = {
        [&] { return code_of(tier_->read(blob_id(1, 0))->take()); },
        [&] { return code_of(put(blob_id(2, 0), kBlobBytes)); },
        [&] { return code_of(tier_->parts_of(std::array{blob_id(1, 0).object, blob_id(3, 0).object})); },
        [&] { return code_of(tier_->remove(blob_id(1, 0))); },
        [&] { return code_of(tier_->list()); },
    };
    for (const auto& operation : operations) {
      proxy_->set(fault);
      expect_given_up(operation);
      proxy_->set({});
      EXPECT_TRUE(holds(blob_id(1, 0), kBlobBytes)) << "and then goes on";
    }
    EXPECT_EQ(tier_->breaker()->kind, BreakerState::Kind::kClosed);
    EXPECT_EQ(tier_->breaker()->failures, std::size(operations));
  }

  RealClock clock_;
  std::unique_ptr<RedisServer> server_;
  std::unique_ptr<NetProxy> proxy_;
  std::unique_ptr<Tier> tier_;
};

TEST_F(RedisDeadlineTest, AServerThatNeverAnswersIsGivenUp) { expect_all_given_up({.hang = true}); }

TEST_F(RedisDeadlineTest, AServerThatAnswersByteByByteIsGivenUp) { expect_all_given_up({.bytes_per_s = 20}); }

TEST_F(RedisDeadlineTest, WhatIsAskedForTogetherIsGivenUpTogether) {
  proxy_->set({.bytes_per_s = 20});
  std::vector<std::shared_ptr<TierRead>> reads;
  for (int i = 0; i < 50; ++i) reads.push_back(tier_->read(blob_id(1, 0)));
  expect_given_up([&] {
    for (const auto& read : reads) EXPECT_EQ(code_of(read->take()), ErrorCode::kIo);
    return ErrorCode::kIo;
  });
}

TEST_F(RedisDeadlineTest, WhatWasGivenUpStandsInNobodysWay) {
  proxy_->set({.hang = true});
  const auto late = tier_->read(blob_id(1, 0));
  std::this_thread::sleep_for(std::chrono::duration<double>(kDeadlineS * 0.7));
  const auto next = tier_->read(blob_id(1, 0));
  EXPECT_EQ(code_of(late->take()), ErrorCode::kIo);
  proxy_->set({});
  const auto read = next->take();
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(same_bytes(**read, *blob_bytes(blob_id(1, 0), kBlobBytes)));
  EXPECT_EQ(proxy_->connections(), 4u) << "questions, writes, reads, and reads by a new one";
}

TEST_F(RedisDeadlineTest, OneThatCannotBeConnectedToIsGivenUp) {
  const SilentAddress silent;
  expect_given_up([&] { return code_of(make_tier(url(silent.port()), clock_)); });
}

TEST_F(RedisDeadlineTest, AServerThatIsLoadingIsAskedAgain) {
  const auto patient = make_tier(fmt::format("redis://127.0.0.1:{}?deadline=30s", proxy_->port()), clock_).value();
  proxy_->set({.answer = "-LOADING Redis is loading the dataset in memory\r\n"});
  std::jthread soon([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    proxy_->set({});
  });
  EXPECT_TRUE(holds(*patient, blob_id(1, 0), kBlobBytes));
  soon.join();
  EXPECT_EQ(patient->stats().read_errors, 0u);

  proxy_->set({.answer = "-LOADING Redis is loading the dataset in memory\r\n"});
  const auto read = tier_->read(blob_id(1, 0))->take();
  ASSERT_EQ(code_of(read), ErrorCode::kIo);
  EXPECT_THAT(read.error().message, HasSubstr("LOADING"));
}

TEST_F(RedisDeadlineTest, NamesAreLookedUp) {
  const auto tier = make_tier(fmt::format("redis://localhost:{}", server_->port()), clock_).value();
  const auto read = tier->read(blob_id(1, 0))->take();
  ASSERT_TRUE(read) << read.error().message;
  const auto nowhere = make_tier("redis://nobody.invalid?deadline=20s", clock_);
  ASSERT_EQ(code_of(nowhere), ErrorCode::kIo);
  EXPECT_THAT(nowhere.error().message, HasSubstr("cannot find nobody.invalid:6379"));
}

TEST_F(RedisDeadlineTest, AnotherDatabaseThanTheServerHasIsNotTakenForTheFirst) {
  const auto tier = make_tier(fmt::format("redis://127.0.0.1:{}/99", server_->port()), clock_);
  ASSERT_EQ(code_of(tier), ErrorCode::kIo);
  EXPECT_THAT(tier.error().message, HasSubstr("DB index is out of range"));
}

// A server that another one has taken the place of: it is a replica now.
TEST_F(RedisDeadlineTest, WritesGoOnWhenAReplicaIsPromoted) {
  const auto other = RedisServer::start().value();
  server_->ask(fmt::format("replicaof 127.0.0.1 {}", other->port()));
  std::jthread soon([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    server_->ask("replicaof no one");
  });
  std::vector<std::shared_ptr<TierWrite>> writes;
  for (std::uint32_t part = 0; part < 8; ++part) {
    writes.push_back(tier_->write(blob_id(5, part), blob_bytes(blob_id(5, part), 100000)));
  }
  for (const auto& write : writes) {
    const Status written = write->wait();
    EXPECT_TRUE(written) << written.error().message;
  }
  soon.join();
  EXPECT_TRUE(holds(blob_id(5, 7), 100000));
}

}  // namespace
}  // namespace shale::testing
