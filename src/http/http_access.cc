#include "http/http_access.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

namespace shale {
namespace {

// As much of what a client sent as fits a message.
std::string_view beginning(std::string_view text) { return text.substr(0, 100); }

bool local(std::string_view authority, std::span<const std::string> names) {
  const auto host = host_of(authority);
  const auto same = [&](const std::string& name) { return same_ignoring_case(name, *host); };
  return host && (is_loopback(*host) || std::ranges::any_of(names, same));
}

}  // namespace

std::optional<std::string> host_of(std::string_view authority) {
  std::string host;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == authority.npos) return std::nullopt;
    host = authority.substr(1, end - 1);
    authority.remove_prefix(end + 1);
  } else {
    host = authority.substr(0, authority.find(':'));
    authority.remove_prefix(host.size());
  }
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!authority.empty() && (authority[0] != ':' || !std::ranges::all_of(authority.substr(1), digit))) {
    return std::nullopt;
  }
  return host.empty() ? std::nullopt : std::optional(lower_case(host));
}

bool is_loopback(std::string_view host) {
  if (host == "localhost" || host.ends_with(".localhost")) return true;
  const std::string text(host);
  in_addr four{};
  if (inet_pton(AF_INET, text.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  in6_addr six{};
  return inet_pton(AF_INET6, text.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

std::string network_of(const sockaddr& peer) {
  if (peer.sa_family == AF_UNIX) return {};
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.sa_family == AF_INET) {
    return inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(peer).sin_addr, text, sizeof text);
  }
  in6_addr six = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&six)) return inet_ntop(AF_INET, six.s6_addr + 12, text, sizeof text);
  std::fill_n(six.s6_addr + 8, 8, std::uint8_t{0});
  return fmt::format("{}/64", inet_ntop(AF_INET6, &six, text, sizeof text));
}

std::optional<HttpFailure> refuse_foreign(const HttpRequest& request, std::span<const std::string> names) {
  constexpr std::string_view kAllow = "--allow-host lets others in";
  const std::string_view host = request.field("host");
  if (!host.empty() && !local(host, names)) {
    return HttpFailure{403, fmt::format("this server listens on its own machine alone and is not called {}: address it "
                                        "as localhost, or {}",
                                        beginning(host), kAllow)};
  }
  const std::string_view origin = request.field("origin");
  if (origin.empty()) return std::nullopt;
  const std::size_t scheme = origin.find("://");
  if (scheme != origin.npos && local(origin.substr(scheme + 3), names)) return std::nullopt;
  return HttpFailure{403, fmt::format("pages of {} may not ask this server: {}", beginning(origin), kAllow)};
}

std::optional<HttpResponse> answer_preflight(const HttpRequest& request) {
  if (request.method != "OPTIONS" || request.field("access-control-request-method").empty()) return std::nullopt;
  return HttpResponse{
      .fields = {{"Access-Control-Allow-Methods", "GET, POST"},
                 {"Access-Control-Allow-Headers", std::string(request.field("access-control-request-headers"))},
                 {"Access-Control-Max-Age", "600"}}};
}

}  // namespace shale
