#include "cache/lossy_prefixes.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <tuple>
#include <utility>

namespace shale {
namespace {

// How many of the first are the same: a key names all before it.
std::uint32_t blocks_alike(std::span<const BlockKey> keys, std::span<const BlockKey> others) {
  const auto blocks = std::views::iota(0u, static_cast<std::uint32_t>(std::min(keys.size(), others.size())));
  const auto end = std::ranges::partition_point(blocks, [&](std::uint32_t b) { return keys[b] == others[b]; });
  return static_cast<std::uint32_t>(end - blocks.begin());
}

// Method and keep, and whether it was computed behind lossy KV.
using Form = std::tuple<Method, double, bool>;

// Of the first so many tokens, in how many of them, wherever these were found.
std::vector<std::pair<Form, std::uint32_t>> forms_of(const std::vector<SourceUsed>& sources, std::uint32_t tokens) {
  std::vector<std::pair<Form, std::uint32_t>> forms;
  for (const SourceUsed& source : first_of(sources, tokens)) {
    const Form form(source.method, source.keep, source.behind_lossy);
    if (forms.empty() || forms.back().first != form) forms.emplace_back(form, 0);
    forms.back().second += source.tokens;
  }
  return forms;
}

// Its pages, but of a whole block the first alone.
std::vector<PageId> held_by(const Sequence& sequence) {
  const PagePool& pool = sequence.pool();
  std::vector<PageId> held;
  if (!sequence.ragged() && !sequence.has_overlay()) {
    for (const PoolBlockId block : sequence.blocks(sequence.length())) held.push_back(pool.page_of(block, 0));
    return held;
  }
  held = sequence.page_ids();
  std::erase_if(held, [&](PageId page) {
    const PoolBlockId block = pool.block_of(page);
    return page != pool.page_of(block, 0) && !pool.is_split(block);
  });
  return held;
}

}  // namespace

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
  const std::uint32_t block_tokens = prefix.pages.pool().shape().block_size;
  std::erase_if(prefixes_, [&](const LossyPrefix& other) {
    const std::uint32_t tokens = other.blocks() * block_tokens;
    const bool served = other.blocks() >= least && other.blocks() <= blocks &&
                        other.keys.back() == prefix.keys[other.blocks() - 1] &&
                        forms_of(other.sources, tokens) == forms_of(prefix.sources, tokens);
    if (served) let_go(other);
    return served;
  });
  prefix.held = held_by(prefix.pages);
  for (const PageId page : prefix.held) ++holders_[page];
  prefixes_.push_back(std::move(prefix));
}

void LossyPrefixes::let_go(const LossyPrefix& prefix) {
  for (const PageId page : prefix.held) {
    const auto holders = holders_.find(page);
    if (--holders->second == 0) holders_.erase(holders);
  }
}

LossyPrefixes::Found LossyPrefixes::find(std::span<const BlockKey> keys, const Accepts& accepts) {
  const std::uint32_t block_tokens = prefixes_.empty() ? 1 : pool().shape().block_size;
  Found longest;
  double worth_of_longest = 0;
  for (LossyPrefix& prefix : prefixes_) {
    const std::uint32_t alike = blocks_alike(prefix.keys, keys), least = prefix.blocks_min();
    if (alike < least) continue;
    for (const std::uint32_t blocks : {alike, least}) {  // what was computed behind the others may be worth less
      if (blocks == 0 || blocks < longest.blocks) continue;
      if (!accepts(prefix, blocks)) continue;
      const double worth = expected_quality(first_of(prefix.sources, blocks * block_tokens)).value_or(0);
      if (blocks == longest.blocks && worth <= worth_of_longest) continue;
      longest = {&prefix, blocks};
      worth_of_longest = worth;
      break;
    }
  }
  return longest;
}

// From the last page on, which is the likeliest to be nobody else's.
const LossyPrefix* LossyPrefixes::oldest(const PrefixTree& tree) const {
  const LossyPrefix* oldest = nullptr;
  for (const LossyPrefix& prefix : prefixes_) {
    if (oldest && prefix.used_s >= oldest->used_s) continue;
    const auto last_first = prefix.held | std::views::reverse;
    if (!std::ranges::all_of(last_first, [&](PageId page) { return held_by_others(page, tree); })) oldest = &prefix;
  }
  return oldest;
}

void LossyPrefixes::drop(const LossyPrefix& prefix) {
  sharings_counted_.reset();
  let_go(prefix);
  std::erase_if(prefixes_, [&](const LossyPrefix& each) { return &each == &prefix; });
  ++evictions_;
}

bool LossyPrefixes::held_by_others(PageId page, const PrefixTree& tree, std::span<const PoolBlockId> given_back) const {
  const PoolBlockId block = pool().block_of(page);
  const std::size_t nodes = pool().is_split(block) ? 0 : tree.holders(block);
  const auto given = std::ranges::equal_range(given_back, block).size();
  return pool().page_references(page) != nodes + holders_.at(page) + given;
}

std::uint32_t LossyPrefixes::blocks_of(std::span<const PageId> held) const {
  const auto whole = static_cast<std::uint32_t>(
      std::ranges::count_if(held, [&](PageId page) { return !pool().is_split(pool().block_of(page)); }));
  return whole + pool().shape().blocks_for_pages(static_cast<std::uint32_t>(held.size()) - whole);
}

// What one began with, others hold as well. Whoever holds what nobody began with holds all before it.
std::uint32_t LossyPrefixes::evictable(const PrefixTree& tree, std::span<const PoolBlockId> given_back) const {
  std::vector<PageId> pages;
  for (const auto& [page, holders] : holders_) {
    if (!held_by_others(page, tree, given_back)) pages.push_back(page);
  }
  return pages.empty() ? 0 : blocks_of(pages);
}

// Counted anew once somebody began or ceased to share a page.
std::uint32_t LossyPrefixes::evictable(const PrefixTree& tree) const {
  if (prefixes_.empty()) return 0;
  if (sharings_counted_ != pool().sharings()) evictable_ = evictable(tree, {});
  sharings_counted_ = pool().sharings();
  return evictable_;
}

std::uint32_t LossyPrefixes::in_use(const LossyPrefix& prefix, const PrefixTree& tree) const {
  std::vector<PageId> pages;
  std::ranges::copy_if(prefix.held, std::back_inserter(pages), [&](PageId page) { return held_by_others(page, tree); });
  return blocks_of(pages);
}

std::uint32_t LossyPrefixes::holders(PoolBlockId block) const {
  const auto found = prefixes_.empty() ? holders_.end() : holders_.find(pool().page_of(block, 0));
  return found == holders_.end() ? 0 : found->second;
}

}  // namespace shale
