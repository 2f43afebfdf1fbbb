#include "cache/lossy_prefixes.h"

#include <algorithm>
#include <utility>

namespace shale {

void LossyPrefixes::keep(LossyPrefix prefix) {
  std::erase_if(prefixes_, [&](const LossyPrefix& other) { return other.last == prefix.last; });
  prefixes_.push_back(std::move(prefix));
}

LossyPrefix* LossyPrefixes::find(std::span<const BlockKey> keys, const Accepts& accepts) {
  LossyPrefix* longest = nullptr;
  for (LossyPrefix& prefix : prefixes_) {
    const std::uint32_t blocks = prefix.blocks();
    if (blocks > keys.size() || keys[blocks - 1] != prefix.last) continue;
    if ((!longest || blocks > longest->blocks()) && accepts(prefix)) longest = &prefix;
  }
  return longest;
}

const LossyPrefix* LossyPrefixes::oldest() const {
  const LossyPrefix* oldest = nullptr;
  for (const LossyPrefix& prefix : prefixes_) {
    if ((!oldest || prefix.used_s < oldest->used_s) && prefix.pages.held_alone()) oldest = &prefix;
  }
  return oldest;
}

void LossyPrefixes::drop(const LossyPrefix& prefix) {
  std::erase_if(prefixes_, [&](const LossyPrefix& each) { return &each == &prefix; });
  ++evictions_;
}

std::uint32_t LossyPrefixes::evictable() const {
  std::uint32_t blocks = 0;
  for (const LossyPrefix& prefix : prefixes_) {
    if (prefix.pages.held_alone()) blocks += prefix.pages.pool().shape().blocks_for_pages(prefix.pages.pages());
  }
  return blocks;
}

}  // namespace shale
