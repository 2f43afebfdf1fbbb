// The eviction policies there are (the offline optimum, which is none, is in optimum.h). Each is one file of this
// folder; adding one adds its file and its line here.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "paging/eviction_policy.h"

// Alphabetical.
#define SHALE_EVICTION_POLICIES(X) \
  X(arc)                           \
  X(fifo)                          \
  X(gdsf)                          \
  X(hazard)                        \
  X(hybrid)                        \
  X(hybrid_tabulated)              \
  X(lfu)                           \
  X(lru)                           \
  X(lru_k)                         \
  X(random)                        \
  X(s3fifo)                        \
  X(sieve)                         \
  X(slru)                          \
  X(wtinylfu)

namespace shale {

struct EvictionOptions {
  std::uint64_t capacity_blocks = 0;  // nodes that the tree may hold: sizes ghost histories and segments
  std::uint64_t seed = 0;             // of policies that draw lots
  bool hybrid_counts_length = true;   // `hybrid` weighs how deep a block lies
};

// Defined by the policy's file: make_lru and so on.
#define SHALE_DECLARE(name) std::unique_ptr<EvictionPolicy> make_##name(const EvictionOptions& options);
SHALE_EVICTION_POLICIES(SHALE_DECLARE)
#undef SHALE_DECLARE

std::vector<std::string_view> eviction_policy_names();
// kInvalidArgument names the known ones.
Result<std::unique_ptr<EvictionPolicy>> make_eviction_policy(std::string_view name, const EvictionOptions& options);

}  // namespace shale
