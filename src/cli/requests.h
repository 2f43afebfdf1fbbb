// Requests as commands run them: cancelled by Ctrl-C, shown on a terminal, reported as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/cli11_fwd.h"
#include "cli/output.h"
#include "cli/serving.h"

namespace shale {

// --page-budget, --evict, --keep-first-page, --evict-prefill, --evict-interval, --compaction.
struct PageBudgetChoice {
  std::uint32_t tokens = 0;  // 0: no budget
  PageBudgetOptions options;
  // Nothing without --page-budget.
  std::optional<PageBudgetOptions> chosen() const;
};
void add_page_budget_options(CLI::App& command, PageBudgetChoice& choice);

// --max-tokens, --temperature, --top-k, --top-p, --min-p, --seed, --stop, and those of the page budget.
struct AnswerOptions {
  std::uint32_t max_tokens = 128;
  SamplingOptions sampling;
  std::vector<std::string> stop;
  PageBudgetChoice budget;
  // Fills the request's part.
  void apply(Request& request) const;
};
void add_answer_options(CLI::App& command, AnswerOptions& options);

// Runs the request to its end with a progress bar until the first token. kCancelled after Ctrl-C; the error of a
// request that failed.
Result<Response> run_request(Engine& engine, Request request, const OutputOptions& output);
// The same, but Ctrl-C ends the answer where it is (StopReason::kCancelled).
Result<Response> run_until_interrupted(Engine& engine, Request request, const OutputOptions& output);

Json to_json(const PageBudgetStats& stats);
// The fields of an answer that every command reports alike; docs/reference/json.md.
Json to_json(const Response& response, const Model& model);

// "4012 tokens of prompt: 3990 from disk, 22 computed; first token 210 ms, then 8.1 ms each; exact".
std::string summary(const Response& response);

// Prints text as it comes. For Request::on_text.
void print_piece(std::string_view piece);

}  // namespace shale
