#include "trial/shared_tiers.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>

#include "core/parsing.h"
#include "io/net_socket.h"
#include "tiers/tiers.h"

namespace shale {
namespace {

constexpr std::string_view kEndpoint = "endpoint=http://";
constexpr std::uint16_t kRedisPort = 6379;
constexpr int kAnswerMs = 1000;
// What a server says that cannot answer now; to Redis' clients, in place of any answer.
constexpr char kS3Busy[] =
    "HTTP/1.1 503 Slow Down\r\nContent-Length: 71\r\nConnection: close\r\n\r\n"
    "<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>";
constexpr char kRedisBusy[] = "-LOADING Redis is loading the dataset in memory\r\n";

// 100 kB/s to 100 MB/s.
double slow_bytes_per_s(const Fault& fault) {
  double rate = 1e5;
  for (std::uint64_t i = fault.draw % 4; i > 0; --i) rate *= 10;
  return rate;
}

// Takes "host:port", or "host" where a port is known without.
Result<std::uint16_t> cut_port(std::string& server, std::uint16_t otherwise) {
  const std::size_t colon = server.rfind(':');
  if (colon == std::string::npos && otherwise != 0) return otherwise;
  const std::string_view digits = std::string_view(server).substr(std::min(colon, server.size() - 1) + 1);
  const std::uint16_t port = parse_integer<std::uint16_t>(digits).value_or(0);
  if (port == 0) return fail(ErrorCode::kInvalidArgument, "'{}' has no port", server);
  server.resize(colon);
  return port;
}

}  // namespace

Result<SharedTiers::Shared> SharedTiers::open_one(const std::string& url) {
  const bool redis = url.starts_with("redis://");
  const std::size_t at = redis ? url.find("//") + 2 : url.find(kEndpoint) + kEndpoint.size();
  if (!redis && (!url.starts_with("s3://") || url.find(kEndpoint) == std::string::npos))
    return fail(ErrorCode::kInvalidArgument,
                "'{}': a shared tier of a trial is redis://host:port, or s3://bucket?endpoint=http://host:port", url);
  const std::size_t end = std::min(url.find_first_of(redis ? "/?" : "&", at), url.size());
  const std::size_t user = std::min(url.find('@', at) + 1, end);  // and past it; 0 where there is none
  const std::size_t from = std::max(at, redis ? user : 0);
  Shared shared;
  shared.host = url.substr(from, end - from);
  SHALE_ASSIGN(shared.port, cut_port(shared.host, redis ? kRedisPort : 0));
  SHALE_ASSIGN(shared.proxy, NetProxy::start(shared.host, shared.port));
  shared.url = fmt::format("{}127.0.0.1:{}{}", url.substr(0, from), shared.proxy->port(), url.substr(end));
  SHALE_ASSIGN(const auto specs, parse_tiers({shared.url}));
  shared.name = specs.front().name;
  return shared;
}

Result<SharedTiers> SharedTiers::open(const std::vector<std::string>& urls) {
  SharedTiers tiers;
  for (const std::string& url : urls) {
    SHALE_ASSIGN(Shared shared, open_one(url));
    if (tiers.find(shared.name))
      return fail(ErrorCode::kInvalidArgument, "two shared tiers are called '{}': write name=… in a URL", shared.name);
    tiers.shared_.push_back(std::move(shared));
  }
  return tiers;
}

std::vector<std::string> SharedTiers::urls() const {
  std::vector<std::string> urls;
  for (const Shared& shared : shared_) urls.push_back(shared.url);
  return urls;
}

std::vector<std::string> SharedTiers::names() const {
  std::vector<std::string> names;
  for (const Shared& shared : shared_) names.push_back(shared.name);
  return names;
}

const SharedTiers::Shared* SharedTiers::find(std::string_view name) const {
  const auto found = std::ranges::find(shared_, name, &Shared::name);
  return found == shared_.end() ? nullptr : &*found;
}

bool SharedTiers::makes(const Fault& fault) const {
  constexpr FaultKind kKinds[] = {FaultKind::kError, FaultKind::kSlow, FaultKind::kHang, FaultKind::kGone};
  return find(fault.tier) && std::ranges::find(kKinds, fault.kind) != std::end(kKinds);
}

void SharedTiers::set(std::string_view tier, const std::vector<Fault>& faults) {
  const Shared* shared = find(tier);
  if (!shared) return;
  ProxyFault now;
  for (const Fault& fault : faults) {
    now.gone |= fault.kind == FaultKind::kGone;
    now.hang |= fault.kind == FaultKind::kHang;
    if (fault.kind == FaultKind::kError) now.answer = shared->url.starts_with("s3:") ? kS3Busy : kRedisBusy;
    if (fault.kind != FaultKind::kSlow) continue;
    const double rate = slow_bytes_per_s(fault);
    now.bytes_per_s = now.bytes_per_s > 0 ? std::min(now.bytes_per_s, rate) : rate;
  }
  shared->proxy->set(std::move(now));
}

void SharedTiers::forget(const Fault& gone) const {
  const Shared* shared = find(gone.tier);
  if (!shared || !shared->url.starts_with("redis:") || gone.draw % 2 == 0) return;
  auto socket = NetSocket::connect(shared->host, shared->port, nullptr);
  std::string command = "FLUSHALL\r\n";
  const iovec bytes{command.data(), command.size()};
  std::array<std::byte, 64> answer;
  for (bool asked = false; socket;) {
    pollfd fd{socket->fd(), static_cast<short>(asked ? POLLIN : POLLOUT), 0};
    if (poll(&fd, 1, kAnswerMs) <= 0) return;
    const auto moved = asked ? socket->read(answer) : socket->write({&bytes, 1});
    if (!moved || (asked && *moved > 0)) return;
    asked |= *moved > 0;
  }
}

}  // namespace shale
