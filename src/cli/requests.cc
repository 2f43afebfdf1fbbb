#include "cli/requests.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <utility>

#include "cli/interrupt.h"
#include "cli/option_types.h"
#include "core/units.h"

namespace shale {
namespace {

Json to_json(const SourceUsed& source) {
  Json json = {{"where", source.where},
               {"method", source.method.text()},
               {"keep", source.keep},
               {"tokens", source.tokens},
               {"bytes", source.bytes}};
  if (source.quality) json["expected_quality"] = *source.quality;
  if (source.run != Hash128{}) json["run"] = source.run.hex();
  return json;
}

// The response of `id` among those that have just finished.
std::optional<Response> find_finished(Engine& engine, RequestId id) {
  for (Response& response : engine.finished()) {
    if (response.id == id) return std::move(response);
  }
  return std::nullopt;
}

}  // namespace

void add_answer_options(CLI::App& command, AnswerOptions& options) {
  const char* group = "Answer";
  command.add_option("--max-tokens", options.max_tokens, "Longest answer, in tokens")
      ->envname("SHALE_MAX_TOKENS")
      ->check(CLI::Range(1u, 1u << 20))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  command.add_option("--temperature", options.sampling.temperature, "Randomness; 0: always the likeliest token")
      ->envname("SHALE_TEMPERATURE")
      ->check(CLI::Range(0.0, 100.0))
      ->type_name("T")
      ->capture_default_str()
      ->group(group);
  command.add_option("--top-k", options.sampling.top_k, "Draw from the K likeliest tokens; 0: all")
      ->type_name("K")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--top-p", options.sampling.top_p,
                  "Draw from the likeliest tokens that together reach this probability")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("P")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--min-p", options.sampling.min_p, "Draw from tokens at least this likely, relative to the likeliest")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("P")
      ->capture_default_str()
      ->group(group);
  command.add_option("--seed", options.sampling.seed, "Seed of the draws: the same seed, the same answer")
      ->envname("SHALE_SEED")
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  command.add_option("--stop", options.stop, "Text that ends the answer; may be given again")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group(group);
  add_page_budget_options(command, options.budget);
}

void AnswerOptions::apply(Request& request) const {
  request.sampling = sampling;
  request.max_tokens = max_tokens;
  request.stop = stop;
  request.budget = budget.chosen();
}

std::optional<PageBudgetOptions> PageBudgetChoice::chosen() const {
  if (tokens == 0) return std::nullopt;
  PageBudgetOptions chosen = options;
  chosen.tokens = tokens;
  return chosen;
}

void add_page_budget_options(CLI::App& command, PageBudgetChoice& choice) {
  const char* group = "Page budget";
  CLI::Option* budget =
      command.add_option("--page-budget", choice.tokens, "Tokens that a KV head keeps at most; 0: all")
          ->envname("SHALE_PAGE_BUDGET")
          ->type_name("N")
          ->capture_default_str()
          ->group(group);
  command
      .add_option("--evict", choice.options.method,
                  "Who chooses what goes: paged_eviction drops whole pages, a [budget:]scorer tokens")
      ->envname("SHALE_EVICT")
      ->needs(budget)
      ->type_name("METHOD")
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--keep-first-page", choice.options.keep_first_page,
                "paged_eviction never drops the first page, where attention sinks lie")
      ->needs(budget)
      ->group(group);
  command
      .add_flag("--evict-full-layers", choice.options.full_layers,
                "Of a model with sliding windows, evict from its other layers, which is not done unasked")
      ->needs(budget)
      ->group(group);
  add_budget_prefill(command, "--evict-prefill", choice.options.prefill)->needs(budget)->group(group);
  command.add_option("--evict-interval", choice.options.interval, "Decoded tokens between two evictions of tokens")
      ->check(CLI::Range(1u, 1u << 20))
      ->needs(budget)
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  add_compaction(command, choice.options.compaction)->needs(budget)->group(group);
}

Json to_json(const PageBudgetStats& stats) {
  return {{"evictions", stats.evictions},
          {"compactions", stats.compactions},
          {"tokens_dropped", stats.paging.tokens_dropped},
          {"slots_copied", stats.paging.slots_copied},
          {"pages_freed", stats.paging.pages_freed}};
}

Result<Response> run_request(Engine& engine, Request request, const OutputOptions& output) {
  SHALE_ASSIGN(Response response, run_until_interrupted(engine, std::move(request), output));
  if (response.stop == StopReason::kCancelled) return fail(ErrorCode::kCancelled, "interrupted");
  return response;
}

Result<Response> run_until_interrupted(Engine& engine, Request request, const OutputOptions& output) {
  std::size_t prompt = 0;
  for (const Segment& segment : request.segments) prompt += segment.tokens.size();
  const std::uint64_t computed_before = engine.stats().prefill_tokens;
  auto progress = std::make_optional<Progress>(output, "reading the prompt");
  request.on_text = [&progress, show = std::move(request.on_text)](std::string_view piece) {
    progress.reset();  // clears its line before the answer begins
    if (show) show(piece);
  };

  SHALE_ASSIGN(const RequestId id, engine.submit(std::move(request)));
  std::optional<Response> response;
  while (!(response = find_finished(engine, id))) {
    if (interrupted()) engine.cancel(id);
    engine.run_once();
    if (progress) (*progress)(engine.stats().prefill_tokens - computed_before, prompt);
  }
  if (response->error && response->stop != StopReason::kCancelled) return std::unexpected(std::move(*response->error));
  return std::move(*response);
}

Json to_json(const Response& response, const Model& model) {
  Json cached = Json::object();
  for (const auto& [name, tokens] : response.cached.sources()) cached[name] = tokens;
  Json sources = Json::array();
  for (const SourceUsed& source : response.sources) sources.push_back(to_json(source));
  return {{"text", response.text},
          {"tokens", response.tokens},
          {"completion_tokens", response.tokens.size()},
          {"prompt_tokens", response.prompt_tokens},
          {"cached_tokens", std::move(cached)},
          {"lossy", response.lossy},
          {"quality_metric", response.metric},
          {"sources", std::move(sources)},
          {"page_budget", to_json(response.budget)},
          {"ttft_seconds", response.ttft_seconds},
          {"tpot_seconds", response.tpot_seconds},
          {"stop_reason", to_string(response.stop)},
          {"model", model.info().name},
          {"weights", {{"prefill", model.info().prefill_weights}, {"decode", model.info().decode_weights}}}};
}

std::string summary(const Response& response) {
  std::string line = fmt::format("{} tokens of prompt:", response.prompt_tokens);
  for (const auto& [name, tokens] : response.cached.sources()) {
    if (tokens) line += fmt::format(" {} from {}{},", tokens, name == kPoolSource ? "the " : "", name);
  }
  line += fmt::format(" {} computed; first token {}", response.prompt_tokens - response.cached.total(),
                      format_duration(response.ttft_seconds));
  if (response.tokens.size() > 1) line += fmt::format(", then {} each", format_duration(response.tpot_seconds));
  return line + (response.lossy ? "; lossy" : "; exact");
}

void print_piece(std::string_view piece) {
  std::fwrite(piece.data(), 1, piece.size(), stdout);
  std::fflush(stdout);
}

}  // namespace shale
