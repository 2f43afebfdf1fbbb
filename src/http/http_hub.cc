#include "http/http_hub.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "http/http_connection.h"

namespace shale {
namespace {

constexpr std::chrono::milliseconds kTrimAfter(100);

}  // namespace

HttpHub::HttpHub(const HttpOptions& options)
    : limits(options.limits), allowed_hosts(options.allowed_hosts), workers(options.workers) {}

HttpHub::~HttpHub() = default;

HttpConnection* HttpHub::longest_waiting(const std::string* address, bool with_body) const {
  HttpConnection* longest = nullptr;
  for (const auto& connection : connections_) {
    if (!connection->waits() || (address && connection->address() != *address)) continue;
    if (with_body && connection->body_bytes() == 0) continue;
    if (!longest || connection->waits_since() < longest->waits_since()) longest = connection.get();
  }
  return longest;
}

bool HttpHub::admit(const std::string& address) {
  const auto of_address =
      std::ranges::count_if(connections_, [&](const auto& connection) { return connection->address() == address; });
  const bool crowded = static_cast<std::size_t>(of_address) >= limits.connections_per_address;
  if (!crowded && connections_.size() < limits.connections) return true;
  HttpConnection* longest = longest_waiting(crowded ? &address : nullptr, false);
  if (!longest) return false;
  longest->close();
  return true;
}

void HttpHub::add(std::shared_ptr<HttpConnection> connection) {
  connections_.push_back(std::move(connection));
  connections_.back()->start();
}

void HttpHub::remove(const HttpConnection& connection) {
  std::erase_if(connections_, [&](const auto& known) { return known.get() == &connection; });
}

void HttpHub::hold_bodies(std::ptrdiff_t bytes) {
  bodies_bytes_ += static_cast<std::size_t>(bytes);
  while (bodies_bytes_ > limits.bodies_bytes) {
    HttpConnection* longest = longest_waiting(nullptr, true);
    if (!longest) break;
    longest->refuse({503, "too many long requests are coming at once: try again"});
  }
}

// By a worker: the allocator looks through all that is free.
void HttpHub::trim_soon() {
  if (std::exchange(trims_soon_, true) || finishing) return;
  trim_timer_.expires_after(kTrimAfter);
  trim_timer_.async_wait([this](std::error_code cancelled) {
    trims_soon_ = false;
    if (!cancelled) workers.add([] { malloc_trim(0); });
  });
}

void HttpHub::finish() {
  finishing = true;
  finish_by = std::chrono::steady_clock::now() + limits.finish;
  trim_timer_.cancel();
  const auto connections = connections_;  // those that close leave the list
  for (const auto& connection : connections) connection->finish();
}

}  // namespace shale
