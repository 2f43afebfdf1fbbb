// What is asked again of a server that cannot answer yet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

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

}  // namespace
}  // namespace shale::testing
