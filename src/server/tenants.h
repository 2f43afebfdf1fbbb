// Who may use a server: each tenant has a key, of which the server knows the hash, and a cache of its own unless told
// otherwise.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/sha256.h"
#include "server/metrics.h"

namespace shale {

struct Tenant {
  std::string name;  // 1 to 64 letters of ASCII, digits, '.', '_' or '-'
  Sha256Digest key = {};
  std::optional<std::uint32_t> requests_max = {};  // running or waiting; nothing or 0: as of those who do not say
  std::optional<std::uint64_t> bytes_max = {};     // that its extents may take; 0: any
  double weight = 1;                               // of its share, beside others'; above 0
};

//   file   := { line "\n" }
//   line   := [ name sha256 { bound } ] | "#" …      words are separated by blanks
//   sha256 := 64 hexadecimal digits of a key's, as `printf KEY | sha256sum` gives it
//   bound  := "requests=" N | "bytes=" size | "weight=" number      each once at most
// kInvalidArgument, with the line's number: not such a line, a name or key that stands there twice, no tenant at all.
Result<std::vector<Tenant>> parse_tenants(std::string_view text);

// How many requests the tenant may have running or waiting, where one whose line does not say may have `requests_max`.
std::uint32_t places_of(const Tenant& tenant, std::uint32_t requests_max);

// Thread-safe, but for its making.
class Tenants {
 public:
  // `requests_max`: that one whose line does not say may have running or waiting; 0: any number.
  Tenants(std::vector<Tenant> tenants, std::uint32_t requests_max);

  bool any() const { return !tenants_.empty(); }
  // The index of the one whose key this is, or -1; takes as long whosever it is.
  int find(std::string_view key) const;
  const Tenant& at(int tenant) const { return tenants_[static_cast<std::size_t>(tenant)]; }

  // Requests of a tenant, each counted as running until it is dropped.
  using Places = std::vector<std::shared_ptr<const void>>;
  // Adds to `places` until they are so many; where that would be too many for the tenant drops them, and returns false.
  bool admit(int tenant, std::size_t requests, Places& places);

  std::vector<TenantMetrics> metrics() const;

 private:
  struct Counts {
    std::atomic<std::uint64_t> requests = 0, refused = 0;
    std::atomic<std::uint32_t> running = 0;
  };
  const std::vector<Tenant> tenants_;
  const std::uint32_t requests_max_;
  std::vector<std::shared_ptr<Counts>> counts_;  // by tenant
};

}  // namespace shale
