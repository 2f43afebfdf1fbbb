// The block pool: what it holds of prefixes, and what the placement is told of that.
#include <algorithm>
#include <cassert>
#include <utility>

#include "cache/cache_state.h"
#include "extents/extent_io.h"

namespace shale {
namespace {

constexpr std::size_t kPooledMax = 256;  // chains; of older ones nobody knows when they are evicted
constexpr std::size_t kLookedAtAPiece = 8;
constexpr double kLookEveryS = 1;

}  // namespace

// What the pool holds is worth less on a tier.
void Cache::State::note_in_pool(std::span<const std::int32_t> tokens, std::string_view salt, std::vector<BlockKey> keys,
                                std::uint32_t reproducible, std::uint32_t lossy_from) {
  if (keys.empty()) return;
  std::vector<BlockKey> names = names_of(keys, reproducible, lossy_from);
  const auto blocks = static_cast<std::uint32_t>(keys.size());
  // What the tree has exactly is not merely lossy, whatever else there is of it.
  const bool is_lossy = lossy_from != kAllTokens && tree->match(tokens, salt) < blocks * block_tokens();
  const auto same = std::ranges::find_if(pooled, [&](const Pooled& each) { return each.names.back() == names.back(); });
  if (same != pooled.end() && same->blocks == blocks && same->known == blocks && same->lossy <= is_lossy) return;
  const std::uint32_t known =
      std::min(store->in_pool(names, blocks, PoolNews::kHeld, tenant_of(salt), is_lossy), blocks);
  if (same != pooled.end()) {
    same->blocks = blocks;
    same->known = known;
    same->lossy = is_lossy;
    return;
  }
  if (is_lossy && known == 0) return;  // it may never come to rest, and others would be forgotten for it
  pooled.push_back(
      {std::string(salt), {tokens.begin(), tokens.end()}, std::move(keys), std::move(names), blocks, known, is_lossy});
  if (pooled.size() <= kPooledMax) return;
  const Pooled oldest = std::move(pooled.front());
  pooled.pop_front();
  std::ptrdiff_t others = 0;  // blocks of it that others hold
  for (const Pooled& each : pooled) {
    others = std::max(others, std::ranges::mismatch(oldest.names, each.names).in1 - oldest.names.begin());
  }
  store->in_pool(oldest.names, static_cast<std::uint32_t>(others), PoolNews::kForgotten, tenant_of(oldest.salt),
                 oldest.lossy);
}

// What the pool has evicted since, it holds no more, and lossy pages count while requests take them; a few chains a
// piece of work. A full pool evicts in every step: what it evicts during a round is for a later one.
void Cache::State::look_at_pool() {
  const std::uint64_t evictions = tree->evictions() + lossy.evictions();
  if (to_look_at == 0 && evictions != evictions_seen && clock.now_s() >= next_look_s) {
    evictions_seen = evictions;
    to_look_at = pooled.size();
    next_look_s = clock.now_s() + kLookEveryS;
  }
  const std::size_t now = std::min({kLookedAtAPiece, to_look_at, pooled.size()});
  to_look_at -= now;
  stats.chains_looked_at += now;
  for (std::size_t i = 0; i < now; ++i) {
    Pooled chain = std::move(pooled.front());
    pooled.pop_front();
    const std::uint32_t of_lossy = find_lossy(chain.keys, {}).blocks;
    const bool refused = lossy.find(chain.keys, [](LossyPrefix&, std::uint32_t) { return true; }).blocks > of_lossy;
    const std::uint32_t exact = tree->match(chain.tokens, chain.salt) / block_tokens();
    const std::uint32_t blocks = std::max(exact, of_lossy);
    const bool now_lossy = of_lossy > exact;
    const PoolNews news = refused ? PoolNews::kForgotten : PoolNews::kEvicted;
    if (blocks != chain.blocks || now_lossy != chain.lossy) {
      store->in_pool(chain.names, blocks, news, tenant_of(chain.salt), now_lossy);
      if (now_lossy && exact > 0) store->in_pool(chain.names, exact, PoolNews::kHeld, tenant_of(chain.salt));
    }
    chain.blocks = blocks;
    chain.lossy = now_lossy;
    if (blocks > 0) pooled.push_back(std::move(chain));
  }
}

// A form that the request names serves it in that form; any other as long as it is thought to be good enough.
bool Cache::State::accepts(std::span<const SourceUsed> sources, const RequestPolicy& policy) const {
  return std::ranges::all_of(sources, [&](const SourceUsed& source) {
    if (!source.lossy()) return true;
    if (policy.named()) {
      return !source.behind_lossy && source.method == *policy.method && source.keep == grid_keep(policy.keep);
    }
    const bool read_in_part = source.method == planner.method && source.keep < planner.keep;
    if (read_in_part && policy.quality_min > 0) return false;  // as store_needs
    const auto worth = quality(source);
    return worth && *worth >= policy.quality_min;
  });
}

void Cache::place_again(const Hash128& run) {
  state_->to_look_at = state_->pooled.size();  // pages of forms that are not good enough now
  state_->store->place_again(run);
}

LossyPrefixes::Found Cache::State::find_lossy(std::span<const BlockKey> keys, const RequestPolicy& policy) {
  if (policy.exact) return {};
  return lossy.find(keys, [&](LossyPrefix& prefix, std::uint32_t blocks) {
    judge_anew(prefix);
    return accepts(first_of(prefix.sources, blocks * block_tokens()), policy);
  });
}

void Cache::insert_prefix(std::span<const std::int32_t> tokens, const Sequence& sequence, std::uint32_t reproducible,
                          std::string_view salt) {
  assert(!sequence.lossy());
  State& s = *state_;
  std::vector<BlockKey> keys = s.keys_of(tokens, salt);
  std::vector<std::uint64_t> names;
  if (s.options.events && salt.empty()) std::ranges::transform(keys, std::back_inserter(names), KvEvents::name_of);
  // Without room for the bookkeeping the pages are simply not shared.
  if (!s.tree->insert(tokens, sequence, reproducible, salt, names)) return;
  if (!names.empty()) s.options.events->in_pool(tokens.first(names.size() * s.block_tokens()), keys);
  s.note_in_pool(tokens, salt, std::move(keys), s.tree->prefix(tokens, salt).reproducible);
}

// What requests that demand nothing may take counts as held.
void Cache::State::keep_lossy(LossyPrefix prefix, std::span<const std::int32_t> tokens, std::string_view salt,
                              std::uint32_t reproducible) {
  if (accepts(prefix.sources, {})) note_in_pool(tokens, salt, prefix.keys, reproducible, prefix.lossy_from);
  lossy.keep(std::move(prefix));
}

void Cache::keep_form(const NewRun& run, const Sequence& sequence) {
  State& s = *state_;
  const std::uint32_t end = sequence.length();
  LossyPrefix prefix{.keys = s.keys_of(run.tokens, run.salt),
                     .lossy_from = end,
                     .pages = sequence.fork(),
                     .sources = {},
                     .used_s = s.clock.now_s()};
  const std::string pool(kPoolSource);
  if (run.first > 0) prefix.sources.push_back({.where = pool, .tokens = run.first});
  SourceUsed form{.where = pool, .method = *run.method, .keep = grid_keep(run.keep), .tokens = end - run.first};
  form.run = run_name(prefix.keys.back());
  form.quality = s.expected(form);
  prefix.sources.push_back(std::move(form));
  s.keep_lossy(std::move(prefix), run.tokens, run.salt, run.reproducible);
}

void Cache::insert_behind_lossy(std::span<const std::int32_t> tokens, const Sequence& sequence,
                                std::vector<SourceUsed> sources, std::uint32_t lossy_from, std::string_view salt) {
  assert(sequence.lossy() && !sequence.ragged());
  std::uint32_t found = 0;
  for (const SourceUsed& source : sources) found += source.tokens;
  const std::uint32_t end = whole_blocks(tokens.size());
  if (end <= found) return;
  if (sources.empty() || !sources.back().computed_behind_lossy()) {
    SourceUsed computed{.where = std::string(kPoolSource), .quality = expected_quality(sources), .behind_lossy = true};
    sources.push_back(std::move(computed));
  }
  sources.back().tokens += end - found;
  State& s = *state_;
  LossyPrefix prefix{.keys = s.keys_of(tokens, salt),
                     .lossy_from = lossy_from,
                     .pages = sequence.fork(),
                     .sources = std::move(sources),
                     .used_s = s.clock.now_s()};
  prefix.pages.truncate(end);
  s.keep_lossy(std::move(prefix), tokens.first(end), salt, kAllTokens);
}

std::uint32_t Cache::pool_prefix(std::span<const std::int32_t> tokens, std::string_view salt) const {
  return state_->tree->match(tokens, salt);
}

std::uint32_t Cache::pool_blocks_in_use(std::span<const std::int32_t> tokens, const RequestPolicy& policy) const {
  const PrefixTree& tree = *state_->tree;
  if (policy.exact) return tree.in_use(tokens.first(tree.prefix(tokens, policy.salt).reproducible), policy.salt);
  const std::uint32_t exact = tree.in_use(tokens, policy.salt);
  if (state_->lossy.empty()) return exact;  // no keys are needed
  const LossyPrefixes::Found found = state_->find_lossy(state_->keys_of(tokens, policy.salt), policy);
  return found.prefix ? std::max(exact, std::min(found.blocks, state_->lossy.in_use(*found.prefix, tree))) : exact;
}

// What was used longest ago goes first, of exact blocks by the policy.
bool Cache::State::evict_until_free(std::uint32_t blocks) {
  if (pool.blocks_free() >= blocks) return true;
  while (const LossyPrefix* oldest = lossy.oldest(*tree)) {
    if (tree->evict_until_free(blocks, oldest->used_s)) return true;
    lossy.drop(*oldest);
  }
  return tree->evict_until_free(blocks);
}

bool Cache::State::evict_if_enough(std::uint32_t blocks) {
  return pool.blocks_free() + blocks_evictable() >= blocks && evict_until_free(blocks);
}

bool Cache::evict_if_enough(std::uint32_t blocks) { return state_->evict_if_enough(blocks); }
bool Cache::evict_until_free(std::uint32_t blocks, std::uint32_t left) {
  const std::uint32_t free = pool().blocks_free();
  if (left > 0 && free + blocks_evictable() < blocks + left) return free >= blocks;
  return state_->evict_until_free(blocks);
}

void Cache::give_up(std::span<const PoolBlockId> blocks) { state_->tree->give_up(blocks); }

std::uint32_t Cache::State::blocks_evictable() const { return tree->evictable() + lossy.evictable(*tree); }
std::uint32_t Cache::blocks_evictable() const { return state_->blocks_evictable(); }

}  // namespace shale
