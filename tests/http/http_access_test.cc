#include "http/http_access.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>

namespace shale {
namespace {

using ::testing::HasSubstr;

TEST(HttpAccess, FindsTheHostOfAnAuthority) {
  EXPECT_EQ(host_of("LocalHost:8000"), "localhost");
  EXPECT_EQ(host_of("localhost"), "localhost");
  EXPECT_EQ(host_of("127.0.0.1:"), "127.0.0.1");
  EXPECT_EQ(host_of("[::1]:8000"), "::1");
  for (const char* wrong : {"", ":80", "[::1", "[::1]x", "a:b", "a:80:80", "::1"}) {
    EXPECT_EQ(host_of(wrong), std::nullopt) << wrong;
  }
}

TEST(HttpAccess, KnowsTheLoopback) {
  for (const char* host : {"localhost", "app.localhost", "127.0.0.1", "127.255.3.4", "::1"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host : {"127.0.0.1.example.com", "127.example.com", "localhost.example.com", "xlocalhost",
                           "128.0.0.1", "10.0.0.1", "0.0.0.0", "::2", "2130706433", "127.1", ""}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

// One network of IPv6 has more addresses than there are connections for.
TEST(HttpAccess, CountsConnectionsByAddressOrNetwork) {
  const auto of_six = [](const char* text) {
    sockaddr_in6 peer{};
    peer.sin6_family = AF_INET6;
    EXPECT_EQ(inet_pton(AF_INET6, text, &peer.sin6_addr), 1);
    return network_of(reinterpret_cast<const sockaddr&>(peer));
  };
  EXPECT_EQ(of_six("2001:db8::1:2:3:4"), "2001:db8::/64");
  EXPECT_EQ(of_six("2001:db8:0:7:1:2:3:4"), "2001:db8:0:7::/64");
  EXPECT_EQ(of_six("::ffff:10.1.2.3"), "10.1.2.3") << "as a socket of both kinds says it";
  sockaddr_in four{};
  four.sin_family = AF_INET;
  EXPECT_EQ(inet_pton(AF_INET, "10.1.2.3", &four.sin_addr), 1);
  EXPECT_EQ(network_of(reinterpret_cast<const sockaddr&>(four)), "10.1.2.3");
  EXPECT_EQ(network_of({.sa_family = AF_UNIX, .sa_data = {}}), "");
}

TEST(HttpAccess, RefusesForeignHostsAndOrigins) {
  const std::vector<std::string> names = {"shale.example"};
  const auto refused = [&](const char* host, const char* origin) {
    HttpRequest request;
    if (host) request.fields.emplace_back("host", host);
    if (origin) request.fields.emplace_back("origin", origin);
    const auto failure = refuse_foreign(request, names);
    if (!failure) return false;
    EXPECT_EQ(failure->status, 403);
    EXPECT_THAT(failure->message, HasSubstr("--allow-host"));
    return true;
  };
  for (const char* host : {"localhost:8000", "127.0.0.1", "[::1]:1", "shale.example:80", "SHALE.example"}) {
    EXPECT_FALSE(refused(host, nullptr)) << host;
  }
  for (const char* host : {"evil.example", "localhost.evil.example:8000", "192.168.0.2", "[::1", "x.shale.example"}) {
    EXPECT_TRUE(refused(host, nullptr)) << host;
  }
  for (const char* origin : {"http://localhost:3000", "https://127.0.0.1", "http://[::1]:5", "https://shale.example"}) {
    EXPECT_FALSE(refused("localhost", origin)) << origin;
  }
  for (const char* origin : {"null", "https://evil.example", "http://localhost.evil.example", "localhost", "file://"}) {
    EXPECT_TRUE(refused("localhost", origin)) << origin;
  }
  EXPECT_FALSE(refused(nullptr, nullptr)) << "HTTP/1.0";
}

}  // namespace
}  // namespace shale
