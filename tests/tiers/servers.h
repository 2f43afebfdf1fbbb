// Servers for tests of tiers behind a network, started when they are first wanted.
#pragma once

#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "support/s3_server.h"
#include "tiers/redis_server.h"

namespace shale::testing {

struct TierServer {
  std::string name;
  // What of a URL stands behind the scheme: where on the server is nothing of other tests', by `own`. kUnsupported
  // where no such server is installed.
  std::function<Result<std::string>(const std::string& own)> place;
};

// Of a scheme of the table; none of one that has no server among the tests.
inline std::vector<TierServer> tier_servers(std::string_view scheme) {
  using Redis = Result<std::unique_ptr<RedisServer>>;
  const auto of_redis = [](const Redis& server, const std::string& own) -> Result<std::string> {
    if (!server) return std::unexpected(server.error());
    return fmt::format("//127.0.0.1:{}?prefix={}", (*server)->port(), own);
  };
  if (scheme == "redis") {
    return {{"redis", [=](const std::string& own) {
               static const Redis server = RedisServer::start();
               return of_redis(server, own);
             }}};
  }
  if (scheme == "rediss") {
    return {{"rediss", [=](const std::string& own) -> Result<std::string> {
               static const Redis server = RedisServer::start({.tls = true});
               SHALE_ASSIGN(const std::string place, of_redis(server, own));
               return place + "&ca=" + (*server)->ca();
             }}};
  }
  if (scheme != "s3") return {};
  const auto of_bucket = [](const std::string& own, const std::string& options) {
    return fmt::format("//shale/{}?{}", own, options);
  };
  std::vector<TierServer> servers = {{"s3",
                                      [=](const std::string& own) {
                                        static const S3Server server({.page = 7});
                                        return of_bucket(own, server.options());
                                      }},
                                     {"s3_of_few_words", [=](const std::string& own) {  // as `rclone serve s3`
                                        static const S3Server server({.ranges = false, .conditions = false});
                                        return of_bucket(own, server.options());
                                      }}};
  if (const char* url = std::getenv("SHALE_S3_URL")) {  // of peers/s3/serve.py
    const std::string options = std::string(url).substr(std::string_view(url).find('?') + 1);
    servers.push_back({"s3_seaweedfs", [=](const std::string& own) { return of_bucket(own, options); }});
  }
  return servers;
}

}  // namespace shale::testing
