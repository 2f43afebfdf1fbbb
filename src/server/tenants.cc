#include "server/tenants.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "core/parsing.h"
#include "core/units.h"

namespace shale {
namespace {

constexpr std::size_t kNameMax = 64;

bool is_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !text.empty() && text.size() <= kNameMax && std::ranges::all_of(text, allowed);
}

std::optional<Sha256Digest> digest_of(std::string_view hex) {
  Sha256Digest digest;
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const auto byte = parse_integer<std::uint8_t>(hex.substr(2 * i, 2), 16);
    if (!byte) return std::nullopt;
    digest[i] = static_cast<std::byte>(*byte);
  }
  return digest;
}

std::string_view take_word(std::string_view& line) {
  constexpr std::string_view kBlank = " \t\r";
  line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
  const std::string_view word = line.substr(0, line.find_first_of(kBlank));
  line.remove_prefix(word.size());
  return word;
}

// A word after name and key.
Status read_bound(std::string_view word, Tenant& tenant) {
  const std::size_t at = std::min(word.find('='), word.size());
  const std::string_view what = word.substr(0, at), text = word.substr(std::min(at + 1, word.size()));
  if (what == "requests") {
    if (const auto most = parse_integer<std::uint32_t>(text); !tenant.requests_max && most) {
      tenant.requests_max = *most;
      return {};
    }
  } else if (what == "bytes") {
    if (const auto most = parse_bytes(text); !tenant.bytes_max && most) {
      tenant.bytes_max = *most;
      return {};
    }
  } else if (what == "weight") {
    constexpr double kWeightMin = 1e-3, kWeightMax = 1e3;
    if (const auto weight = parse_number(text); weight && *weight >= kWeightMin && *weight <= kWeightMax) {
      tenant.weight = *weight;
      return {};
    }
  }
  return fail(ErrorCode::kInvalidArgument,
              "{} is not requests=N, bytes=SIZE (as 10GB) or weight=X (0.001 to 1000), or stands there twice", word);
}

}  // namespace

Result<std::vector<Tenant>> parse_tenants(std::string_view text) {
  std::vector<Tenant> tenants;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view name = take_word(line), hash = take_word(line);
    if (name.empty() || name.starts_with('#')) continue;
    const auto key = digest_of(hash);
    if (!is_name(name) || !key) {
      return fail(ErrorCode::kInvalidArgument,
                  "line {}: not a tenant's name (letters, digits, '.', '_', '-') and the SHA-256 of its key in "
                  "hexadecimal, as `printf KEY | sha256sum` gives it",
                  number);
    }
    const auto same = [&](const Tenant& each) { return each.name == name || each.key == *key; };
    if (std::ranges::any_of(tenants, same)) {
      return fail(ErrorCode::kInvalidArgument, "line {}: the name or key of another line", number);
    }
    Tenant tenant{.name = std::string(name), .key = *key};
    for (std::string_view word = take_word(line); !word.empty(); word = take_word(line)) {
      if (const Status read = read_bound(word, tenant); !read) {
        return fail(ErrorCode::kInvalidArgument, "line {}: {}", number, read.error().message);
      }
    }
    tenants.push_back(std::move(tenant));
  }
  if (tenants.empty()) return fail(ErrorCode::kInvalidArgument, "names no tenant");
  return tenants;
}

std::uint32_t places_of(const Tenant& tenant, std::uint32_t requests_max) {
  const std::uint32_t own = tenant.requests_max.value_or(0);
  return own > 0 ? own : requests_max;
}

Tenants::Tenants(std::vector<Tenant> tenants, std::uint32_t requests_max)
    : tenants_(std::move(tenants)), requests_max_(requests_max) {
  for (std::size_t i = 0; i < tenants_.size(); ++i) counts_.push_back(std::make_shared<Counts>());
}

// How far two hashes agree says nothing of the key.
int Tenants::find(std::string_view key) const {
  const Sha256Digest digest = sha256(std::as_bytes(std::span(key)));
  int found = -1;
  for (std::size_t i = 0; i < tenants_.size(); ++i) {
    if (tenants_[i].key == digest) found = static_cast<int>(i);
  }
  return found;
}

bool Tenants::admit(int tenant, std::size_t requests, Places& places) {
  const std::shared_ptr<Counts>& counts = counts_[static_cast<std::size_t>(tenant)];
  const std::uint32_t most = places_of(at(tenant), requests_max_);
  const auto more = static_cast<std::uint32_t>(requests - places.size());
  counts->requests += more;
  std::uint32_t running = counts->running;
  do {
    if (most > 0 && running + more > most) {
      counts->refused += requests;
      places.clear();
      return false;
    }
  } while (!counts->running.compare_exchange_weak(running, running + more));
  const auto leave = [counts](const void*) { --counts->running; };
  while (places.size() < requests) places.emplace_back(static_cast<const void*>(counts.get()), leave);
  return true;
}

std::vector<TenantMetrics> Tenants::metrics() const {
  std::vector<TenantMetrics> metrics;
  for (std::size_t i = 0; i < tenants_.size(); ++i) {
    const Counts& counts = *counts_[i];
    metrics.push_back({.name = tenants_[i].name,
                       .requests = counts.requests,
                       .refused = counts.refused,
                       .running = counts.running,
                       .served = {},
                       .store = {}});
  }
  return metrics;
}

}  // namespace shale
