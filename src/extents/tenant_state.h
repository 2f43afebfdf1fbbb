// What a store knows of one of its tenants.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/hash.h"
#include "extents/extent_index.h"
#include "extents/store_options.h"
#include "extents/store_report.h"

namespace shale {

// The realm in which a tenant's blocks are named.
inline Hash128 realm_of(const StoreOptions& options, std::string_view tenant) {
  return realm_hash(options.name_space, options.geometry, options.chunk_tokens, tenant);
}

struct TenantState {
  Hash128 realm;
  std::uint16_t number = 0;  // in the index
  StoreTenantStats counts = {};
  std::uint64_t bytes_promised = 0;  // to extents that are about to lie somewhere
};

}  // namespace shale
