#include "cache/lossy_prefixes.h"

#include <algorithm>
#include <utility>

namespace shale {

std::uint32_t LossyPrefix::blocks_min() const {
  const std::uint32_t block_tokens = pages.pool().shape().block_size;
  std::uint32_t end = 0, least = lossy_from / block_tokens;
  for (const SourceUsed& source : sources) {
    end += source.tokens;
    if (!source.method.scorer.empty()) least = std::max(least, end / block_tokens);
  }
  return std::min(least, blocks());
}

// Of equal keys the last alone is compared: it names all before it.
void LossyPrefixes::keep(LossyPrefix prefix) {
  sharings_counted_.reset();
  const std::uint32_t least = prefix.blocks_min(), blocks = prefix.blocks();
  std::erase_if(prefixes_, [&](const LossyPrefix& other) {
    return other.blocks() >= least && other.blocks() <= blocks && other.keys.back() == prefix.keys[other.blocks() - 1];
  });
  prefixes_.push_back(std::move(prefix));
}

LossyPrefixes::Found LossyPrefixes::find(std::span<const BlockKey> keys, const Accepts& accepts) {
  const std::uint32_t block_tokens = prefixes_.empty() ? 1 : prefixes_.front().pages.pool().shape().block_size;
  Found longest;
  for (LossyPrefix& prefix : prefixes_) {
    const auto alike = static_cast<std::uint32_t>(std::ranges::mismatch(prefix.keys, keys).in1 - prefix.keys.begin());
    const std::uint32_t least = prefix.blocks_min();
    if (alike < least) continue;
    for (const std::uint32_t blocks : {alike, least}) {  // what was computed behind the others may be worth less
      if (blocks <= longest.blocks || !accepts(first_of(prefix.sources, blocks * block_tokens))) continue;
      longest = {&prefix, blocks};
      break;
    }
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
