// What KV budgets do to serving: several requests at once through a whole engine, with the full cache and with
// budgets, over one pool.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace shale::bench {

struct PagingLoad {
  std::uint32_t sequences = 1;                              // submitted at once
  std::uint32_t prompt_tokens = 1024, output_tokens = 256;  // of each; random tokens, greedy, end-of-turn ignored
  std::optional<KvBudgetOptions> budget;                    // nothing: the full cache
  double pool_share = 1;                                    // of the pages that all sequences need with the full cache
  bool prefix_cache = false;  // prompts stay in the pool for later ones, and it is full of others' when the load begins
  double chunk_slowdown = 0;  // EngineOptions::chunk_slowdown; 0: throughput comes before the time between tokens
};

struct PagingResult {
  double tokens_per_second = 0;                     // of input and output, from submission to the last token
  double decode_tokens_per_second = 0;              // in steps that compute nothing of a prompt; 0 where there are none
  double tpot_seconds = 0;                          // mean over sequences
  double itl_p50_seconds = 0, itl_p99_seconds = 0;  // between two tokens of a sequence
  double ttft_seconds = 0;                          // mean
  double budget_seconds = 0;                        // evicting and compacting
  std::uint64_t pages_total = 0;
  std::uint64_t pages_peak = 0, pages_end = 0;     // that are neither free nor the prefix cache's alone
  double fragmentation = 0, budget_occupancy = 0;  // Occupancy, mean over the steps
  std::uint64_t preempted = 0;
  KvBudgetStats budgets;
  std::vector<std::pair<double, double>> time_line;  // seconds, share of the pool's pages of which that holds
};

// kInvalidArgument for what the engine refuses.
Result<PagingResult> measure_paging(Model& model, const Tokenizer& tokenizer, const PagingLoad& load);

// What a long prompt does to answers that are running: the time between two tokens of `sequences` that decode, by
// themselves and while a prompt of `joining_tokens` is computed beside them.
struct JoiningLoad {
  std::uint32_t sequences = 1, prompt_tokens = 1024;  // of those that decode
  std::uint32_t joining_tokens = 1024;
  double chunk_slowdown = EngineOptions().chunk_slowdown;
};
struct JoiningResult {
  double itl_p50_seconds = 0, itl_p99_seconds = 0;                // alone
  double joined_itl_p50_seconds = 0, joined_itl_p99_seconds = 0;  // while the prompt is computed
  std::uint64_t joined_steps = 0;                                 // in which it is computed
  double ttft_seconds = 0;                                        // of the one that joins
};
// kInvalidArgument also where those that decode fill the model's context before the prompt is computed.
Result<JoiningResult> measure_joining(Model& model, const Tokenizer& tokenizer, const JoiningLoad& load);

}  // namespace shale::bench
