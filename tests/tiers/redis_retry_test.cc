// What is asked again of a server that cannot answer yet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <future>

#include "support/eventually.h"
#include "tiers/blobs.h"
#include "tiers/redis/redis_blobs.h"
#include "tiers/scripted_redis.h"

namespace shale::testing {
namespace {

// Whoever sees the head counts on the pieces.
TEST(RedisRetryTest, TheHeadOfABlobStaysBehindItsPieces) {
  constexpr std::size_t kPieces = 3, kBlobs = 5;
  std::size_t refused = 0;
  const auto answer = [&refused](const std::string& command) -> std::string {
    const bool writes = command.starts_with("SET") || command.starts_with("HSETNX");
    if (writes && refused++ < kPieces + 1) return "-LOADING Redis is loading the dataset in memory\r\n";
    return command.starts_with("SET") ? "+OK\r\n" : command.starts_with("HSETNX") ? ":1\r\n" : ":0\r\n";
  };
  const RealClock clock;
  for (std::uint64_t blob = 0; blob < kBlobs; ++blob) {
    refused = 0;
    const ScriptedRedis server(answer);
    std::promise<Result<bool>> written;
    RedisBlobs blobs("shale", {"127.0.0.1", server.port()}, {}, clock);
    const BlobId id = blob_id(blob, 0);
    blobs.write(id, blob_bytes(id, (kPieces - 1) * kRedisPieceBytes + 5),
                [&](Result<bool> created) { written.set_value(std::move(created)); });
    EXPECT_TRUE(written.get_future().get().value());
    std::vector<std::string> writes;
    for (const std::string& command : server.commands()) {
      const std::string name = command.substr(0, command.find(' '));
      if (name == "SET" || name == "HSETNX") writes.push_back(name);
    }
    EXPECT_THAT(writes, ::testing::ElementsAre("SET", "SET", "SET", "HSETNX", "SET", "SET", "SET", "HSETNX"));
  }
}

// After 50 and 100 ms: another 200 would end behind the deadline.
TEST(RedisRetryTest, AServerThatGoesOnLoadingIsAskedWithinTheDeadlineAlone) {
  const ScriptedRedis server([](const std::string&) { return "-LOADING Redis is loading the dataset in memory\r\n"; });
  VirtualClock clock;
  RedisClient client({"127.0.0.1", server.port()}, {.user = {}, .password = {}, .timeout_s = 1e9}, clock);
  std::promise<Result<RespValue>> told;
  auto reply = told.get_future();
  auto call = redis_call(std::array<std::string_view, 2>{"GET", "key"},
                         [&](Result<RespValue> result) { told.set_value(std::move(result)); });
  call->deadline_s = clock.now_s() + 0.3;
  client.send(RedisClient::Lane::kReads, std::move(call));
  ASSERT_TRUE(eventually([&] {
    clock.advance(0.01);
    return reply.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }));
  const auto error = reply.get();
  ASSERT_EQ(code_of(error), ErrorCode::kIo);
  EXPECT_THAT(error.error().message, ::testing::HasSubstr("LOADING"));
  EXPECT_LE(server.commands().size(), 3u);
}

}  // namespace
}  // namespace shale::testing
