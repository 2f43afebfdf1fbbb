// The block pool, as the placement counts it: which entries' tokens it holds.
#include <algorithm>

#include "cache/cache_state.h"

namespace shale {

namespace {

constexpr std::size_t kPooledLookedAtARound = 32;

}  // namespace

// Of the entry's tokens, that lie in the pool; none where what it continues is not known.
double Cache::State::share_in_pool(const Entry& entry) const {
  std::vector<const Entry*> chain = {&entry};
  while (chain.back()->first_position > 0) {
    const Entry* above = index.find(chain.back()->parent);
    if (!above || above->end_position() != chain.back()->first_position) return 0;
    chain.push_back(above);
  }
  std::vector<std::int32_t> tokens;
  for (auto each = chain.rbegin(); each != chain.rend(); ++each) {
    tokens.insert(tokens.end(), (*each)->tokens.begin(), (*each)->tokens.end());
  }
  const std::uint32_t matched = tree->match(tokens);
  if (matched <= entry.first_position) return 0;
  return static_cast<double>(matched - entry.first_position) / static_cast<double>(entry.tokens.size());
}

void Cache::State::note_in_pool(const Entry& entry, double share) {
  const auto at = planned.find(entry.key);
  if (at == planned.end() || !at->second.slot) return;
  if (at->second.pool_share == 0 && share > 0) pooled.push_back(entry.key);
  at->second.pool_share = share;
  placement->in_pool(*at->second.slot, share);
}

// The pool holds so many tokens of the chain.
void Cache::State::note_in_pool(std::span<const EntryIndex::Link> chain, std::uint32_t tokens) {
  for (const EntryIndex::Link& link : chain) {
    const std::uint32_t first = link.entry->first_position;
    const std::uint32_t covered = tokens > first ? std::min(tokens - first, link.matched) : 0;
    note_in_pool(*link.entry, static_cast<double>(covered) / static_cast<double>(link.entry->tokens.size()));
  }
}

// What the pool has evicted since, it holds no more; a few entries a round.
void Cache::State::look_at_pool() {
  if (tree->evictions() == evictions_looked_at) return;
  const std::size_t pooled_before = pooled.size();
  for (std::size_t i = 0; i < std::min(kPooledLookedAtARound, pooled_before); ++i) {
    const EntryKey key = pooled.front();
    pooled.pop_front();
    const Entry* entry = index.find(key);
    const auto at = planned.find(key);
    if (!entry || at == planned.end()) continue;
    const double share = share_in_pool(*entry);
    if (share > 0) pooled.push_back(key);
    if (share != at->second.pool_share) {
      at->second.pool_share = share;
      if (at->second.slot) placement->in_pool(*at->second.slot, share);
    }
  }
  if (pooled_before <= kPooledLookedAtARound) evictions_looked_at = tree->evictions();
}

}  // namespace shale
