// Decides which part of a prompt is loaded, from where, and which is computed.
#include <algorithm>
#include <limits>
#include <utility>

#include "cache/cache_state.h"
#include "placement/load_and_compute.h"

namespace shale {
namespace {

// Where planners let requests read only a part of what is kept, requests that ask for a quality read all of it.
StoreNeeds store_needs(const RequestPolicy& policy, bool measured, const PlannerChoice& planner) {
  StoreNeeds needs;
  needs.exact = policy.exact || (!measured && !policy.named());
  needs.quality_min = measured ? std::max(kMeasured, policy.quality_min) : std::numeric_limits<double>::infinity();
  if (policy.named()) {
    needs.method = policy.method;
    needs.keep = policy.keep;
  } else if (planner.read_keep < planner.keep && !policy.exact && policy.quality_min == 0) {
    needs.method = planner.method;
    needs.keep = planner.read_keep;
  }
  return needs;
}

}  // namespace

// A hit that ends inside a run takes exact blocks of it: over a lossy beginning, all that is computed next would be
// lossy too, for all who come after it. What lies before a lossy run that ends in the prompt may be another run's,
// which begins alike. `keys`: of the blocks that lie under `names`.
StoreLookup Cache::State::look_up(std::span<const BlockKey> keys, std::span<const BlockKey> names, StoreNeeds& needs,
                                  std::string_view tenant, bool counts) {
  StoreLookup found = store->lookup(names, needs, tenant, counts);
  const auto ends_lossy = [&](const StoreLookup::PrefixSpan& span) {
    return !span.exact && std::ranges::any_of(keys.subspan(end_of(span) - 1),
                                              [&](const BlockKey& key) { return run_name(key) == span.run; });
  };
  const auto behind = std::ranges::find_if(found.spans.rbegin(), found.spans.rend(), ends_lossy).base();
  const auto cut = std::find_if(behind, found.spans.end(), [](const auto& span) { return !span.exact; });
  if (cut == found.spans.end()) return found;
  needs.exact_after = cut->first_block;
  return store->lookup(names, needs, tenant, counts);
}

// Seconds that a request would wait rather than be answered over a form of which so much is expected.
double Cache::State::loss_s(std::optional<double> quality) const {
  return weighs_quality ? options.alpha * (1 - quality.value_or(0)) : 0;
}

// Of lossy pages more may be known than when they were loaded.
void Cache::State::judge_anew(LossyPrefix& prefix) const {
  for (auto source = prefix.sources.begin(); source != prefix.sources.end(); ++source) {
    if (!source->lossy()) continue;
    source->quality =
        source->computed_behind_lossy() ? expected_quality({prefix.sources.begin(), source}) : expected(*source);
  }
}

// How many of the spans to load, by their turn behind what is being read. A short one that is dear pays where it leads
// to a long one. The first begin where `covered` tokens are there.
std::size_t Cache::State::spans_that_pay(std::span<const StoreLookup::PrefixSpan> spans, std::uint32_t covered,
                                         const Backlog& backlog) const {
  if (spans.empty()) return 0;
  const std::uint32_t end = end_of(spans.back()) * block_tokens();
  std::vector<LoadedUpTo> loads;
  double lost_s = 0;
  for (const StoreLookup::PrefixSpan& span : spans) {
    const std::uint32_t reached = end_of(span) * block_tokens();
    if (!span.exact) lost_s = std::max(lost_s, loss_s(span.quality));
    loads.push_back({span.ready_s, lost_s, reached < end ? costs.prefill_s(end - reached, reached) : 0});
  }
  return loads_that_pay(loads, costs.prefill_s(end - covered, covered), backlog.engine);
}

// Whether a form that a request names is loaded sooner than all of it is computed, which stands for making it anew.
bool Cache::State::named_pays(const StoreLookup& found, const Backlog& backlog) const {
  const LoadedUpTo all{.ready_s = found.ready_s};
  const std::uint32_t tokens = found.blocks * block_tokens();
  return options.load_always || loads_that_pay({&all, 1}, costs.prefill_s(tokens, 0), backlog.engine) > 0;
}

// Seconds until what lies at rest has brought so many of the first tokens, and what its worst form counts as.
double Cache::State::brought_s(const StoreLookup& found, std::uint32_t tokens) const {
  double lost_s = 0;
  for (const StoreLookup::PrefixSpan& span : found.spans) {
    if (!span.exact) lost_s = std::max(lost_s, loss_s(span.quality));
    if (end_of(span) * block_tokens() >= tokens) return span.ready_s + lost_s;
  }
  return std::numeric_limits<double>::infinity();
}

// Behind what a prompt's computing left, what answers left.
void Cache::State::look_up_answers(std::span<const BlockKey> keys, const RequestPolicy& policy, StoreNeeds needs,
                                   Choice& choice, StoreLookup& found) {
  if (!options.quick_answers || policy.exact || found.blocks == keys.size()) return;
  const std::uint32_t from = found.blocks * block_tokens();
  std::vector<BlockKey> names = names_of({keys.begin(), keys.end()}, from);
  StoreLookup further = look_up(keys, names, needs, tenant_of(policy.salt), policy.counts);
  if (further.blocks <= found.blocks) return;
  choice.reproducible_at_rest = from;
  choice.names = std::move(names);
  choice.needs = needs;
  found = std::move(further);
}

// Behind lossy forms, what was computed behind such, as far as it is good enough.
void Cache::State::look_up_behind_lossy(std::span<const BlockKey> keys, const RequestPolicy& policy, StoreNeeds needs,
                                        Choice& choice, StoreLookup& found) {
  const bool lossy_there = std::ranges::any_of(found.spans, [](const auto& span) { return !span.exact; });
  if (!lossy_there || policy.named() || found.blocks == keys.size()) return;
  const std::uint32_t from = found.blocks;
  std::vector<BlockKey> names =
      names_of({keys.begin(), keys.end()}, choice.reproducible_at_rest, from * block_tokens());
  StoreLookup further = look_up(keys, names, needs, tenant_of(policy.salt), false);
  for (auto span = further.spans.begin(); span != further.spans.end(); ++span) {
    if (end_of(*span) <= from) continue;
    const auto worth = quality(source_of(*span, true));
    if (!worth || *worth < policy.quality_min) {
      further.blocks = span->first_block;
      further.spans.erase(span, further.spans.end());
      break;
    }
    span->exact = false;
    span->quality = *worth;
  }
  if (further.blocks <= from) return;
  further.exact_blocks = std::min(further.exact_blocks, from);
  choice.lossy_from = from * block_tokens();
  choice.names = std::move(names);
  choice.needs = needs;
  found = std::move(further);
}

// Lossy pages of the pool, where nothing better comes in less time than their loss is worth.
void Cache::State::choose_lossy(std::span<const BlockKey> keys, const RequestPolicy& policy, const Backlog& backlog,
                                const StoreLookup& found, Choice& choice) {
  LossyPrefixes::Found pooled_lossy = find_lossy(keys, policy);
  // A load goes on behind it where a span begins.
  for (auto span = found.spans.begin(); span != found.spans.end(); ++span) {
    const bool cuts = span->first_block < pooled_lossy.blocks && pooled_lossy.blocks < end_of(*span);
    if (!cuts || backlog.pool_only) continue;
    if (policy.named() && span->method == *policy.method) return;  // the form that is named, of more
    if (span->first_block < pooled_lossy.prefix->blocks_min()) continue;
    const std::uint32_t covered = pooled_lossy.blocks * block_tokens();
    if (options.load_always || spans_that_pay({span, found.spans.end()}, covered, backlog) > 0) {
      pooled_lossy.blocks = span->first_block;
    }
  }
  const std::uint32_t length = pooled_lossy.blocks * block_tokens(), in_pool = choice.pool_tokens;
  // All of the form that is named: of exact pages it would have to be made.
  const bool whole_form = policy.named() && pooled_lossy.blocks == keys.size();
  if (length == 0 || length < in_pool || (length == in_pool && !whole_form)) return;
  LossyPrefix& prefix = *pooled_lossy.prefix;
  const double computed_s =
      backlog.engine.compute_s + backlog.engine.slowdown * costs.prefill_s(length - in_pool, in_pool);
  const double lost_s = policy.named() ? 0 : loss_s(expected_quality(first_of(prefix.sources, length)));
  const bool may_load = !policy.named() && !backlog.pool_only;
  const double otherwise_s = may_load ? std::min(computed_s, brought_s(found, length)) : computed_s;
  if (!whole_form && lost_s >= otherwise_s) return;
  choice.lossy = pooled_lossy;
  choice.pool_tokens = length;
}

// Extents from the first that the pool does not cover, as many as pay.
Cache::State::Choice Cache::State::choose(std::span<const std::int32_t> wanted, std::span<const BlockKey> keys,
                                          const RequestPolicy& policy, const Backlog& backlog) {
  Choice choice;
  choice.counts = policy.counts;
  choice.needs = store_needs(policy, metadata_store != nullptr || planner.method, planner);
  choice.needs.tiers_excluded = tiers_left_alone();
  choice.names.assign(keys.begin(), keys.end());
  const StoreNeeds needs = choice.needs;
  const std::string_view tenant = tenant_of(policy.salt);
  StoreLookup found = look_up(keys, choice.names, choice.needs, tenant, policy.counts);
  look_up_answers(keys, policy, needs, choice, found);
  look_up_behind_lossy(keys, policy, needs, choice, found);
  bool named = policy.named() && !found.spans.empty() && found.spans.front().method == *policy.method;
  if (named && !named_pays(found, backlog)) {
    named = false;
    choice.needs = {.exact = true, .tiers_excluded = choice.needs.tiers_excluded};
    found = store->lookup(choice.names, choice.needs, tenant, false);
  }
  // A copy that a request names comes before exact pages; without one, the engine makes it from exact pages.
  const PrefixTree::Prefix pooled_prefix = named ? PrefixTree::Prefix() : tree->prefix(wanted, policy.salt);
  const std::uint32_t in_pool = policy.exact ? pooled_prefix.reproducible : pooled_prefix.tokens;
  choice.pool_tokens = in_pool;
  choice.reproducible_in_pool = pooled_prefix.reproducible;
  choose_lossy(keys, policy, backlog, found, choice);
  for (const StoreLookup::PrefixSpan& span : found.spans) {
    if (end_of(span) * block_tokens() <= choice.pool_tokens) continue;
    if (backlog.pool_only) break;
    // Nothing is read again into the middle of what heads hold rows of.
    if (choice.lossy.prefix && span.first_block * block_tokens() < choice.pool_tokens) break;
    choice.spans.push_back(span);
  }
  if (!named && !options.load_always) {
    choice.spans.resize(spans_that_pay(choice.spans, choice.pool_tokens, backlog));
  }
  std::uint32_t covered = choice.pool_tokens;
  if (!choice.spans.empty()) {
    choice.arrives_s = choice.spans.back().ready_s;
    choice.end_block = end_of(choice.spans.back());
    covered = choice.end_block * block_tokens();
  }
  for (const StoreLookup::PrefixSpan& span : found.spans) {
    const bool again = &span != &found.spans.front() && (&span - 1)->run == span.run;
    if (!again && policy.counts) use(span.run);
  }
  const auto touch = [&](std::uint32_t blocks) {
    if (policy.counts) store->touch(std::span(choice.names).first(blocks), tenant);
  };
  // The reproducible tokens among so many of the pool and what is loaded behind them up to `end`.
  const auto reproducible = [&](std::uint32_t pooled_tokens, std::uint32_t end) {
    if (pooled_tokens > choice.reproducible_in_pool) return choice.reproducible_in_pool;
    const std::uint32_t at_rest = choice.reproducible_at_rest;
    return end > at_rest ? std::max(pooled_tokens, at_rest) : kAllTokens;
  };
  const bool may_meet = options.meet && backlog.meet && !options.load_always && !policy.named() && !backlog.pool_only &&
                        backlog.engine.compute_s == 0 && !choice.lossy.prefix;
  const std::uint32_t exact = found.exact_blocks * block_tokens();
  const double rest_s = exact > covered ? backlog.engine.slowdown * costs.prefill_s(exact - covered, covered) : 0;
  const auto meeting_s =
      may_meet ? meeting_pays(found, in_pool, choice.arrives_s + rest_s, backlog.engine.slowdown) : std::nullopt;
  if (meeting_s) {
    touch(found.exact_blocks);
    choice.spans.clear();
    choice.meets = found;
    choice.end_block = found.exact_blocks;
    choice.arrives_s = *meeting_s;
    choice.reproducible = reproducible(in_pool, found.exact_blocks * block_tokens());
    return choice;
  }
  if (choice.spans.empty()) {
    choice.reproducible = reproducible(choice.lossy.prefix ? 0 : choice.pool_tokens, 0);
    touch(found.blocks);
    return choice;
  }
  choice.first_block = loading_begins(choice.spans.front(), choice.pool_tokens / block_tokens());
  choice.pool_tokens = choice.first_block * block_tokens();
  choice.reproducible = reproducible(choice.lossy.prefix ? 0 : choice.pool_tokens, covered);
  touch(choice.first_block);
  return choice;
}

// Where a chunk of the span begins: what the pool has of that one is read again.
std::uint32_t Cache::State::loading_begins(const StoreLookup::PrefixSpan& span, std::uint32_t pool_blocks) const {
  const std::uint32_t first = std::max(span.first_block, pool_blocks);
  return first - (first - span.first_block) % (options.chunk_tokens / block_tokens());
}

// How long a meeting takes, where that is worth it. Not of models with sliding windows, whose layers are loaded only in
// part.
std::optional<double> Cache::State::meeting_pays(const StoreLookup& found, std::uint32_t covered, double otherwise_s,
                                                 double slowdown) const {
  const std::uint32_t computed = (covered + block_tokens() - 1) / block_tokens();
  const std::uint32_t two_chunks = 2 * options.chunk_tokens / block_tokens();
  if (found.exact_blocks < computed + two_chunks || windowed()) return std::nullopt;
  const double seconds = Meeting::estimate_s(costs, found, computed, block_tokens(), slowdown);
  return worth_meeting(seconds, otherwise_s) ? std::optional(seconds) : std::nullopt;
}

}  // namespace shale
