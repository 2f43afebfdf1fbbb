// Who may use a server: each tenant has a key, of which the server knows the hash, and a cache of its own unless told
// otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/sha256.h"
#include "server/figures.h"

namespace shale {

struct Tenant {
  std::string name;  // 1 to 64 letters of ASCII, digits, '.', '_' or '-'
  Sha256Digest key = {};
};

// Lines of a name and the SHA-256 of a key, in hexadecimal, as `printf KEY | sha256sum` gives it; empty ones and those
// that begin with '#' are passed over. kInvalidArgument, with the line's number: not such a line, a name or key that
// stands there twice, no tenant at all.
Result<std::vector<Tenant>> parse_tenants(std::string_view text);

// Thread-safe, but for its making.
class Tenants {
 public:
  // `requests_max`: that one may have under way or waiting; 0: as many as the server takes.
  Tenants(std::vector<Tenant> tenants, std::uint32_t requests_max);

  bool any() const { return !tenants_.empty(); }
  // The index of the one whose key this is, or -1; takes as long whosever it is.
  int find(std::string_view key) const;
  const std::string& name(int tenant) const { return tenants_[static_cast<std::size_t>(tenant)].name; }

  // A request of the tenant, counted as under way until it is dropped; null where it has too many.
  std::shared_ptr<const void> admit(int tenant);

  std::vector<TenantFigures> figures() const;

 private:
  struct Counts {
    std::atomic<std::uint64_t> requests = 0, refused = 0;
    std::atomic<std::uint32_t> under_way = 0;
  };
  const std::vector<Tenant> tenants_;
  const std::uint32_t requests_max_;
  std::vector<std::shared_ptr<Counts>> counts_;  // by tenant
};

}  // namespace shale
