#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <utility>

#include "cache/cache_state.h"
#include "codec/views/sequence_view.h"

namespace shale {
namespace {

constexpr double kLeftAloneS = 10;
// A front is waited for where it is so much of what is to be loaded. Of less, reading it twice costs about as little as
// estimates are off, while whoever waits asks for nothing until all of the other's load is there.
constexpr double kFrontShareMin = 1.0 / 8;

// Keys of three heads of every layer, by which IMPRESS finds out what of a token's chunk is important.
std::uint64_t head_bytes_per_token(const PageShape& shape) {
  constexpr std::uint64_t kHeads = 3;
  return std::min<std::uint64_t>(kHeads, shape.kv_heads) * shape.layers * shape.head_dim * sizeof(Half);
}

}  // namespace

std::uint8_t Cache::State::tiers_left_alone() const {
  std::uint8_t bits = 0;
  for (std::size_t tier = 0; tier < tiers.size(); ++tier) {
    if (clock.now_s() < left_alone_until_s[tier]) bits = static_cast<std::uint8_t>(bits | 1u << tier);
  }
  return bits;
}

void Cache::State::leave_alone(std::uint32_t tier_bits) {
  ++stats.late_loads;
  for (std::size_t tier = 0; tier < tiers.size(); ++tier) {
    if (tier_bits >> tier & 1) left_alone_until_s[tier] = clock.now_s() + kLeftAloneS;
  }
}

Meeting::Context Cache::State::meeting_context(const StoreNeeds& needs, std::string_view salt, double slowdown) {
  return {.store = *store,
          .pool = pool,
          .tiers = tiers,
          .costs = costs,
          .clock = clock,
          .needs = {.exact = true, .tiers_excluded = needs.tiers_excluded},
          .chunk_blocks = options.chunk_tokens / block_tokens(),
          .tenant = std::string(tenant_of(salt)),
          .slowdown = slowdown,
          // What it reads may yet be computed sooner: nothing is given up for it.
          .ensure_free = [this](std::uint32_t blocks) { return evict_if_enough(blocks); }};
}

void Cache::State::load(std::span<const std::int32_t> wanted, const Choice& choice, Sequence& sequence,
                        Retrieval& retrieval, const Backlog& backlog) {
  const std::uint32_t blocks_loaded = choice.end_block - choice.first_block;
  const std::uint32_t block = block_tokens(), count = blocks_loaded * block;
  if (!sequence.append(count)) {
    const bool freed = backlog.ensure_free ? backlog.ensure_free(blocks_loaded) : evict_until_free(blocks_loaded);
    if (!freed || !sequence.append(count)) return;
  }
  StoreLoadOptions load_options;
  load_options.needs = choice.needs;
  load_options.tenant = tenant_of(retrieval.state_->salt);
  load_options.first_block = choice.first_block;
  load_options.end_block = choice.end_block;
  load_options.tokens = wanted;
  load_options.counts = choice.counts;
  auto load = store->load(choice.names, view_of(sequence, choice.pool_tokens, count), load_options);
  // Another may have had it removed meanwhile.
  const std::uint32_t blocks = load ? (*load)->blocks() : 0;
  sequence.truncate(choice.pool_tokens + blocks * block);
  if (blocks == 0) return;
  Retrieval::State& loading = *retrieval.state_;
  loading.load = std::move(*load);
  loading.first_token = choice.pool_tokens;
  loading.tokens = loading.tokens_loaded = choice.pool_tokens + blocks * block;
  loading.lossy_from = std::min(loading.lossy_from, choice.lossy_from);
  loading.expected_s = choice.arrives_s;
  loading.quantizer = choice.spans.front().method.quantizer;
  for (const StoreLookup::PrefixSpan& span : choice.spans) {
    const std::uint32_t first = std::max(span.first_block, choice.first_block);
    const std::uint32_t end = std::min(end_of(span), choice.first_block + blocks);
    if (first >= end) continue;
    loading.lossy = loading.lossy || !span.exact;
    if (span.method.quantizer != loading.quantizer) loading.quantizer.clear();
    if (span.keep < planner.keep && span.method == planner.method) {
      stats.head_bytes += (end - first) * block * head_bytes_per_token(pool.shape());
    }
    const std::uint64_t bytes = span.bytes * (end - first) / span.blocks;
    const std::string& where = tiers[span.tier]->name();
    SourceUsed* last = loading.sources.empty() ? nullptr : &loading.sources.back();
    const bool behind_lossy = first * block >= choice.lossy_from;
    const bool goes_on = last && last->run == span.run && last->where == where && last->method == span.method &&
                         last->keep == span.keep && last->behind_lossy == behind_lossy;
    if (goes_on) {
      last->tokens += (end - first) * block;
      last->bytes += bytes;
    } else {
      SourceUsed& source = loading.sources.emplace_back(source_of(span, behind_lossy));
      source.where = where;
      source.tokens = (end - first) * block;
      source.bytes = bytes;
      if (!span.exact) source.quality = expected(source);
    }
  }
  loading.number = ++loads_begun;
  loading.names.assign(choice.names.begin(), choice.names.begin() + choice.first_block + blocks);
  loading.spans = choice.spans;
  if (loading.lossy) loading.chain.assign(wanted.begin(), wanted.begin() + loading.tokens);
  loading.note_plan();
}

void Cache::publish(std::vector<std::int32_t> tokens) { state_->published.push_back(std::move(tokens)); }

// Published tokens that these begin with, in whole blocks.
std::uint32_t Cache::State::published_tokens(std::span<const std::int32_t> tokens) const {
  std::size_t longest = 0;
  for (const auto& each : published) {
    longest = std::max<std::size_t>(longest, std::ranges::mismatch(each, tokens).in1 - each.begin());
  }
  return static_cast<std::uint32_t>(longest - longest % block_tokens());
}

// How many published tokens are better taken from what everybody may have than from what the salt's own requests left;
// 0 where these left as much in the pool, exactly, or more anywhere: lossily in the pool, only where that is worth more
// than computing behind what everybody has exactly there.
std::uint32_t Cache::State::published_for(std::span<const std::int32_t> wanted, const RequestPolicy& policy) {
  if (published.empty() || policy.salt.empty() || policy.named()) return 0;
  const std::uint32_t tokens = published_tokens(wanted);
  if (tokens == 0 || tree->match(wanted, policy.salt) >= tokens) return 0;
  const std::vector<BlockKey> keys = keys_of(wanted, policy.salt);
  const LossyPrefixes::Found kept = find_lossy(keys, policy);
  if (const std::uint32_t length = kept.blocks * block_tokens(); length > tokens) {
    const std::uint32_t exact = tree->match(wanted.first(tokens));
    const double lost_s = loss_s(expected_quality(first_of(kept.prefix->sources, length)));
    if (lost_s < costs.prefill_s(length - exact, exact)) return 0;
  }
  const StoreNeeds needs{.exact = policy.exact, .quality_min = policy.quality_min};
  const StoreLookup own = store->lookup(keys, needs, tenant_of(policy.salt), policy.counts);
  return own.blocks * block_tokens() > tokens ? 0 : tokens;
}

// The first tokens of a prompt, so many of which the pool has reproducible. `keys`: of at least their blocks.
void Cache::State::adopt(std::span<const std::int32_t> tokens, std::uint32_t reproducible_in_pool,
                         std::span<const BlockKey> keys, Retrieval::State& found) {
  tree->adopt(tokens, found.sequence, clock.now_s(), found.salt);
  if (tokens.empty()) return;
  SourceUsed& source = found.sources.emplace_back();
  source.where = kPoolSource;
  source.tokens = static_cast<std::uint32_t>(tokens.size());
  const auto whole = keys.first(tokens.size() / block_tokens());
  note_in_pool(tokens, found.salt, {whole.begin(), whole.end()}, reproducible_in_pool);
}

// Likewise of what came lossily.
void Cache::State::adopt_lossy(std::span<const std::int32_t> tokens, LossyPrefix& prefix,
                               std::span<const BlockKey> keys, Retrieval::State& found) {
  const auto count = static_cast<std::uint32_t>(tokens.size());
  prefix.used_s = clock.now_s();
  found.sequence = prefix.pages.fork();
  found.sequence.truncate(count);
  found.lossy = true;
  if (prefix.lossy_from < count) found.lossy_from = prefix.lossy_from;
  found.sources = first_of(prefix.sources, count);
  if (accepts(found.sources, {})) {
    const auto whole = keys.first(count / block_tokens());
    note_in_pool(tokens, found.salt, {whole.begin(), whole.end()}, found.reproducible, prefix.lossy_from);
  }
  for (SourceUsed& source : found.sources) {
    source.where = kPoolSource;
    source.bytes = 0;
  }
}

// All but the last token, or what is published of them, by everybody's policy.
Cache::State::Wanted Cache::State::wanted(std::span<const std::int32_t> tokens, RequestPolicy policy) {
  const auto wanted = tokens.first(std::max<std::size_t>(tokens.size(), 1) - 1);
  const std::uint32_t public_tokens = published_for(wanted, policy);
  if (public_tokens == 0) return {wanted, std::move(policy)};
  policy.salt.clear();
  return {wanted.first(public_tokens), std::move(policy)};
}

Retrieval Cache::retrieve(std::span<const std::int32_t> tokens, const RequestPolicy& asked_for, Sequence& sequence,
                          const Backlog& backlog) {
  assert(sequence.length() == 0);
  State& s = *state_;
  const auto [wanted, policy] = s.wanted(tokens, asked_for);
  s.stats.lookups += policy.counts;
  if (wanted.empty()) return {};
  const std::vector<BlockKey> keys = s.keys_of(wanted, policy.salt);
  const State::Choice choice = s.choose(wanted, keys, policy, backlog);
  for (State::Saving& saving : s.saving) {
    saving.uses += std::ranges::any_of(keys, [&](const BlockKey& key) { return run_name(key) == saving.run; });
  }
  Retrieval retrieval;
  retrieval.state_ = std::make_unique<Retrieval::State>(s, sequence);
  Retrieval::State& found = *retrieval.state_;
  found.begun_s = s.clock.now_s();
  found.tokens = choice.pool_tokens;
  found.reproducible = choice.reproducible;
  found.salt = policy.salt;
  // Adopting none counts, too: the request begins.
  const bool lossy = choice.lossy.prefix;
  s.adopt(wanted.first(lossy ? 0 : choice.pool_tokens), choice.reproducible_in_pool, keys, found);
  if (lossy) s.adopt_lossy(wanted.first(choice.pool_tokens), *choice.lossy.prefix, keys, found);
  if (!choice.spans.empty()) s.load(wanted, choice, sequence, retrieval, backlog);
  if (choice.meets) {
    const std::uint32_t computed = (choice.pool_tokens + s.block_tokens() - 1) / s.block_tokens();
    found.meeting = std::make_unique<Meeting>(s.meeting_context(choice.needs, policy.salt, backlog.engine.slowdown),
                                              choice.names, wanted, *choice.meets, computed);
    found.number = ++s.loads_begun;
    found.names.assign(choice.names.begin(), choice.names.begin() + choice.end_block);
    found.spans = choice.meets->spans;
    found.expected_s = choice.arrives_s;
    ++s.stats.meetings;
  }
  for (const SourceUsed& source : found.sources) s.stats.cached.add(source.where, source.tokens);
  s.stats.hits += policy.counts && found.tokens > 0;
  return retrieval;
}

bool Cache::would_load(std::span<const std::int32_t> tokens, const RequestPolicy& asked_for, const Backlog& backlog) {
  RequestPolicy unnoticed = asked_for;
  unnoticed.counts = false;
  const auto [wanted, policy] = state_->wanted(tokens, std::move(unnoticed));
  if (wanted.empty()) return false;
  return !state_->choose(wanted, state_->keys_of(wanted, policy.salt), policy, backlog).spans.empty();
}

// Of lossy pages all or none serve another, and only one who would load them in the same forms.
std::uint32_t Cache::State::blocks_in_common(const Retrieval::State& loading, const Choice& choice, bool exact) const {
  const auto common =
      static_cast<std::uint32_t>(std::ranges::mismatch(loading.names, choice.names).in1 - loading.names.begin());
  if (loading.lossy) {
    const bool same = common == loading.names.size() && common == choice.end_block && reads(loading, choice);
    return same && !exact ? common : 0;
  }
  if (windowed()) return 0;
  return exact ? std::min(common, loading.reproducible / block_tokens()) : common;
}

// Whether all that would be loaded is being read, where it would be read: it comes no sooner if it is read twice.
bool Cache::State::reads(const Retrieval::State& loading, const Choice& choice) {
  using Span = StoreLookup::PrefixSpan;
  const auto is_read = [&](const Span& span) {
    return std::ranges::any_of(loading.spans, [&](const Span& each) {
      return each.first_block == span.first_block && each.run == span.run && each.tier == span.tier &&
             each.method == span.method && each.keep == span.keep;
    });
  };
  return !choice.spans.empty() && std::ranges::all_of(choice.spans, is_read);
}

// Whether that is there no later than it would be loaded and computed. Estimates change as tiers are measured.
bool Cache::State::comes_in_time(const Retrieval::State& loading, std::uint32_t brought, const Choice& choice,
                                 const ComputeBacklog& engine) const {
  if (reads(loading, choice)) return true;
  const std::uint32_t found = std::max(choice.pool_tokens, choice.end_block * block_tokens());
  const double comes_s = loading.begun_s + loading.expected_s - clock.now_s();
  double otherwise_s = choice.arrives_s;
  if (brought > found) otherwise_s += engine.compute_s + engine.slowdown * costs.prefill_s(brought - found, found);
  return comes_s >= 0 && comes_s <= otherwise_s;
}

// How many blocks of its front it takes from there, and loads only what lies behind them then; 0 where that saves too
// little, or all would be there later than by a load of its own. What is being read now both have before them.
std::uint32_t Cache::State::front_in_time(const Retrieval::State& loading, std::uint32_t brought,
                                          const Choice& choice) const {
  const auto rest = std::ranges::find_if(choice.spans, [&](const auto& span) { return end_of(span) > brought; });
  const std::uint32_t front = rest == choice.spans.end() ? 0 : loading_begins(*rest, brought);
  const std::uint32_t loaded = choice.end_block - choice.first_block;
  if (front < choice.first_block + kFrontShareMin * loaded) return 0;
  std::array<double, kStoreTiersMax> bytes = {};
  double rest_s = 0;
  for (auto span = rest; span != choice.spans.end(); ++span) {
    const std::uint32_t blocks = end_of(*span) - loading_begins(*span, front);
    bytes[span->tier] += static_cast<double>(span->bytes) * blocks / span->blocks;
    const TierSpeed speed = tiers[span->tier]->speed();
    rest_s = std::max(rest_s, 2 * speed.latency_s + bytes[span->tier] / speed.read_bytes_per_s);  // a manifest first
  }
  const double comes_s = loading.begun_s + loading.expected_s - clock.now_s();
  return comes_s >= 0 && comes_s + rest_s <= choice.arrives_s ? front : 0;
}

SharedLoad Cache::shared_load(std::span<const Retrieval* const> loads, std::span<const std::int32_t> tokens,
                              const RequestPolicy& asked_for, const Backlog& backlog) {
  State& s = *state_;
  RequestPolicy unnoticed = asked_for;
  unnoticed.counts = false;
  const auto [wanted, policy] = s.wanted(tokens, std::move(unnoticed));
  const std::vector<BlockKey> keys = s.keys_of(wanted, policy.salt);
  const auto begins_alike = [&](const Retrieval* load) {
    return !keys.empty() && load->state_->names.front() == keys.front();
  };
  if (std::ranges::none_of(loads, begins_alike)) return {};
  const State::Choice choice = s.choose(wanted, keys, policy, backlog);
  SharedLoad part;
  for (const Retrieval* load : loads) {
    const Retrieval::State& loading = *load->state_;
    const std::uint32_t blocks = s.blocks_in_common(loading, choice, policy.exact), brought = blocks * s.block_tokens();
    if (brought <= choice.pool_tokens) continue;
    if (blocks < choice.end_block) {
      const std::uint32_t front = s.front_in_time(loading, blocks, choice) * s.block_tokens();
      if (front > part.tokens) part = {load->load_number(), front, choice.arrives_s};
    } else if (s.comes_in_time(loading, brought, choice, backlog.engine)) {
      return {load->load_number(), brought};
    }
  }
  return part;
}

bool Cache::rematch(std::span<const std::int32_t> tokens, const RequestPolicy& policy, Sequence& sequence,
                    Retrieval& retrieval) {
  State& s = *state_;
  const auto wanted = tokens.first(std::max<std::size_t>(tokens.size(), 1) - 1);
  const PrefixTree::Prefix pooled = s.tree->prefix(wanted, policy.salt);
  const std::uint32_t in_pool = policy.exact ? pooled.reproducible : pooled.tokens, before = sequence.length();
  if (sequence.lossy() || in_pool < before + s.block_tokens()) return false;
  sequence.clear();
  retrieval = Retrieval();
  retrieval.state_ = std::make_unique<Retrieval::State>(s, sequence);
  Retrieval::State& found = *retrieval.state_;
  found.begun_s = s.clock.now_s();
  found.tokens = in_pool;
  if (in_pool > pooled.reproducible) found.reproducible = pooled.reproducible;
  found.salt = policy.salt;
  s.adopt(wanted.first(in_pool), pooled.reproducible, s.keys_of(wanted.first(in_pool), policy.salt), found);
  s.stats.cached.add(kPoolSource, in_pool - before);
  s.stats.hits += before == 0;
  return true;
}

Retrieval Cache::keep_what_came(Retrieval retrieval, Sequence& sequence) {
  if (!retrieval.failure()) return retrieval;
  ++state_->stats.failed_loads;
  Retrieval::State& came = *retrieval.state_;
  // Layers with a sliding window were loaded for the end of the hit alone: from an earlier end on they lack tokens.
  const std::uint32_t tokens = state_->windowed() ? came.first_token : came.failure->block * state_->block_tokens();
  if (came.lossy || tokens == 0) {
    sequence.clear();
    return {};
  }
  sequence.truncate(tokens);
  came.failure.reset();
  came.tokens = came.tokens_loaded = tokens;
  came.sources = first_of(std::move(came.sources), tokens);
  return retrieval;
}

bool Cache::waits_for(std::size_t tier) const { return (state_->tiers_left_alone() >> tier & 1) == 0; }

void Cache::give_up(Retrieval retrieval) {
  state_->leave_alone(retrieval.loaded() ? 0 : retrieval.state_->load->owing());
}

}  // namespace shale
