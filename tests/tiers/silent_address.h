// An address at which somebody listens with whom nobody can connect any more.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>

#include "io/file_calls.h"
#include "support/loopback_address.h"

namespace shale::testing {

class SilentAddress {
 public:
  SilentAddress() {
    for (FileDescriptor& each : sockets_) {
      each = FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    }
    auto* any = reinterpret_cast<sockaddr*>(&address_);
    socklen_t length = sizeof address_;
    EXPECT_EQ(bind(sockets_[0].get(), any, length), 0);
    EXPECT_EQ(listen(sockets_[0].get(), 0), 0);
    EXPECT_EQ(getsockname(sockets_[0].get(), any, &length), 0);
    for (std::size_t i = 1; i < sockets_.size(); ++i) (void)connect(sockets_[i].get(), any, length);
  }
  std::uint16_t port() const { return ntohs(address_.sin_port); }

 private:
  sockaddr_in address_ = loopback_address(0);
  std::array<FileDescriptor, 5> sockets_;  // it, and those whom it never accepts
};

}  // namespace shale::testing
