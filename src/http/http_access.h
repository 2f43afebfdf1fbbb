// Whom a server that listens on its own machine's loopback address alone answers.
//
// A web page that somebody opens on this machine can send requests to such a server too: from its own origin, or, where
// its domain is made to resolve to 127.0.0.1 (DNS rebinding), as if it were this one. Its browser says so in `Origin`
// and in `Host`, and neither can be forged by a page.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "http/http_message.h"

namespace shale {

// The host of "host", "host:port" or "[address]:port", in lower case and without brackets; nothing where it is none of
// these.
std::optional<std::string> host_of(std::string_view authority);
// "localhost", a name under it, or an address of the loopback interface.
bool is_loopback(std::string_view host);

// Whom connections are counted for, as people write it: an address, of IPv6 its network of 64 bits; empty for all of a
// Unix socket.
std::string network_of(const sockaddr& peer);

// Whether a request's `Host`, and its `Origin` where it has one, name the loopback interface or one of `names`;
// 403 otherwise.
std::optional<HttpFailure> refuse_foreign(const HttpRequest& request, std::span<const std::string> names);

// What a browser asks before a page of another origin may send JSON or a key (CORS, Fetch 4.8), answered for one that
// refuse_foreign lets in; nothing for other requests.
std::optional<HttpResponse> answer_preflight(const HttpRequest& request);

}  // namespace shale
