#include "cache/lossy_prefixes.h"

#include <algorithm>
#include <utility>

namespace shale {

void LossyPrefixes::keep(LossyPrefix prefix) {
  sharings_counted_.reset();
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
  sharings_counted_.reset();
  std::erase_if(prefixes_, [&](const LossyPrefix& each) { return &each == &prefix; });
  ++evictions_;
}

// What one began with, others hold as well. Whoever holds what nobody began with holds all before it.
void LossyPrefixes::count(const PrefixTree& tree) const {
  const PagePool& pool = prefixes_.front().pages.pool();
  if (sharings_counted_ == pool.sharings()) return;
  sharings_counted_ = pool.sharings();
  std::vector<PageId> held, evictable;
  for (const LossyPrefix& prefix : prefixes_) {
    const std::vector<PageId> pages = prefix.pages.page_ids();
    held.insert(held.end(), pages.begin(), pages.end());
  }
  std::ranges::sort(held);
  for (auto page = held.begin(), next = page; page != held.end(); page = next) {
    next = std::upper_bound(page, held.end(), *page);
    const PoolBlockId block = pool.block_of(*page);
    const std::uint32_t nodes = pool.is_split(block) ? 0 : tree.holders(block);
    if (pool.page_references(*page) == nodes + (next - page)) evictable.push_back(*page);
  }
  evictable_pages_ = static_cast<std::uint32_t>(evictable.size());
  for (const LossyPrefix& prefix : prefixes_) {
    prefix.pages_in_use = static_cast<std::uint32_t>(std::ranges::count_if(
        prefix.pages.page_ids(), [&](PageId page) { return !std::ranges::binary_search(evictable, page); }));
  }
}

std::uint32_t LossyPrefixes::evictable(const PrefixTree& tree) const {
  if (prefixes_.empty()) return 0;
  count(tree);
  return prefixes_.front().pages.pool().shape().blocks_for_pages(evictable_pages_);
}

std::uint32_t LossyPrefixes::in_use(const LossyPrefix& prefix, const PrefixTree& tree) const {
  count(tree);
  return prefix.pages.pool().shape().blocks_for_pages(prefix.pages_in_use);
}

}  // namespace shale
