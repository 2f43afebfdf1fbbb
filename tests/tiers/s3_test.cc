// The S3 tier against a bucket in this process that errs on policy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "io/net_proxy.h"
#include "tiers/blobs.h"
#include "tiers/s3/s3_client.h"
#include "tiers/s3_fixture.h"

namespace shale::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(S3Test, ObjectsAreTheBlobsByPrefixObjectAndPart) {
  S3Server server;
  const auto tier = open(server);
  const BlobId id = blob_id(1, 0x2a);
  ASSERT_TRUE(tier->write(id, blob_bytes(id, 5000))->wait());
  const auto objects = server.objects();
  const auto at = objects.find("some/prefix/" + id.object.hex() + "/0000002a");
  ASSERT_NE(at, objects.end());
  EXPECT_EQ(at->second.size(), 8192u);
  server.put("some/prefix/notes.txt", "somebody's");
  server.put("some/prefix/" + id.object.hex() + "/2A", "somebody's");
  EXPECT_THAT(tier->list().value(), ::testing::ElementsAre(id));
  EXPECT_TRUE(open(server)->check_integrity());
  EXPECT_THAT(tier->describe(), HasSubstr("bucket 'shale' at http://127.0.0.1"));
}

TEST_F(S3Test, ALargeBlobIsReadInParts) {
  S3Server server;
  const auto tier = open(server);
  const BlobId id = blob_id(1, 0);
  constexpr std::size_t kSize = 17'000'123;
  ASSERT_TRUE(tier->write(id, blob_bytes(id, kSize))->wait());
  const auto before = server.asked("GET");
  EXPECT_TRUE(same_bytes(**tier->read(id)->take(), *blob_bytes(id, kSize)));
  EXPECT_EQ(server.asked("GET") - before, 5u);
}

TEST_F(S3Test, ListsGoOnPageAfterPage) {
  S3Server server({.page = 3});
  const auto tier = open(server);
  for (std::uint32_t part = 0; part < 10; ++part) {
    ASSERT_TRUE(tier->write(blob_id(part % 2, part), blob_bytes(blob_id(1, 0), 10))->wait());
  }
  EXPECT_EQ(tier->list()->size(), 10u);
  EXPECT_EQ(tier->parts(blob_id(1, 0).object)->size(), 5u);
  EXPECT_EQ(open(server)->used_bytes(), 10 * 4096u);
}

// So many, and no more: no list is answered before they are asked for.
TEST_F(S3Test, ManyObjectsAreLookedUpTogether) {
  constexpr int kTogether = 256;
  S3Server server;
  const auto tier = open(server, "&timeout=60s");
  ASSERT_TRUE(tier->write(blob_id(7, 3), blob_bytes(blob_id(7, 3), 10))->wait());
  std::vector<Hash128> objects;
  for (std::uint64_t i = 0; i < 512; ++i) objects.push_back(blob_id(i, 0).object);
  std::mutex mutex;
  std::condition_variable more;
  int asked = 0, answered = 0, most = 0;
  server.set_fault([&](const S3Asked&, S3Answer right) {
    std::unique_lock lock(mutex);
    most = std::max(most, ++asked - answered);
    more.notify_all();
    const bool together = more.wait_for(lock, std::chrono::seconds(20), [&] { return asked >= kTogether; });
    more.wait_for(lock, std::chrono::milliseconds(200), [&] { return asked > kTogether; });  // which does not come
    ++answered;
    return together ? right : S3Answer{.status = 403};
  });
  const auto parts = tier->parts_of(objects);
  server.set_fault({});
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_EQ(most, kTogether);
  EXPECT_EQ(parts->size(), 512u);
  EXPECT_THAT((*parts)[7], ::testing::ElementsAre(3u));
  EXPECT_TRUE((*parts)[8].empty());
}

TEST_F(S3Test, TwoTiersShareABucketAndStoreOnce) {
  S3Server server;
  const auto one = open(server), other = open(server);
  const BlobId id = blob_id(1, 0);
  const auto first = one->write(id, blob_bytes(id, 5000)), second = other->write(id, blob_bytes(id, 5000));
  EXPECT_TRUE(first->wait());
  EXPECT_TRUE(second->wait());
  EXPECT_EQ(first->created() + second->created(), 1);
  EXPECT_TRUE(same_bytes(**other->read(id)->take(), *blob_bytes(id, 5000)));
  EXPECT_TRUE(one->remove(id));
  EXPECT_EQ(code_of(other->read(id)->take()), ErrorCode::kNotFound);
}

TEST_F(S3Test, WhatOthersRemovedIsFreeAgain) {
  S3Server server;
  const auto one = open(server, "&size=16KiB"), other = open(server);
  for (std::uint32_t part = 0; part < 4; ++part) {
    ASSERT_TRUE(one->write(blob_id(1, part), blob_bytes(blob_id(1, part), 10))->wait());
  }
  ASSERT_TRUE(other->remove(blob_id(1, 0)));
  EXPECT_TRUE(one->write(blob_id(1, 4), blob_bytes(blob_id(1, 4), 10))->wait());
  EXPECT_EQ(code_of(one->write(blob_id(1, 5), blob_bytes(blob_id(1, 5), 10))->wait()), ErrorCode::kFull);
}

// Nobody waits for what is being copied there.
TEST_F(S3Test, ReadsDoNotStandBehindWrites) {
  S3Server server;
  const auto tier = open(server);
  const BlobId id = blob_id(1, 0);
  ASSERT_TRUE(tier->write(id, blob_bytes(id, 1000))->wait());
  server.set_fault([](const S3Asked& asked, S3Answer right) {
    if (asked.method == "PUT") right.delay_s = 0.1;
    return right;
  });
  std::vector<std::shared_ptr<TierWrite>> writes;
  for (std::uint32_t part = 0; part < 160; ++part) {
    writes.push_back(tier->write(blob_id(2, part), blob_bytes(blob_id(2, part), 10)));
  }
  EXPECT_TRUE(tier->read(id)->take());
  EXPECT_FALSE(writes.back()->ready());
  for (const auto& write : writes) EXPECT_TRUE(write->wait());
}

TEST_F(S3Test, AServerThatKnowsNeitherRangesNorConditionsWillDo) {
  S3Server server({.ranges = false, .conditions = false});
  const auto tier = open(server);
  const BlobId id = blob_id(1, 0);
  constexpr std::size_t kSize = 9'000'000;
  ASSERT_TRUE(tier->write(id, blob_bytes(id, kSize))->wait());
  const auto again = tier->write(id, blob_bytes(id, 100));
  EXPECT_TRUE(again->wait());
  EXPECT_FALSE(again->created());
  EXPECT_TRUE(same_bytes(**tier->read(id)->take(), *blob_bytes(id, kSize)));
  const auto range = tier->read(id, {8'000'000, 1000});
  EXPECT_EQ(std::memcmp((*range->take())->data(), blob_bytes(id, kSize)->data() + 8'000'000, 1000), 0);
  EXPECT_TRUE(tier->check_integrity());
}

TEST_F(S3Test, BurstsOf503AreSatOut) {
  S3Server server;
  const auto tier = open(server);
  const BlobId id = blob_id(1, 0);
  server.set_fault(errs(3, method_is("PUT"), slow_down));
  EXPECT_TRUE(tier->write(id, blob_bytes(id, 5000))->wait());
  server.set_fault(errs(3, is_data, slow_down));
  EXPECT_TRUE(same_bytes(**tier->read(id)->take(), *blob_bytes(id, 5000)));
  server.set_fault(errs(3, method_is("DELETE"), slow_down));
  EXPECT_TRUE(tier->remove(id));
  EXPECT_EQ(tier->breaker()->failures, 0u);
}

TEST_F(S3Test, A404OfSomethingBetweenIsNoMiss) {
  S3Server server;
  const auto tier = open(server, "&timeout=700ms");
  const BlobId id = blob_id(1, 0);
  ASSERT_TRUE(tier->write(id, blob_bytes(id, 5000))->wait());
  const auto no_route = [](const S3Answer&) { return S3Answer{404, "<html><body>no route</body></html>"}; };
  const auto always = [](const S3Asked&) { return true; };
  server.set_fault(errs(2, always, no_route));
  EXPECT_TRUE(same_bytes(**tier->read(id)->take(), *blob_bytes(id, 5000))) << "asked again";
  server.set_fault(errs(1'000'000, always, no_route));
  const auto read = tier->read(id)->take();
  EXPECT_EQ(code_of(read), ErrorCode::kIo);
  EXPECT_THAT(read.error().message, HasSubstr("not in the words of S3"));
  EXPECT_EQ(code_of(tier->parts(id.object)), ErrorCode::kIo);
  EXPECT_EQ(code_of(try_open(server, "&timeout=200ms")), ErrorCode::kIo) << "not for ever";
  server.set_fault({});
  EXPECT_EQ(code_of(tier->read(blob_id(2, 0))->take()), ErrorCode::kNotFound);
}

TEST_F(S3Test, WhatIsCutOffGoesOnWhereItWas) {
  S3Server server;
  const auto tier = open(server);
  const BlobId id = blob_id(1, 0);
  ASSERT_TRUE(tier->write(id, blob_bytes(id, 3'000'000))->wait());
  server.set_fault(errs(2, is_data, [](S3Answer right) {
    right.cut = 1'000'000;
    right.headers["Content-Length"] = std::to_string(right.body.size());
    return right;
  }));
  EXPECT_TRUE(same_bytes(**tier->read(id)->take(), *blob_bytes(id, 3'000'000)));
  server.set_fault(errs(1, is_data, [](S3Answer right) {
    right.cut = 0;  // the connection is lost right behind the head
    right.headers["Content-Length"] = std::to_string(right.body.size());
    return right;
  }));
  EXPECT_TRUE(same_bytes(**tier->read(id)->take(), *blob_bytes(id, 3'000'000)));
}

TEST_F(S3Test, AServerThatHangsCostsTheDeadlineOnceAndThenNothing) {
  S3Server server;
  const auto tier = open(server, "&timeout=500ms");
  const BlobId id = blob_id(1, 0);
  ASSERT_TRUE(tier->write(id, blob_bytes(id, 5000))->wait());
  server.set_fault([](const S3Asked&, S3Answer right) {
    right.delay_s = 60;
    return right;
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(code_of(tier->read(id)->take()), ErrorCode::kIo) << "the answer comes too late";
  EXPECT_EQ(tier->breaker()->kind, BreakerState::Kind::kOpen);
  EXPECT_EQ(code_of(tier->read(id)->take()), ErrorCode::kBusy) << "nobody waits for it any more";
  EXPECT_TRUE(tier->trouble());
  server.set_fault({});
  Result<BlobBytes> read = fail(ErrorCode::kBusy, "");
  for (int i = 0; i < 500 && !read; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    read = tier->read(id)->take();
  }
  EXPECT_TRUE(read) << read.error().message;
  EXPECT_FALSE(tier->trouble());
}

TEST_F(S3Test, AnUploadThatMovesHasTheTimeThatItTakes) {
  S3Server server;
  const std::string endpoint = server.endpoint();
  const auto port = static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
  const auto proxy = NetProxy::start("127.0.0.1", port).value();
  const auto tier =
      make_tier(fmt::format("s3://shale/x?endpoint=http://127.0.0.1:{}&timeout=1s", proxy->port()), clock_).value();
  proxy->set({.bytes_per_s = 400'000});
  const BlobId id = blob_id(1, 0);
  const Status written = tier->write(id, blob_bytes(id, 1 << 20))->wait();
  EXPECT_TRUE(written) << written.error().message;
}

TEST_F(S3Test, EndingWaitsForOneDeadlineHoweverMuchIsQueued) {
  S3Server server;
  auto tier = open(server);
  server.set_fault([](const S3Asked&, S3Answer right) {
    right.delay_s = 60;
    return right;
  });
  std::vector<std::shared_ptr<TierRead>> reads;
  for (std::uint32_t part = 0; part < 200; ++part) reads.push_back(tier->read(blob_id(1, part)));
  reads.clear();
  const double begun_s = clock_.now_s();
  tier.reset();
  EXPECT_LT((clock_.now_s() - begun_s) / 2, 6) << "deadlines; 16 at a time it would be twelve and more";
}

TEST_F(S3Test, BucketsOfAwsAreAddressedByHost) {
  const auto url_of = [](std::string bucket, std::string endpoint) {
    const S3Client client({.bucket = std::move(bucket), .endpoint = std::move(endpoint), .region = "eu-west-1"});
    HttpRequest request;
    client.address({.key = "a/b c", .query = {{"x", ""}}}, request);
    return request.url;
  };
  EXPECT_EQ(url_of("bucket", ""), "https://bucket.s3.eu-west-1.amazonaws.com/a/b%20c?x=");
  EXPECT_EQ(url_of("www.bucket", ""), "https://s3.eu-west-1.amazonaws.com/www.bucket/a/b%20c?x=")
      << "no certificate is for a host of so many parts";
  EXPECT_EQ(url_of("bucket", "http://minio:9000/"), "http://minio:9000/bucket/a/b%20c?x=");
}

TEST_F(S3Test, ASlowBodyIsWaitedForWithinTheDeadline) {
  S3Server server;
  const auto tier = open(server);
  const BlobId id = blob_id(1, 0);
  ASSERT_TRUE(tier->write(id, blob_bytes(id, 100'000))->wait());
  server.set_fault([](const S3Asked&, S3Answer right) {
    right.pause_s = 0.3;
    return right;
  });
  EXPECT_TRUE(same_bytes(**tier->read(id)->take(), *blob_bytes(id, 100'000)));
}

TEST_F(S3Test, DamagedFramesAndShortObjectsAreNoBlobs) {
  S3Server server;
  const auto tier = open(server);
  const BlobId id = blob_id(1, 0);
  ASSERT_TRUE(tier->write(id, blob_bytes(id, 5000))->wait());
  const std::string key = "some/prefix/" + id.object.hex() + "/00000000", whole = server.objects()[key];
  for (const std::size_t at : {5001uz, whole.size() - 1, whole.size() - 40}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    server.put(key, damaged);
    EXPECT_EQ(code_of(tier->read(id)->take()), ErrorCode::kCorrupt) << at;
  }
  for (const std::size_t bytes : {0uz, 10uz, 4096uz}) {
    server.put(key, whole.substr(0, bytes));
    EXPECT_EQ(code_of(tier->read(id)->take()), ErrorCode::kCorrupt) << bytes;
  }
  EXPECT_EQ(tier->stats().read_errors, 6u);
  EXPECT_EQ(tier->breaker()->failures, 0u) << "the server answers";
}

TEST_F(S3Test, AClockThatIsOffIsSetByTheServers) {
  S3Server server({.clock_ahead_s = -3600});
  const auto tier = open(server);
  const BlobId id = blob_id(1, 0);
  EXPECT_TRUE(tier->write(id, blob_bytes(id, 5000))->wait());
  EXPECT_TRUE(tier->read(id)->take());
}

TEST_F(S3Test, WhatNobodyNeededForLongIsTouchedByWhoeverFindsItThere) {
  S3Server server;
  const auto tier = open(server);
  const BlobId id = blob_id(1, 0);
  ASSERT_TRUE(tier->write(id, blob_bytes(id, 5000))->wait());
  EXPECT_LT(tier->untouched_s(id), kAbandonedAfterSeconds);
  std::atomic<int> touched = 0;
  server.set_fault([&](const S3Asked& asked, S3Answer right) {
    touched += asked.headers.contains("x-amz-copy-source");
    return right;
  });
  server.age(11 * 3600);
  ASSERT_TRUE(open(server)->write(id, blob_bytes(id, 5000))->wait());
  EXPECT_EQ(touched, 0) << "every twelve hours at most";
  server.age(13 * 3600);
  EXPECT_GE(tier->untouched_s(id), kAbandonedAfterSeconds);
  ASSERT_TRUE(open(server)->write(id, blob_bytes(id, 5000))->wait());
  EXPECT_EQ(touched, 1);
  EXPECT_LT(tier->untouched_s(id), kAbandonedAfterSeconds);
  EXPECT_TRUE(tier->read(id)->take());
  EXPECT_EQ(tier->untouched_s(blob_id(2, 0)), 0);
}

TEST_F(S3Test, WrongBucketsAndCredentialsAreSaidAndNoSecretIs) {
  S3Server server;
  const auto nowhere = make_tier(fmt::format("s3://elsewhere/x?endpoint={}", server.endpoint()), clock_);
  ASSERT_EQ(code_of(nowhere), ErrorCode::kInvalidArgument);
  EXPECT_THAT(nowhere.error().message, HasSubstr("bucket 'elsewhere' at http://127.0.0.1"));
  EXPECT_THAT(nowhere.error().message, HasSubstr("create it (aws s3 mb s3://elsewhere)"));
  setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret", 1);
  const auto refused = try_open(server);
  ASSERT_EQ(code_of(refused), ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("refuses the credentials of the environment (SignatureDoesNotMatch)"));
  EXPECT_THAT(refused.error().message, Not(HasSubstr("wrong-secret")));
  for (const auto* url :
       {"s3://bucket?endpoint=127.0.0.1:80", "s3://Bucket/x", "s3://bucket?timeout=0s", "s3:bucket"}) {
    EXPECT_EQ(code_of(parse_tiers({url})), ErrorCode::kInvalidArgument) << url;
  }
}

}  // namespace
}  // namespace shale::testing
