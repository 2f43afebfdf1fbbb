// An address on this machine alone.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

namespace shale::testing {

// Port 0: any, for who binds to it.
inline sockaddr_in loopback_address(std::uint16_t port = 0) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

}  // namespace shale::testing
