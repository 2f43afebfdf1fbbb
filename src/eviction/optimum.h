// The offline optimum: Belady's rule on the leaves of a tree. It knows the future, so it is no policy to run but the
// bound to compare policies with.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "paging/eviction_policy.h"

namespace shale {

inline constexpr std::uint32_t kNeverUsed = ~std::uint32_t{0};

// Where each of `blocks` comes next among them, or kNeverUsed. They are the paths of all requests, one after another,
// in the order in which they will be served. A block's number is less than `block_count` and stands for its whole
// prefix. At most 2^32 - 1 blocks.
std::vector<std::uint32_t> next_uses(std::span<const std::uint32_t> blocks, std::uint32_t block_count);

// Evicts the leaf whose next use is farthest, the deepest of those that are never used again. `next_uses` is as above
// and outlives the policy; `access` must be told exactly those paths in that order, each once.
std::unique_ptr<EvictionPolicy> make_optimum(std::span<const std::uint32_t> next_uses);

}  // namespace shale
