// Requests and answers of HTTP/1.1 as handlers see them, and what bounds them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shale {

// What one client, and all of them together, may make a server hold and wait for.
struct HttpLimits {
  // Bounds of a request: longer heads are refused with 431, longer bodies with 413 before they are stored.
  std::size_t head_bytes = std::size_t{16} << 10;
  std::uint32_t head_lines = 64;
  std::size_t body_bytes = std::size_t{16} << 20;
  // Bytes of bodies that are held at once. Beyond it, the request whose body has been coming longest is refused with
  // 503.
  std::size_t bodies_bytes = std::size_t{128} << 20;
  // Connections at once. One more closes the one that has kept the server waiting longest or, where all are being
  // answered, itself. The 64 bits that tell networks apart are an address of IPv6.
  std::uint32_t connections = 1000, connections_per_address = 600;
  // Time to a whole head (408), from its head to a whole body (408), between two requests of a connection, for the next
  // 64 KiB of an answer to be taken, and for a client to hear why it is refused. `finish`: for all that is left when
  // the server ends.
  std::chrono::milliseconds head{10'000}, body{60'000}, idle{60'000}, write{20'000}, linger{2'000}, finish{2'000};
};

using HttpFields = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;       // as sent, "HEAD" included
  std::string path;         // of the target, percent-decoded, without its query
  bool version_1_1 = true;  // otherwise 1.0
  HttpFields fields = {};   // names in lower case, in the order of the head
  std::string body = {};
  std::string peer = {};  // the client's address, of IPv6 its network's; empty of a Unix socket

  // The value of the first field with this name, which is in lower case; empty where there is none.
  std::string_view field(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string type = {};  // of the body, as Content-Type says it
  std::string body = {};
  HttpFields fields = {};  // beside Content-Type, Content-Length, Transfer-Encoding, Connection and Date
};

// A request that breaks the rules of HTTP or a limit: the connection cannot be read any further.
struct HttpFailure {
  int status = 400;
  std::string message;
  std::string peer = {};  // HttpRequest::peer
};

std::string_view http_reason(int status);
// Letters of ASCII in lower case; and whether two texts differ in the case of these alone.
std::string lower_case(std::string_view text);
bool same_ignoring_case(std::string_view a, std::string_view b);
// What may surround a value (RFC 9110, 5.6.3).
constexpr std::string_view kHttpSpace = " \t";

}  // namespace shale
