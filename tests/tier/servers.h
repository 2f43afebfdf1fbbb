// Servers for tests of tiers behind a network: one of each scheme, started when it is first wanted.
#pragma once

#include <string>
#include <string_view>

#include "tier/redis_server.h"

namespace shale::testing {

// What of a URL stands behind the scheme: where on that server is nothing of other tests', by `own`. kUnsupported where
// no such server is installed.
inline Result<std::string> server_place(std::string_view scheme, const std::string& own) {
  if (scheme == "redis" || scheme == "rediss") {
    static const auto plain = RedisServer::start();
    static const auto secure = RedisServer::start({.tls = true});
    const auto& server = scheme == "redis" ? plain : secure;
    if (!server) return std::unexpected(server.error());
    const std::string ca = scheme == "redis" ? "" : "&ca=" + (*server)->ca();
    return fmt::format("//127.0.0.1:{}?prefix={}{}", (*server)->port(), own, ca);
  }
  return fail(ErrorCode::kUnsupported, "there is no server for {}: among the tests", scheme);
}

}  // namespace shale::testing
