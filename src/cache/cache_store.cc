// Runs into the store: behind the engine's loop, and at once.
#include <algorithm>
#include <utility>

#include "cache/cache_state.h"
#include "codec/views/sequence_view.h"
#include "core/stopwatch.h"
#include "scoring/scorer.h"

namespace shale {
namespace {

constexpr double kNapS = 2e-4;  // while only tiers are busy
constexpr double kPieceS = 1e-3;
constexpr double kRefreshEveryS = 0.5;

// The sequence up to where the blocks [first, + tokens) end; or these alone, before which heads need not agree.
Sequence held_of(PagePool& pool, const Sequence& sequence, std::uint32_t first, std::uint32_t tokens, bool alone) {
  if (!alone) {
    Sequence held = sequence.fork();
    held.truncate(first + tokens);
    return held;
  }
  Sequence held(pool);
  held.append_blocks(sequence.last_blocks(first, tokens));
  return held;
}

}  // namespace

void Cache::State::note_stored(const Hash128& name, const NewRun& run, std::uint32_t tokens) {
  Used& here = use(name);
  here.tokens = tokens;
  if (run.recompute_s > 0) here.recompute_s = run.recompute_s;
  if (!run.label.empty()) here.label = run.label;
  if (!metadata_store) return;
  if (run.kind) metadata_store->describe(name, *run.kind, tokens);
}

// Where its worth is known, or one form is taken as it is; not where that cannot be ranked, since nobody watches what
// is computed there.
bool Cache::State::may_store_behind_lossy(const NewRun& run, std::uint32_t tokens) const {
  if (!planner.method) return run.inherited.has_value();
  return missing_needs(scorer_needs, tokens, run.statistics, options.model).empty();
}

// What is there of the run already, or on its way, is not stored again, and stays what it was computed behind; but
// where nobody knows that any more, after a crash say, it is removed for what is computed now. `names`: up to the run's
// last block, of which the first `before` lie before what was computed.
void Cache::State::inherit(const Hash128& name, double quality, std::span<const BlockKey> names, std::uint32_t before,
                           std::string_view tenant) {
  const auto its = [&](const auto& each) { return each.run == name; };
  const bool there = std::ranges::any_of(saving, its) || std::ranges::any_of(store->inspect(names, tenant), its);
  const auto known = metadata_store->inherited(name);
  if (there && !known && known.error().code == ErrorCode::kNotFound) store->remove(names.subspan(before), tenant);
  const double inherited = there ? std::min(known.value_or(1), quality) : quality;
  metadata_store->inherit(name, inherited);
  if (known != inherited && untold.size() < kUsedMax) untold.insert(name);
}

Hash128 Cache::store(NewRun run, const Sequence& sequence) {
  State& s = *state_;
  const std::uint32_t block = s.block_tokens();
  const std::vector<BlockKey> keys = s.keys_of(run.tokens, run.salt);
  const auto end = static_cast<std::uint32_t>(keys.size());
  if (end == 0) return {};
  const Hash128 name = run_name(keys.back());
  const std::vector<BlockKey> names = s.names_of(keys, run.reproducible, run.lossy_from);
  const bool behind_lossy = run.lossy_from != kAllTokens;
  StoreHints hints;
  hints.tenant = tenant_of(run.salt);
  if (!s.take_in_published(run, names)) return name;
  hints.first_block = std::max(run.first, behind_lossy ? run.lossy_from : 0) / block;
  if (sequence.lossy() != behind_lossy || sequence.ragged() || hints.first_block >= end) return name;
  const std::uint32_t first = hints.first_block * block, tokens = end * block - first;
  if (behind_lossy && !s.may_store_behind_lossy(run, tokens)) return name;

  s.note_stored(name, run, tokens);
  if (s.metadata_store && run.inherited) s.inherit(name, *run.inherited, names, hints.first_block, hints.tenant);
  Sequence held = held_of(s.pool, sequence, first, tokens, behind_lossy);
  const std::uint32_t first_held = held.length() - tokens;
  std::optional<State::Bounding> bounding = s.bounding(name, first_held, tokens, run.statistics);
  if (bounding) bounding->chain = {names, hints.tenant};
  hints.run = name;
  hints.recompute_s = run.recompute_s;
  hints.label = std::move(run.label);
  hints.tokens = run.tokens;
  hints.rankings = s.rankings;
  hints.statistics = std::move(run.statistics);
  const KvView view = view_of(std::as_const(held), first_held, tokens);
  const double recompute_s = run.recompute_s > 0 ? run.recompute_s : s.costs.prefill_s(tokens, first);
  const auto save = [&](StoreHints with, Sequence pages, std::optional<State::Bounding> looked_at) {
    auto saving = s.store->save(names, view, std::move(with));
    // What has no place in the store is computed again; what is there already may yet be looked at.
    if (!saving || ((*saving)->released() && !looked_at)) return;
    s.saving.push_back({std::move(*saving), std::move(pages), first_held, name, recompute_s, std::move(looked_at)});
  };
  const auto in_form = [&](const Method& method, double keep, std::optional<double> quality) {
    StoreHints with = hints;
    with.method = method;
    with.keep = keep;
    with.quality = quality.value_or(0);
    with.rankings = {};
    return with;
  };
  if (run.method && !run.method->is_full() && !view.geometry.opaque()) {
    const double keep = run.method->scorer.empty() ? 1 : run.keep;
    save(in_form(*run.method, keep, s.expected(name, *run.method, keep)), held.fork(), std::nullopt);
  }
  if (const auto& form = s.planner.method) {
    hints = in_form(*form, s.planner.keep, s.quality(name, *form, s.planner.keep));
    // What is placed by its importance are single chunks.
    const std::uint32_t chunk = s.planner.read_keep < s.planner.keep ? s.options.chunk_tokens / block : end;
    for (std::uint32_t b = hints.first_block + chunk; b < end; b += chunk) hints.boundaries.push_back(b);
  }
  save(std::move(hints), std::move(held), std::move(bounding));
  return name;
}

bool Cache::State::take_in_published(NewRun& run, std::span<const BlockKey> names) const {
  const bool behind_lossy = run.lossy_from != kAllTokens;
  const std::uint32_t first = behind_lossy ? run.lossy_from : run.first, before = first / block_tokens();
  if (first == 0 || first > published_tokens(run.tokens) || run.salt.empty()) return true;
  if (store->lookup(names.first(before), {.exact = !behind_lossy}, tenant_of(run.salt)).blocks >= before) return true;
  if (behind_lossy) return false;
  run.first = 0;
  run.recompute_s = 0;
  run.statistics = {};
  return true;
}

// Bounds the methods that code all tokens and whose quality on this run is not known yet.
std::optional<Cache::State::Bounding> Cache::State::bounding(const Hash128& name, std::uint32_t first,
                                                             std::uint32_t tokens,
                                                             const AttentionStatistics& statistics) const {
  if (!weighs_quality || options.metric) return std::nullopt;  // it bounds agreement
  std::vector<Method> unknown;
  std::vector<std::unique_ptr<Quantizer>> quantizers;
  for (const Method& method : methods) {
    const bool coded_alone = method.scorer.empty() && !method.is_full() && !method.quantizer.contains('/');
    if (!coded_alone || metadata_store->quality_for(name, method, 1)) continue;
    auto quantizer = make_quantizer(method.quantizer, options.tables);
    if (!quantizer) continue;
    unknown.push_back(method);
    quantizers.push_back(std::move(*quantizer));
  }
  if (unknown.empty()) return std::nullopt;
  auto errors = CodingErrors::start(pool.shape(), first, tokens, statistics, options.model.attention_scale,
                                    std::move(quantizers));
  if (!errors) return std::nullopt;
  return Bounding{std::move(unknown), std::move(*errors)};
}

// A layer of the run that has waited longest. What is near lossless may be all that there is room for: then the run,
// which may have been placed without, is placed again. False where there is nothing to look at.
bool Cache::State::bound_some() {
  const auto next = std::ranges::find_if(saving, [](const Saving& each) { return each.bounding.has_value(); });
  if (next == saving.end()) return false;
  Bounding& bounding = *next->bounding;
  if (bounding.errors.step(next->held)) return true;
  bool again = false;
  for (std::size_t i = 0; i < bounding.methods.size(); ++i) {
    metadata_store->bound_error(next->run, bounding.methods[i], bounding.errors.error(i));
    again = again || bounding.errors.error(i) <= kNearLossless;
  }
  if (again) store->place_again(bounding.chain.names, bounding.chain.tenant);
  next->bounding.reset();
  return true;
}

Result<ScorerNeeds> Cache::State::needs_of(const Method& method) const {
  for (std::uint32_t tier = 0; tier < kKeepGrid.size(); ++tier) {
    SHALE_ASSIGN(const auto quantizer, make_quantizer(method.quantizer_of(tier), options.tables));
    if (quantizer->needs_tables()) {
      return fail(ErrorCode::kInvalidArgument,
                  "{} needs tables of the model: `shale calibrate --cachegen-tables FILE` makes them",
                  quantizer->name());
    }
  }
  if (method.scorer.empty()) return ScorerNeeds{};
  SHALE_ASSIGN(const auto scorer, make_scorer(method.scorer, options.scorers));
  return scorer->needs();
}

const ScorerNeeds& Cache::needs() const { return state_->scorer_needs; }
Result<ScorerNeeds> Cache::needs(const Method& method) const { return state_->needs_of(method); }

bool Cache::stores_by_repetition() const { return state_->planner.method && state_->scorer_needs.repeat_attention; }

std::string Cache::missing(const ScorerNeeds& needs, std::uint32_t tokens,
                           const AttentionStatistics& statistics) const {
  return missing_needs(needs, tokens, statistics, state_->options.model);
}

RunCodec Cache::codec() const {
  const CacheOptions& options = state_->options;
  return {options.chunk_tokens, options.scorers, options.model, options.tables};
}

Result<CompressedRun> Cache::compress(const NewRun& run, const Method& method, const Sequence& from,
                                      Executor& executor) {
  const std::uint32_t first = whole_blocks(run.first), end = whole_blocks(run.tokens.size());
  if (end <= first) return fail(ErrorCode::kInvalidArgument, "there is no whole block to compress");
  SHALE_ASSIGN(RunCompressor compressor,
               RunCompressor::start(codec(), from, first, end - first, method, run.statistics));
  for (bool more = true; more;) {
    SHALE_ASSIGN(more, compressor.step(executor));
  }
  return compressor.finish();
}

Result<RunExpander> Cache::expand(const CompressedRun& run, double keep, Sequence& into, std::uint32_t left) {
  auto expander = RunExpander::start(codec(), run, keep, into);
  const bool full = !expander && expander.error().code == ErrorCode::kFull;
  if (!full || !evict_until_free(state_->pool.shape().pages_for(run.tokens), left)) return expander;
  return RunExpander::start(codec(), run, keep, into);
}

Status Cache::decompress(const CompressedRun& run, double keep, Sequence& into, Executor& executor) {
  SHALE_ASSIGN(RunExpander expander, expand(run, keep, into));
  for (bool more = true; more;) {
    SHALE_ASSIGN(more, expander.step(executor));
  }
  return {};
}

// Gives back the pages of what is encoded.
bool Cache::State::release_saved() {
  return std::erase_if(saving, [](const Saving& each) { return each.released(); }) > 0;
}

bool Cache::work(Executor& executor) {
  State& s = *state_;
  const Stopwatch background(s.clock, s.stats.background_seconds);
  s.tell_inherited();
  if (s.metadata_store && s.clock.now_s() - s.refreshed_at_s >= kRefreshEveryS) {
    s.refreshed_at_s = s.clock.now_s();
    // What other processes measured meanwhile; without it decisions are merely older.
    if (s.metadata_store->refresh().value_or(false)) s.to_look_at = s.pooled.size();  // pages may not be accepted now
  }
  s.look_at_pool();
  const bool stored = s.store->work(executor, kPieceS);
  // Runs that can be encoded give back their pages first.
  const bool encoding =
      stored && !std::ranges::all_of(s.saving, [](const State::Saving& each) { return each.save->released(); });
  const bool bounded = !encoding && s.bound_some();
  return s.release_saved() || stored || bounded;
}

bool Cache::State::give_up_storing() {
  release_saved();
  const auto merely_looked_at = std::ranges::find_if(saving, [](const Saving& each) { return each.save->released(); });
  if (merely_looked_at != saving.end()) {
    saving.erase(merely_looked_at);
    return true;
  }
  const auto least =
      std::ranges::min_element(saving, {}, [](const Saving& each) { return each.recompute_s * each.uses; });
  if (least == saving.end()) return false;
  least->save->cancel();
  saving.erase(least);
  ++stats.given_up;
  return true;
}

bool Cache::give_up_storing() { return state_->give_up_storing(); }

// That nobody but the prefix tree and lossy prefixes hold beside the run.
std::uint32_t Cache::blocks_waiting_to_be_stored() const {
  std::ptrdiff_t blocks = 0;
  for (const State::Saving& each : state_->saving) {
    if (each.released()) continue;
    blocks += std::ranges::count_if(each.held.blocks(each.held.length()), [&](PoolBlockId block) {
      return state_->pool.references(block) <= 1 + state_->tree->holders(block) + state_->lossy.holders(block);
    });
  }
  return static_cast<std::uint32_t>(blocks);
}

std::uint32_t Cache::blocks_free_without_storing(std::vector<PoolBlockId> given_back) const {
  const State& s = *state_;
  for (const State::Saving& each : s.saving) {
    const std::vector<PoolBlockId> held = each.held.blocks(each.held.length());
    given_back.insert(given_back.end(), held.begin(), held.end());
  }
  std::ranges::sort(given_back);
  std::uint32_t blocks = s.pool.blocks_free() + s.tree->evictable(given_back) + s.lossy.evictable(*s.tree, given_back);
  for (auto block = given_back.begin(), next = block; block != given_back.end(); block = next) {
    next = std::upper_bound(block, given_back.end(), *block);
    blocks += s.tree->holders(*block) == 0 && s.pool.references(*block) == next - block;
  }
  return blocks;
}

std::uint32_t Cache::blocks_waiting_to_be_encoded() const {
  std::vector<PoolBlockId> waiting;  // several may wait with a block
  for (const State::Saving& each : state_->saving) {
    if (each.save->released()) continue;
    const std::vector<PoolBlockId> held = each.held.blocks(each.held.length());
    waiting.insert(waiting.end(), held.begin() + each.first / state_->pool.shape().block_size, held.end());
  }
  std::ranges::sort(waiting);
  return static_cast<std::uint32_t>(std::ranges::unique(waiting).begin() - waiting.begin());
}

void Cache::drain(Executor& executor) {
  while (!idle()) {
    if (!work(executor)) state_->clock.sleep_until_s(state_->clock.now_s() + kNapS);  // only I/O is left
  }
  static_cast<void>(state_->store->flush());
}

bool Cache::stores_any() const { return !state_->saving.empty() || state_->store->saves_any(); }

bool Cache::idle() const { return state_->saving.empty() && state_->store->idle(); }

}  // namespace shale
