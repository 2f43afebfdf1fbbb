// What only the tier in Redis does: eviction, a full server, passwords, TLS, clusters, servers that die, hang and come
// back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "support/eventually.h"
#include "tiers/blobs.h"
#include "tiers/redis/redis_blobs.h"
#include "tiers/redis_server.h"
#include "tiers/tiers.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kLarge = 9 << 20;  // three pieces

class RedisTierTest : public ::testing::Test {
 protected:
  void start(RedisServerOptions options = {}) {
    auto server = RedisServer::start(std::move(options));
    if (code_of(server) == ErrorCode::kUnsupported) GTEST_SKIP() << server.error().message;
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  Result<std::unique_ptr<Tier>> open(const std::string& options = "", const std::string& scheme = "redis",
                                     const std::string& user = "") {
    return make_tier(fmt::format("{}://{}127.0.0.1:{}?{}", scheme, user, server_->port(), options), clock_);
  }
  static Status put(Tier& tier, const BlobId& id, std::size_t bytes) {
    return tier.write(id, blob_bytes(id, bytes))->wait();
  }
  static bool holds(Tier& tier, const BlobId& id, std::size_t bytes) {
    const auto read = tier.read(id)->take();
    return read && same_bytes(**read, *blob_bytes(id, bytes));
  }

  RealClock clock_;
  std::unique_ptr<RedisServer> server_;
};

TEST_F(RedisTierTest, OfTwoThatWriteTheSameOneCreatesIt) {
  start();
  if (!server_) return;
  const auto one = open().value(), other = open().value();
  for (const std::size_t bytes : {std::size_t{100}, kLarge}) {
    const BlobId id = blob_id(bytes, 0);
    const auto first = one->write(id, blob_bytes(id, bytes)), second = other->write(id, blob_bytes(id, bytes));
    EXPECT_TRUE(first->wait());
    EXPECT_TRUE(second->wait());
    EXPECT_NE(first->created(), second->created()) << bytes;
    EXPECT_TRUE(holds(*other, id, bytes));
    EXPECT_EQ(one->blob_bytes(id), one->stored_bytes(bytes));
  }
  EXPECT_EQ(other->list()->size(), 2u);
}

TEST_F(RedisTierTest, PrefixesAndDatabasesKeepApart) {
  start();
  if (!server_) return;
  const auto one = open("prefix=a").value(), other = open("prefix=b").value();
  const auto elsewhere = make_tier(fmt::format("redis://127.0.0.1:{}/3?prefix=a", server_->port()), clock_).value();
  ASSERT_TRUE(put(*one, blob_id(1, 0), 20000));
  EXPECT_FALSE(other->contains(blob_id(1, 0)));
  EXPECT_FALSE(elsewhere->contains(blob_id(1, 0)));
  EXPECT_TRUE(elsewhere->list()->empty());
  const auto both = parse_tiers({"redis://h", "redis://h/?prefix=other", "redis://h:6379/1"});
  EXPECT_TRUE(both) << both.error().message;
  EXPECT_EQ(code_of(parse_tiers({"redis://h/1?prefix=a", "redis://h/1/?prefix=a&name=b"})),
            ErrorCode::kInvalidArgument);
}

TEST_F(RedisTierTest, WhatTheServerGaveUpIsAMissAndCanBeWrittenAgain) {
  start();
  if (!server_) return;
  const auto tier = open().value();
  const BlobId id = blob_id(1, 4);
  ASSERT_TRUE(put(*tier, id, kLarge));
  server_->ask("unlink 'shale:{" + id.object.hex() + "}:4:1'");
  EXPECT_EQ(code_of(tier->read(id)->take()), ErrorCode::kNotFound);
  EXPECT_FALSE(tier->contains(id));
  EXPECT_THAT(tier->parts(id.object).value(), ::testing::IsEmpty());
  EXPECT_EQ(tier->stats().misses, 1u);
  EXPECT_EQ(tier->stats().read_errors, 0u);
  const auto again = tier->write(id, blob_bytes(id, kLarge));
  EXPECT_TRUE(again->wait());
  EXPECT_TRUE(again->created());
  EXPECT_TRUE(holds(*tier, id, kLarge));
}

TEST_F(RedisTierTest, WhatOthersPutInItsPlaceIsDamaged) {
  start();
  if (!server_) return;
  const auto tier = open().value();
  const BlobId id = blob_id(1, 4);
  ASSERT_TRUE(put(*tier, id, kLarge));
  server_->ask("set 'shale:{" + id.object.hex() + "}:4:1' short");
  EXPECT_EQ(code_of(tier->read(id)->take()), ErrorCode::kCorrupt);
  server_->ask("hset 'shale:{" + id.object.hex() + "}' 4 nonsense");
  EXPECT_EQ(code_of(tier->read(id)->take()), ErrorCode::kCorrupt);
  server_->ask("set 'shale:{" + blob_id(2, 0).object.hex() + "}' 'not a hash'");
  EXPECT_EQ(code_of(tier->read(blob_id(2, 0))->take()), ErrorCode::kIo);
  server_->ask("hset 'shale:{not an object}' 4 x");
  EXPECT_TRUE(tier->remove(id));
  EXPECT_TRUE(tier->list()->empty());
}

TEST_F(RedisTierTest, RangesAreCutFromPiecesAndFromFields) {
  start();
  if (!server_) return;
  const auto tier = open().value();
  constexpr std::uint64_t kPiece = kRedisPieceBytes;
  const BlobId large = blob_id(1, 0), small = blob_id(2, 0);
  const auto code = [&](const BlobId& id, const BlobRange& range) { return code_of(tier->read(id, range)->take()); };
  for (const auto& [id, bytes] : {std::pair(large, kLarge), std::pair(small, std::size_t{100})}) {
    ASSERT_TRUE(put(*tier, id, bytes));
    const auto whole = blob_bytes(id, bytes);
    for (const BlobRange& range : {BlobRange{0, 1},
                                   {10, 20},
                                   {1, kPiece},
                                   {kPiece, 0},
                                   {kPiece - 10, 20},
                                   {0, kPiece + 1},
                                   {5, kLarge - 5},
                                   {0, kLarge},
                                   {kLarge - 1, 1},
                                   {kPiece, kLarge - kPiece}}) {
      const auto read = tier->read(id, range);
      const auto got = read->take();
      if (range.offset + range.bytes > bytes) {
        EXPECT_EQ(code_of(got), ErrorCode::kCorrupt) << range.offset << " " << range.bytes;
        continue;
      }
      ASSERT_TRUE(got) << got.error().message;
      const auto in_range = (*got)->bytes().subspan(range.offset - read->first_byte(), range.bytes);
      EXPECT_TRUE(std::ranges::equal(in_range, whole->bytes().subspan(range.offset, range.bytes)))
          << range.offset << " " << range.bytes;
    }
    EXPECT_EQ(code(id, {kLarge, 1}), ErrorCode::kCorrupt);
    EXPECT_EQ(code(id, {3 * kPiece, 1}), ErrorCode::kCorrupt);
    EXPECT_EQ(code(id, {5, kUnlimited}), ErrorCode::kCorrupt);
    EXPECT_TRUE(tier->contains(id)) << "as it was";
  }
  EXPECT_EQ(code(blob_id(3, 0), {0, 10}), ErrorCode::kNotFound);
  const std::string second = "'shale:{" + large.object.hex() + "}:0:1'";
  server_->ask("set " + second + " short");
  EXPECT_EQ(code(large, {kPiece + 3, 10}), ErrorCode::kCorrupt);
  server_->ask("unlink " + second);
  EXPECT_TRUE(tier->read(large, {0, 10})->take()) << "lies in another piece";
  EXPECT_EQ(code(large, {kPiece, 10}), ErrorCode::kNotFound);
  EXPECT_FALSE(tier->contains(large));
}

// What a server reads at once came as one packet.
TEST_F(RedisTierTest, ARangeIsReadInOneTripAndLookUpsGoOutTogether) {
  start();
  if (!server_) return;
  const auto tier = open().value();
  const BlobId id = blob_id(1, 0);
  ASSERT_TRUE(put(*tier, id, 1 << 20));
  const auto reads = [&] {
    const std::string told = server_->ask("info stats"), name = "total_reads_processed:";
    return std::stoull(told.substr(told.find(name) + name.size()));
  };
  const auto trips = [&](const std::function<void()>& ask) {
    ask();
    const auto before = reads(), between = reads();  // asking how many takes some
    ask();
    return (reads() - between) - (between - before);
  };
  const auto ranges = [&] {
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(tier->read(id, {1000, 5000})->take());
  };
  EXPECT_LT(trips(ranges), 75u) << "50, where a field and then its piece would be 100";
  std::vector<Hash128> objects;
  for (std::uint64_t i = 0; i < 512; ++i) objects.push_back(blob_id(100 + i, 0).object);
  const auto look_ups = [&] { EXPECT_EQ(tier->parts_of(objects)->size(), objects.size()); };
  EXPECT_LE(trips(look_ups), 15u) << "11, of 48 each, none of which waits for another";
}

TEST_F(RedisTierTest, AFullServerIsAFullTier) {
  start({.more = {"--maxmemory", "32mb", "--maxmemory-policy", "noeviction"}});
  if (!server_) return;
  const auto tier = open().value();
  EXPECT_EQ(code_of(put(*tier, blob_id(1, 99), kLarge)), ErrorCode::kFull) << "more than a quarter of its memory";
  std::uint32_t part = 0;
  Status written;
  for (; part < 40 && written; ++part) written = put(*tier, blob_id(1, part), 2 << 20);
  EXPECT_EQ(code_of(written), ErrorCode::kFull);
  EXPECT_EQ(tier->stats().refused_full, 2u);
  EXPECT_EQ(tier->list()->size(), part - 1) << "nothing half-written";
  EXPECT_TRUE(holds(*tier, blob_id(1, 0), 2 << 20));
  EXPECT_EQ(tier->breaker()->kind, BreakerState::Kind::kClosed) << "it answers";
}

TEST_F(RedisTierTest, UnderEvictionWhatIsThereIsWhole) {
  start({.more = {"--maxmemory", "24mb", "--maxmemory-policy", "allkeys-lru"}});
  if (!server_) return;
  const auto tier = open().value();
  // Written within a second, they are equally old to it, and go by chance: many, so that chance evens out.
  constexpr std::uint32_t kBlobs = 1920, kBytes = 32 << 10;
  unsigned there = 0;
  for (std::uint32_t i = 0; i < kBlobs; ++i) ASSERT_TRUE(put(*tier, blob_id(i, 0), kBytes));
  for (std::uint32_t i = 0; i < kBlobs; ++i) {
    const auto read = tier->read(blob_id(i, 0))->take();
    if (!read) {
      EXPECT_EQ(code_of(read), ErrorCode::kNotFound);
      continue;
    }
    EXPECT_TRUE(same_bytes(**read, *blob_bytes(blob_id(i, 0), kBytes)));
    ++there;
  }
  EXPECT_GT(there, kBlobs / 12);
  EXPECT_LT(there, kBlobs / 2);
  EXPECT_EQ(tier->stats().read_errors, 0u);
}

TEST_F(RedisTierTest, PasswordsComeFromAFileAndShowNowhere) {
  start({.more = {"--requirepass", "geheim-17"}});
  if (!server_) return;
  server_->ask("-a geheim-17 acl setuser kv on '>other-18' '~*' '+@all'");
  const TemporaryFolder folder;
  const auto file = [&](const std::string& password) {
    const auto path = folder.path() / password;
    std::ofstream(path) << password << "\n";
    return "password_file=" + path.string();
  };
  const auto none = open();
  EXPECT_EQ(code_of(none), ErrorCode::kInvalidArgument);
  const auto wrong = open(file("wrong-19"));
  EXPECT_EQ(code_of(wrong), ErrorCode::kInvalidArgument);
  const auto tier = open(file("geheim-17"));
  ASSERT_TRUE(tier) << tier.error().message;
  EXPECT_TRUE(put(**tier, blob_id(1, 0), 100));
  EXPECT_EQ((*tier)->describe().find("geheim"), std::string::npos);
  const auto user = open(file("other-18"), "redis", "kv@");
  ASSERT_TRUE(user) << user.error().message;
  EXPECT_TRUE(holds(**user, blob_id(1, 0), 100));
  const auto in_url = make_tier("redis://kv:other-18@127.0.0.1", clock_);
  ASSERT_EQ(code_of(in_url), ErrorCode::kInvalidArgument);
  EXPECT_EQ(in_url.error().message.find("other-18"), std::string::npos) << in_url.error().message;
}

TEST_F(RedisTierTest, PasswordsComeFromTheEnvironmentUnlessAFileIsNamed) {
  start({.more = {"--requirepass", "geheim-17"}});
  if (!server_) return;
  const TemporaryFolder folder;
  const auto file = folder.path() / "password";
  std::ofstream(file) << "geheim-17\n";
  setenv("SHALE_REDIS_PASSWORD", "geheim-17", 1);
  const auto tier = open();
  setenv("SHALE_REDIS_PASSWORD", "wrong-19", 1);
  const auto wrong = open(), named = open("password_file=" + file.string());
  unsetenv("SHALE_REDIS_PASSWORD");
  ASSERT_TRUE(tier) << tier.error().message;
  EXPECT_TRUE(put(**tier, blob_id(1, 0), 100));
  ASSERT_EQ(code_of(wrong), ErrorCode::kInvalidArgument);
  EXPECT_EQ(wrong.error().message.find("wrong-19"), std::string::npos) << wrong.error().message;
  ASSERT_TRUE(named) << named.error().message;
  EXPECT_TRUE(holds(**named, blob_id(1, 0), 100));
}

TEST_F(RedisTierTest, TlsTrustsOnlyWhomItIsTold) {
  start({.tls = true});
  if (!server_) return;
  const auto stranger = open("", "rediss");
  ASSERT_EQ(code_of(stranger), ErrorCode::kIo);
  EXPECT_THAT(stranger.error().message, HasSubstr("does not prove who it is"));
  const auto tier = open("ca=" + server_->ca(), "rediss");
  ASSERT_TRUE(tier) << tier.error().message;
  EXPECT_TRUE(put(**tier, blob_id(1, 0), kLarge));
  EXPECT_TRUE(holds(**tier, blob_id(1, 0), kLarge));
  EXPECT_EQ(code_of(open("ca=/nowhere.pem", "rediss")), ErrorCode::kInvalidArgument);
}

TEST_F(RedisTierTest, AServerThatKnowsOfNoClustersStandsAlone) {
  start({.more = {"--rename-command", "CLUSTER", ""}});
  if (!server_) return;
  const auto tier = open();
  ASSERT_TRUE(tier) << tier.error().message;
  EXPECT_TRUE(put(**tier, blob_id(1, 0), kLarge));
  EXPECT_EQ((*tier)->list()->size(), 1u);
}

TEST_F(RedisTierTest, AServerThatDiesIsLeftAloneAndComesBackByItself) {
  start();
  if (!server_) return;
  const auto tier = open("timeout=500ms").value();
  ASSERT_TRUE(put(*tier, blob_id(1, 0), kLarge));
  server_->kill();
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(tier->read(blob_id(1, 0))->take());
  EXPECT_EQ(tier->breaker()->kind, BreakerState::Kind::kOpen);
  EXPECT_EQ(code_of(tier->read(blob_id(1, 0))->take()), ErrorCode::kBusy);
  EXPECT_EQ(code_of(put(*tier, blob_id(1, 1), 100)), ErrorCode::kBusy);
  EXPECT_EQ(code_of(tier->list()), ErrorCode::kBusy);
  ASSERT_TRUE(tier->trouble());
  ASSERT_TRUE(server_->restart());
  EXPECT_TRUE(eventually([&] { return code_of(tier->read(blob_id(1, 0))->take()) == ErrorCode::kNotFound; }))
      << "a miss: it came back empty";
  EXPECT_TRUE(put(*tier, blob_id(1, 0), kLarge));
  EXPECT_TRUE(holds(*tier, blob_id(1, 0), kLarge));
  EXPECT_FALSE(tier->trouble());
}

TEST_F(RedisTierTest, AConnectionThatTheServerClosedCostsNothing) {
  start();
  if (!server_) return;
  const auto tier = open().value();
  ASSERT_TRUE(put(*tier, blob_id(1, 0), kLarge));
  for (int i = 0; i < 3; ++i) {
    server_->ask("client kill type normal");
    EXPECT_TRUE(holds(*tier, blob_id(1, 0), kLarge));
  }
  EXPECT_EQ(tier->stats().read_errors, 0u);
}

TEST_F(RedisTierTest, AServerThatHangsFailsInTimeAndThenAtOnce) {
  start();
  if (!server_) return;
  const auto tier = open("timeout=300ms").value();
  ASSERT_TRUE(put(*tier, blob_id(1, 0), kLarge));
  server_->signal(SIGSTOP);
  std::vector<std::shared_ptr<TierRead>> reads;
  for (int i = 0; i < 8; ++i) reads.push_back(tier->read(blob_id(1, 0)));
  for (const auto& read : reads) {
    const auto result = read->take();
    EXPECT_EQ(code_of(result), ErrorCode::kIo);
    EXPECT_GE(read->seconds(), 0.29);
  }
  EXPECT_EQ(code_of(tier->read(blob_id(1, 0))->take()), ErrorCode::kBusy);
  server_->signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return holds(*tier, blob_id(1, 0), kLarge); }));
}

TEST_F(RedisTierTest, OneThatIsNotThereYetIsOpenedWhenItComes) {
  start({.more = {"--maxmemory", "32mb"}});
  if (!server_) return;
  ASSERT_TRUE(put(*open().value(), blob_id(1, 0), 100));
  server_->signal(SIGSTOP);
  EXPECT_EQ(code_of(open("timeout=300ms")), ErrorCode::kIo);
  auto specs = parse_tiers({fmt::format("redis://127.0.0.1:{}?size=64MiB&timeout=300ms", server_->port())}).value();
  specs.front().late = true;
  const auto tier = make_tier(specs.front(), clock_).value();
  EXPECT_FALSE(tier->reachable());
  EXPECT_TRUE(tier->trouble());
  EXPECT_EQ(tier->capacity_bytes(), 0u);
  EXPECT_EQ(code_of(put(*tier, blob_id(1, 1), 100)), ErrorCode::kBusy);
  EXPECT_EQ(code_of(tier->list()), ErrorCode::kBusy);
  server_->signal(SIGCONT);
  ASSERT_TRUE(eventually([&] { return tier->reachable().has_value(); }));
  EXPECT_TRUE(eventually([&] { return tier->capacity_bytes() == 64u << 20; }));
  EXPECT_EQ(tier->used_bytes(), tier->stored_bytes(100)) << "what it holds was counted";
  EXPECT_EQ(code_of(put(*tier, blob_id(1, 1), kLarge)), ErrorCode::kFull) << "and its memory is known";
  EXPECT_TRUE(put(*tier, blob_id(1, 2), 100));
}

TEST_F(RedisTierTest, UrlsAreCheckedBeforeAnybodyIsAsked) {
  for (const std::string_view url :
       {"redis:", "redis:/x", "redis://", "redis://h:0", "redis://h:x", "redis://h:70000", "redis://h/x",
        "redis://h/-1", "redis://h?prefix=a{b", "redis://h?prefix=", "redis://h?timeout=0s", "redis://h?timeout=soon",
        "redis://h?ca=x", "redis://u:p@h", "redis://@", "rediss://h?password=x"}) {
    EXPECT_EQ(code_of(parse_tiers({url})), ErrorCode::kInvalidArgument) << url;
  }
  for (const std::string_view url : {"redis://h", "redis://u@h:1/2/", "rediss://[::1]:7?ca=/x", "redis://[::1]"}) {
    EXPECT_TRUE(parse_tiers({url})) << url;
  }
}

}  // namespace
}  // namespace shale::testing
