// A connection that is made by one address of several.
#include "io/net_socket.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string_view>

#include "support/eventually.h"
#include "tiers/scripted_redis.h"
#include "tiers/silent_address.h"

namespace shale::testing {
namespace {

NetSocket::Address address_at(std::uint16_t port) {
  const sockaddr_in loopback = loopback_address(port);
  NetSocket::Address address{{}, sizeof loopback};
  std::memcpy(&address.address, &loopback, sizeof loopback);
  return address;
}

// As one that only some networks reach.
TEST(NetSocketTest, AnAddressThatSaysNothingIsLeftForTheNext) {
  const SilentAddress silent;
  const ScriptedRedis server([](const std::string&) { return "+PONG\r\n"; });
  auto connecting = NetSocket::connect("host", 1, {address_at(silent.port()), address_at(server.port())}, nullptr);
  ASSERT_TRUE(connecting) << connecting.error().message;
  NetSocket& socket = *connecting;
  EXPECT_TRUE(socket.has_other_addresses());
  std::string_view ping = "*1\r\n$4\r\nPING\r\n";
  EXPECT_TRUE(eventually([&] {
    const iovec rest{const_cast<char*>(ping.data()), ping.size()};
    const auto written = socket.write({&rest, 1});
    EXPECT_TRUE(written) << written.error().message;
    ping.remove_prefix(written.value_or(ping.size()));
    return ping.empty();
  }));
  std::array<std::byte, 7> pong;
  EXPECT_TRUE(eventually([&] { return socket.read(pong) == pong.size(); }));
  EXPECT_FALSE(socket.has_other_addresses());
}

// Nobody listens at the first.
TEST(NetSocketTest, AnAddressThatRefusesIsLeftForTheNext) {
  std::uint16_t nobodys = 0;
  {
    const ScriptedRedis gone([](const std::string&) { return ""; });
    nobodys = gone.port();
  }
  const ScriptedRedis server([](const std::string&) { return ""; });
  auto socket = NetSocket::connect("host", 1, {address_at(nobodys), address_at(server.port())}, nullptr).value();
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(socket.write({}));
    return !socket.wants_write();
  }));
}

}  // namespace
}  // namespace shale::testing
