// Keeps one sequence inside a budget of pages while it is computed and while it generates.
//
//   paged_eviction   (PagedEviction) the prompt is ranked by ‖v‖/‖k‖ and cut to the budget; while decoding,
//                    each time the newest page fills up and more tokens are there than the budget, every head
//                    drops the one page with the lowest mean ‖v‖/‖k‖; a page never loses single tokens
//   [budget:]scorer  ranks tokens by any scorer that can run on a sequence that goes on, drops the lowest and
//                    compacts: every so many tokens, or one token a step
//
// Layers with a sliding window lose what lies behind it anyway (engine_step.cc) and are left to that. The scorer sees a
// head's resident tokens in the order of their positions, as if there had never been others.
//
// What is left after a drop is the sequence's own, copied out of blocks that the prefix cache or other requests hold,
// too: a head that keeps a token of such a block would keep all of it. So the cache may evict the prompt, and the
// request holds its budget's worth of pages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/executor.h"
#include "model/live_capture.h"
#include "model/model.h"
#include "paging/sequence.h"
#include "scoring/budgets/budget.h"
#include "scoring/calibration.h"
#include "scoring/scorer.h"

namespace shale {

enum class BudgetPrefill {
  kWhole,    // attention sees the whole prompt, then tokens go: the pool holds all of it for a while
  kChunked,  // tokens go after each chunk: the pool holds no more than the budget and a chunk
};

std::string_view to_string(BudgetPrefill prefill);  // "whole", "chunked"
Result<BudgetPrefill> parse_budget_prefill(std::string_view name);

struct KvBudgetOptions {
  std::uint32_t tokens = 1024;  // per KV head: of each, or on average where the method's budget differs between them
  double keep = 1;              // and no more than this share of the prompt, in (0, 1]
  std::string method = "paged_eviction";
  BudgetPrefill prefill = BudgetPrefill::kWhole;
  std::uint32_t interval =
      128;  // decoded tokens between two evictions; 1: every step, as most papers do, without compaction
  Compaction compaction = Compaction::kRepack;
  bool full_layers = false;       // of a model with sliding windows the layers without one, and no others
  bool keep_first_page = false;   // paged_eviction: the first page's tokens (sinks) do not compete
  bool keep_newest_page = false;  // paged_eviction: nor does the page just filled
};

// What evicting and compacting did so far.
struct KvBudgetStats {
  PagingWork paging;
  std::uint64_t evictions = 0, compactions = 0;  // passes over a sequence

  KvBudgetStats& operator+=(const KvBudgetStats& other);
  // What came after `before`.
  KvBudgetStats operator-(const KvBudgetStats& before) const;
};

// Frees pages for Sequence::own, or has others let go of what they share with the sequence. Null: takes what is free.
using EnsureOwned = std::function<void(const Sequence&)>;

// One request's. Not thread-safe.
class KvBudget {
 public:
  // kInvalidArgument: an unknown method, one that cannot run on a sequence that goes on, a quantizer, a budget that
  // cannot hold a page or the tokens that the method never drops, with what to ask for instead. kUnsupported: a model
  // with sliding windows whose full layers were not asked for by name, or that has none.
  static Result<std::unique_ptr<KvBudget>> create(const KvBudgetOptions& options, const ModelInfo& model,
                                                  std::uint32_t block_size, std::uint32_t prompt_tokens,
                                                  const ScorerOptions& scorers, const Calibration* calibration);

  const KvBudgetOptions& options() const { return options_; }
  // Tokens a head, once the prompt's share has been taken into account.
  std::uint32_t tokens() const { return tokens_; }
  // Tokens that the pages of one head have room for at most while decoding, on average over heads, where its holes are
  // closed: where nothing closes them, once `pack` has.
  std::uint32_t decoding_max() const;
  // How many of the prompt's last tokens have to be computed, not fetched, for the scorer to see their queries; all of
  // them where it sums attention.
  std::uint32_t computed_min(std::uint32_t prompt_tokens) const;
  // The capture for the sequence's steps; null where nothing is watched.
  LiveCapture* capture() { return capture_.get(); }
  // Instead of watching the prompt itself: another capture that watched it for no less.
  void adopt(const LiveCapture& seen);

  // A chunk of the prompt was computed; `last`: its last one.
  void chunk_done(Sequence& sequence, bool last, Executor& executor, const EnsureOwned& ensure_owned = nullptr);
  // A token was decoded. Whether the sequence is due to lose tokens, or has holes to be closed; it stays due until
  // `work` was called, which may be some steps later.
  bool due(const Sequence& sequence);
  // One bounded piece of that: an eviction, or the compaction of some heads.
  void work(Sequence& sequence, Executor& executor, const EnsureOwned& ensure_owned = nullptr);
  // Where the pool is full: owns what is left and packs it at once. Whether that gave any page back.
  bool pack(Sequence& sequence, Executor& executor, const EnsureOwned& ensure_owned);
  const KvBudgetStats& stats() const { return stats_; }
  // Tokens that a head holds on average, as a share of the budget.
  double occupancy(const Sequence& sequence) const { return double{1} * resident_mean(sequence) / tokens_; }

 private:
  KvBudget(const KvBudgetOptions& options, const ModelInfo& model, std::uint32_t block_size)
      : options_(options), model_(model), block_size_(block_size) {}
  std::uint32_t tables() const { return static_cast<std::uint32_t>(tables_.size()); }
  std::uint32_t layer_of(std::size_t i) const { return tables_[i] / model_.kv_heads; }
  std::uint32_t head_of(std::size_t i) const { return tables_[i] % model_.kv_heads; }
  std::uint32_t resident_max(const Sequence& sequence) const;
  std::uint32_t resident_mean(const Sequence& sequence) const;
  void part(Sequence& sequence);
  std::uint32_t full_pages(const PageSlots& table) const;
  void note_pages(Sequence& sequence, Executor& executor);
  void evict_pages(Sequence& sequence);
  void evict_tokens(Sequence& sequence, Executor& executor);
  void own(Sequence& sequence, Executor& executor, const EnsureOwned& ensure_owned);
  void compact(Sequence& sequence, Compaction how, std::uint32_t tables, Executor& executor);

  KvBudgetOptions options_;
  const ModelInfo& model_;
  std::uint32_t block_size_;
  std::vector<std::uint32_t> tables_;  // from which it evicts (layer · kv_heads + head): those of whole layers
  std::uint32_t tokens_ = 0;
  bool whole_pages_ = false;  // paged_eviction
  std::unique_ptr<Scorer> scorer_;
  std::unique_ptr<Budget> budget_;
  std::uint32_t window_ = 0;
  const Calibration* calibration_ = nullptr;
  std::unique_ptr<LiveCapture> capture_;

  std::uint32_t evicted_at_ = 0;    // length when tokens were last dropped
  std::uint32_t newest_ = 0;        // position from which on tokens were beyond the budget then
  std::uint32_t compacted_ = 0;     // of tables_, in this round; all of them when there is nothing to close
  std::vector<std::size_t> noted_;  // paged_eviction: of each table the pages whose tokens' ‖v‖/‖k‖ are noted
  bool page_filled_ = false;        // and the newest was filled beyond the budget
  KvBudgetStats stats_;
};

}  // namespace shale
