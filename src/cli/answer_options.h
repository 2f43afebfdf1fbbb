// Options of every command that answers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "engine/engine.h"

namespace shale {

// --kv-budget, --kv-eviction, --keep-first-page, --kv-eviction-prefill, --kv-eviction-interval, --compaction.
struct KvBudgetChoice {
  std::uint32_t tokens = 0;  // 0: no budget
  KvBudgetOptions options;
  // Nothing without --kv-budget.
  std::optional<KvBudgetOptions> chosen() const;
};
void add_kv_budget_options(Command command, KvBudgetChoice& choice);

// --max-tokens, --temperature, --top-k, --top-p, --min-p, --seed, --stop, and those of the KV budget.
struct AnswerOptions {
  std::uint32_t max_tokens = 128;
  SamplingOptions sampling;
  std::vector<std::string> stop;
  KvBudgetChoice budget;
  // Fills the request's part.
  void apply(Request& request) const;
};
void add_answer_options(Command command, AnswerOptions& options);

}  // namespace shale
