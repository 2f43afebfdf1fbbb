#include "engine/kv_budget.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "codec/method.h"
#include "engine/cached_layer.h"
#include "paging/page_tokens.h"

namespace shale {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::string_view kPagedEviction = "paged_eviction";

Status check_numbers(const KvBudgetOptions& options, std::uint32_t block_size) {
  if (!(options.keep > 0 && options.keep <= 1)) {
    return fail(ErrorCode::kInvalidArgument, "a KV budget of {} of the prompt: above 0 and at most 1 is possible",
                options.keep);
  }
  if (options.tokens < block_size) {
    return fail(ErrorCode::kInvalidArgument, "a KV budget of {} tokens holds no page of {}: ask for at least one page",
                options.tokens, block_size);
  }
  if (options.interval == 0) {
    return fail(ErrorCode::kInvalidArgument, "an eviction every 0 tokens: 1 evicts at every step");
  }
  return {};
}

// The tables of all layers without a sliding window.
Result<std::vector<std::uint32_t>> choose_tables(const ModelInfo& model, bool full_layers) {
  std::vector<std::uint32_t> tables;
  for (std::uint32_t i = 0; i < model.layers * model.kv_heads; ++i) {
    if (model.windows[i / model.kv_heads] == 0) tables.push_back(i);
  }
  if (tables.empty()) {
    return fail(ErrorCode::kUnsupported, "every layer of {} has a sliding window: a KV budget finds nothing to evict",
                model.name);
  }
  if (tables.size() < model.layers * model.kv_heads && !full_layers) {
    return fail(ErrorCode::kUnsupported,
                "{} has sliding windows beside its full layers: a KV budget evicts from the full layers alone, and "
                "only when they are asked for by name (--kv-eviction-full-layers)",
                model.name);
  }
  return tables;
}

// What the scorer reads and nobody can gather of a sequence that dropped tokens. Queries are laid beside the newest
// residents, which is right where a scorer ranks those first whose queries it reads: scissorhands does not.
Status check_online(std::string_view method, const Scorer& scorer, const ModelInfo& model,
                    const Calibration* calibration) {
  const ScorerNeeds needs = scorer.needs();
  const ScorerNeeds online{.keys = true,
                           .values = true,
                           .last_queries = scorer.name() == "scissorhands" ? 0 : needs.last_queries,
                           .attention_sums = scorer.name() != "observed_attention",
                           .rope = !model.ropes.empty(),
                           .calibration = calibration != nullptr};
  const std::string missing = missing_needs(needs, online);
  if (missing.empty()) return {};
  return fail(ErrorCode::kInvalidArgument, "{} cannot choose what a KV budget drops: it needs {}", method, missing);
}

}  // namespace

std::string_view to_string(BudgetPrefill prefill) { return prefill == BudgetPrefill::kWhole ? "whole" : "chunked"; }

Result<BudgetPrefill> parse_budget_prefill(std::string_view name) {
  for (const BudgetPrefill prefill : {BudgetPrefill::kWhole, BudgetPrefill::kChunked}) {
    if (name == to_string(prefill)) return prefill;
  }
  return fail(ErrorCode::kInvalidArgument, "a prompt is cut whole or chunked, not {}", name);
}

KvBudgetStats& KvBudgetStats::operator+=(const KvBudgetStats& other) {
  paging += other.paging;
  evictions += other.evictions;
  compactions += other.compactions;
  return *this;
}

KvBudgetStats KvBudgetStats::operator-(const KvBudgetStats& before) const {
  return {{paging.tokens_dropped - before.paging.tokens_dropped, paging.slots_copied - before.paging.slots_copied,
           paging.pages_freed - before.paging.pages_freed},
          evictions - before.evictions,
          compactions - before.compactions};
}

Result<std::unique_ptr<KvBudget>> KvBudget::create(const KvBudgetOptions& options, const ModelInfo& model,
                                                   std::uint32_t block_size, std::uint32_t prompt_tokens,
                                                   const ScorerOptions& scorers, const Calibration* calibration) {
  SHALE_TRY(check_numbers(options, block_size));
  std::unique_ptr<KvBudget> made(new KvBudget(options, model, block_size));
  SHALE_ASSIGN(made->tables_, choose_tables(model, options.full_layers));
  made->whole_pages_ = options.method == kPagedEviction;
  Method method{.scorer = "vk_ratio", .quantizer = "none"};
  if (!made->whole_pages_) {
    SHALE_ASSIGN(method, Method::parse(options.method));
    if (method.quantizer != "none" || method.scorer.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  "{} cannot choose what a KV budget drops: name {} or [budget:]scorer, without a quantizer",
                  options.method, kPagedEviction);
    }
  }
  const double share = std::floor(options.keep * prompt_tokens);
  made->tokens_ = std::max(block_size, static_cast<std::uint32_t>(std::min<double>(options.tokens, share)));
  if (options.keep == 1) made->tokens_ = options.tokens;
  // The newest tokens, whose queries are observed, always rank first: no more than half of the budget.
  ScorerOptions fitted = scorers;
  fitted.window = std::min(fitted.window, made->tokens_ / 2);
  if (made->tokens_ <= fitted.sinks) {
    return fail(ErrorCode::kInvalidArgument, "a KV budget of {} tokens holds nothing beside {} sinks: ask for more",
                made->tokens_, fitted.sinks);
  }
  SHALE_ASSIGN(made->scorer_, make_scorer(method.scorer, fitted));
  SHALE_ASSIGN(made->budget_, make_budget(method.budget.empty() ? "uniform" : method.budget));
  SHALE_TRY(check_online(options.method, *made->scorer_, model, calibration));
  made->window_ = fitted.window;
  made->calibration_ = calibration;
  made->compacted_ = made->tables();
  const ScorerNeeds needs = made->scorer_->needs();
  if (needs.last_queries > 0 || needs.attention_sums) {
    made->capture_ = std::make_unique<LiveCapture>(model, needs.last_queries, needs.attention_sums);
  }
  return made;
}

std::uint32_t KvBudget::decoding_max() const {
  return tokens_ + (whole_pages_ ? block_size_ : options_.interval + block_size_);
}

std::uint32_t KvBudget::computed_min(std::uint32_t prompt_tokens) const {
  const ScorerNeeds needs = scorer_->needs();
  return needs.attention_sums ? prompt_tokens : std::min(prompt_tokens, std::max(1u, needs.last_queries));
}

std::uint32_t KvBudget::resident_max(const Sequence& sequence) const {
  std::uint32_t most = 0;
  for (std::uint32_t i = 0; i < tables(); ++i) most = std::max(most, sequence.resident(layer_of(i), head_of(i)));
  return most;
}

std::uint32_t KvBudget::resident_mean(const Sequence& sequence) const {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < tables(); ++i) sum += sequence.resident(layer_of(i), head_of(i));
  return static_cast<std::uint32_t>((sum + tables() - 1) / tables());
}

void KvBudget::adopt(const LiveCapture& seen) {
  if (capture_) capture_ = std::make_unique<LiveCapture>(seen, capture_->wants_attention());
}

void KvBudget::chunk_done(Sequence& sequence, bool last, Executor& executor, const EnsureOwned& ensure_owned) {
  if (!last && options_.prefill == BudgetPrefill::kWhole) return;
  const bool over = resident_mean(sequence) > tokens_;
  // While it decodes, the kernel adds up what slots receive of a ragged sequence alone.
  if (last && capture_ && capture_->wants_attention()) part(sequence);
  if (!over) return;
  part(sequence);
  evict_tokens(sequence, executor);
  own(sequence, executor, ensure_owned);
  compacted_ = 0;
  compact(sequence, Compaction::kRepack, tables(), executor);
}

void KvBudget::part(Sequence& sequence) {
  sequence.part();
  if (capture_) capture_->settle(sequence);
}

bool KvBudget::due(const Sequence& sequence) {
  if (whole_pages_) {
    const bool filled =
        sequence.table(layer_of(0), head_of(0)).pages.back().count == block_size_ && evicted_at_ != sequence.length();
    return page_filled_ = page_filled_ || (filled && resident_max(sequence) > tokens_);
  }
  return compacted_ < tables() || resident_mean(sequence) >= tokens_ + options_.interval;
}

void KvBudget::work(Sequence& sequence, Executor& executor, const EnsureOwned& ensure_owned) {
  part(sequence);
  if (whole_pages_) {
    note_pages(sequence, executor);
    evict_pages(sequence);
    return own(sequence, executor, ensure_owned);
  }
  // A quarter of the heads at a time, between decode steps that see their holes.
  if (compacted_ < tables()) return compact(sequence, options_.compaction, (tables() + 3) / 4, executor);
  evict_tokens(sequence, executor);
  own(sequence, executor, ensure_owned);
  if (options_.compaction != Compaction::kNone && options_.interval > 1) compacted_ = 0;
}

// Without the newest, while it has room.
std::uint32_t KvBudget::full_pages(const PageSlots& table) const {
  return static_cast<std::uint32_t>(table.size()) - (table.back().count < block_size_ ? 1 : 0);
}

// Notes ‖v‖/‖k‖ of the tokens of the pages filled since.
void KvBudget::note_pages(Sequence& sequence, Executor& executor) {
  const PagePool& pool = sequence.pool();
  noted_.resize(tables());
  executor.parallel_for(tables(), [&](std::size_t i) {
    const std::uint32_t layer = layer_of(i), head = head_of(i);
    const auto table = sequence.table(layer, head).pages;
    const std::size_t pages = full_pages(table);
    std::vector<Half> memory(pool.shape().element == PageElement::kHalf ? 0 : 2 * pool.shape().key_elements());
    for (std::size_t p = noted_[i]; p < pages; ++p) {
      const PageView halves = as_halves(pool.shape(), pool.host_view().bytes(table[p].page), table[p].count, memory);
      const LayerKv<Half>::Page page{halves.keys, halves.values};
      const LayerKv<Half> kv{.tokens = table[p].count,
                             .kv_heads = 1,
                             .head_dim = model_.head_dim,
                             .block_size = block_size_,
                             .layer = layer,
                             .first_head = head,
                             .pages = {&page, 1}};
      scorer_->score(kv, sequence.notes(layer, head).subspan(p * block_size_, table[p].count));
    }
    noted_[i] = pages;
  });
}

// Every head drops the full page with the lowest mean.
void KvBudget::evict_pages(Sequence& sequence) {
  std::vector<std::vector<std::uint32_t>> dropped(sequence.pool().shape().pages_per_block());
  for (std::uint32_t i = 0; i < tables(); ++i) {
    const auto table = sequence.table(layer_of(i), head_of(i)).pages;
    const std::span<const float> notes = sequence.notes(layer_of(i), head_of(i));
    const std::uint32_t full = full_pages(table);
    const std::uint32_t first = options_.keep_first_page ? 1 : 0;
    const std::uint32_t end = full - (options_.keep_newest_page && full > 0 ? 1 : 0);
    float lowest = kInfinity;
    std::uint32_t chosen = end;
    for (std::uint32_t p = first; p < end; ++p) {
      double sum = 0;
      for_each_token(table[p], p * block_size_, [&](std::uint32_t slot) { sum += double{notes[slot]}; });
      const auto mean = static_cast<float>(sum / table[p].tokens());
      if (chosen == end || mean < lowest) lowest = mean, chosen = p;
    }
    if (chosen >= end) continue;
    --noted_[i];
    for_each_token(table[chosen], chosen * block_size_,
                   [&](std::uint32_t slot) { dropped[tables_[i]].push_back(slot); });
  }
  stats_.paging += sequence.drop(dropped);
  ++stats_.evictions;
  evicted_at_ = sequence.length();
  page_filled_ = false;
}

void KvBudget::evict_tokens(Sequence& sequence, Executor& executor) {
  const std::uint32_t most = resident_max(sequence);
  std::vector<float> scores(std::size_t{tables()} * most, -kInfinity);
  std::vector<std::vector<std::uint32_t>> slots(tables());
  const std::uint32_t heads = model_.kv_heads, layers = tables() / heads;
  executor.parallel_for(layers, [&](std::size_t i) {
    const CachedLayer resident(sequence, layer_of(i * heads), model_, capture_.get(), calibration_);
    resident.score(*scorer_, std::span(scores).subspan(i * heads * most, std::size_t{heads} * most), most);
    for (std::uint32_t head = 0; head < heads; ++head) {
      const auto each = resident.slots(head);
      slots[i * heads + head].assign(each.begin(), each.end());
    }
  });
  if (whole_pages_ && options_.keep_first_page) {
    for (std::size_t i = 0; i < slots.size(); ++i)
      std::fill_n(&scores[i * most], std::min(block_size_, most), kInfinity);
  }
  // Places beyond a head's own tokens score -infinity: they are kept only where nothing else is left.
  const double keep = std::min(1.0, (tokens_ + 1e-3) / most);
  const Kept kept = budget_->select({layers, heads, most, scores, sequence.length()}, keep, window_);
  std::vector<std::vector<std::uint32_t>> dropped(sequence.pool().shape().pages_per_block());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    for (std::size_t t = 0; t < slots[i].size(); ++t) {
      if (!kept[i * most + t]) dropped[tables_[i]].push_back(slots[i][t]);
    }
  }
  newest_ = sequence.length() - (resident_mean(sequence) - tokens_);
  stats_.paging += sequence.drop(dropped);
  ++stats_.evictions;
  evicted_at_ = sequence.length();
}

void KvBudget::own(Sequence& sequence, Executor& executor, const EnsureOwned& ensure_owned) {
  if (!sequence.lossy() || sequence.pages_to_own() == 0) return;
  if (ensure_owned) ensure_owned(sequence);
  const PagingWork work = sequence.own(executor);
  stats_.paging += work;
  if (work.slots_copied > 0) std::ranges::fill(noted_, 0);  // other pages have these tokens now
}

bool KvBudget::pack(Sequence& sequence, Executor& executor, const EnsureOwned& ensure_owned) {
  if (!sequence.ragged() || !sequence.lossy()) return false;
  const std::uint64_t freed_before = stats_.paging.pages_freed;
  own(sequence, executor, ensure_owned);
  const auto packed = [&](const std::uint32_t table) {
    return sequence.packed(table / model_.kv_heads, table % model_.kv_heads);
  };
  if (!std::ranges::all_of(tables_, packed)) {
    compacted_ = 0;
    compact(sequence, Compaction::kRepack, tables(), executor);
  }
  return stats_.paging.pages_freed > freed_before;
}

void KvBudget::compact(Sequence& sequence, Compaction how, std::uint32_t count, Executor& executor) {
  count = std::min(count, tables() - compacted_);
  stats_.paging += sequence.compact(how, newest_, std::span(tables_).subspan(compacted_, count), executor);
  std::ranges::fill(noted_, 0);
  compacted_ += count;
  stats_.compactions += compacted_ == tables();
}

}  // namespace shale
