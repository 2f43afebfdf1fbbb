// The little of HTTP/1.1 that talking to a peer on this machine takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"

namespace shale {

// Sends one request to 127.0.0.1 and returns the body of a 200 answer; the connection is closed after it. kIo
// otherwise.
Result<std::string> loopback_request(std::uint16_t port, std::string_view method, std::string_view path,
                                     std::string_view body);

// A TCP port of 127.0.0.1 that nobody listens on now.
Result<std::uint16_t> free_loopback_port();

}  // namespace shale
