#include "cli/answer_options.h"

#include "cli/option_types.h"

namespace shale {

void add_answer_options(Command command, AnswerOptions& options) {
  const char* group = "Answer";
  command.add_option("--max-tokens", options.max_tokens, "Longest answer, in tokens")
      .envname("SHALE_MAX_TOKENS")
      .range(1u, 1u << 20)
      .type_name("N")
      .capture_default_str()
      .group(group);
  command.add_option("--temperature", options.sampling.temperature, "Randomness; 0: always the likeliest token")
      .envname("SHALE_TEMPERATURE")
      .range(0.0, 100.0)
      .type_name("T")
      .capture_default_str()
      .group(group);
  command.add_option("--top-k", options.sampling.top_k, "Draw from the K likeliest tokens; 0: all")
      .type_name("K")
      .capture_default_str()
      .group(group);
  command
      .add_option("--top-p", options.sampling.top_p,
                  "Draw from the likeliest tokens that together reach this probability")
      .range(0.0, 1.0)
      .type_name("P")
      .capture_default_str()
      .group(group);
  command
      .add_option("--min-p", options.sampling.min_p, "Draw from tokens at least this likely, relative to the likeliest")
      .range(0.0, 1.0)
      .type_name("P")
      .capture_default_str()
      .group(group);
  command.add_option("--seed", options.sampling.seed, "Seed of the draws: the same seed, the same answer")
      .envname("SHALE_SEED")
      .type_name("N")
      .capture_default_str()
      .group(group);
  command.add_option("--stop", options.stop, "Text that ends the answer; may be given again")
      .type_name("TEXT")
      .allow_extra_args(false)
      .group(group);
  add_kv_budget_options(command, options.budget);
}

void AnswerOptions::apply(Request& request) const {
  request.sampling = sampling;
  request.max_tokens = max_tokens;
  request.stop = stop;
  request.budget = budget.chosen();
}

std::optional<KvBudgetOptions> KvBudgetChoice::chosen() const {
  if (tokens == 0) return std::nullopt;
  KvBudgetOptions chosen = options;
  chosen.tokens = tokens;
  return chosen;
}

void add_kv_budget_options(Command command, KvBudgetChoice& choice) {
  const char* group = "KV budget";
  Option budget = command.add_option("--kv-budget", choice.tokens, "Tokens that a KV head keeps at most; 0: all")
                      .envname("SHALE_KV_BUDGET")
                      .type_name("N")
                      .capture_default_str()
                      .group(group);
  command
      .add_option("--kv-eviction", choice.options.method,
                  "How to choose: paged_eviction drops whole pages, a [budget:]scorer drops tokens")
      .envname("SHALE_KV_EVICTION")
      .needs(budget)
      .type_name("METHOD")
      .capture_default_str()
      .group(group);
  command
      .add_flag("--keep-first-page", choice.options.keep_first_page,
                "paged_eviction never drops the first page, where attention sinks lie")
      .needs(budget)
      .group(group);
  command
      .add_flag("--kv-eviction-full-layers", choice.options.full_layers,
                "Evict from the full layers of a model with sliding windows; without this, it is refused a budget")
      .needs(budget)
      .group(group);
  add_budget_prefill(command, "--kv-eviction-prefill", choice.options.prefill).needs(budget).group(group);
  command
      .add_option("--kv-eviction-interval", choice.options.interval,
                  "Decoded tokens between two evictions of tokens; with 1, holes stay until the pool is full")
      .range(1u, 1u << 20)
      .needs(budget)
      .type_name("N")
      .capture_default_str()
      .group(group);
  add_compaction(command, choice.options.compaction).needs(budget).group(group);
}

}  // namespace shale
