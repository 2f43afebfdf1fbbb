#include "runtime/requests.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "core/interrupt.h"
#include "core/units.h"

namespace shale {
namespace {

Json source_json(const SourceUsed& source) {
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

Json to_json(const KvBudgetStats& stats) {
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
  for (const PrefixSpan& span : request.spans) prompt += span.tokens.size();
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
  for (const SourceUsed& source : response.sources) sources.push_back(source_json(source));
  return {{"text", response.text},
          {"tokens", response.tokens},
          {"completion_tokens", response.tokens.size()},
          {"prompt_tokens", response.prompt_tokens},
          {"cached_tokens", std::move(cached)},
          {"lossy", response.lossy},
          {"quality_metric", response.metric},
          {"sources", std::move(sources)},
          {"kv_budget", to_json(response.budget)},
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
  if (response.drawn() > 1) line += fmt::format(", then {} each", format_duration(response.tpot_seconds));
  return line + (response.lossy ? "; lossy" : "; exact");
}

void print_piece(std::string_view piece) {
  std::fwrite(piece.data(), 1, piece.size(), stdout);
  std::fflush(stdout);
}

}  // namespace shale
