#include "server/metrics_text.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace shale {
namespace {

// Writes families one after another: a head, then its samples.
class Writer {
 public:
  explicit Writer(std::string_view model_name) {
    model_ = "model_name=\"";
    for (const char c : model_name) {
      if (c == '\\' || c == '"') model_ += '\\';
      model_ += c == '\n' ? ' ' : c;
    }
    model_ += '"';
  }

  void head(std::string_view name, const char* type, const char* help) {
    name_ = name;
    write("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  void sample(double value, std::string_view labels = {}, const char* suffix = "") {
    write("{}{}{{{}{}{}}} {}\n", name_, suffix, model_, labels.empty() ? "" : ",", labels, value);
  }
  void gauge(std::string_view name, double value, const char* help) {
    head(name, "gauge", help);
    sample(value);
  }
  void counter(std::string_view name, std::uint64_t value, const char* help) {
    head(name, "counter", help);
    sample(static_cast<double>(value));
  }
  void seconds(std::string_view name, double value, const char* help) {
    head(name, "counter", help);
    sample(value);
  }
  void histogram(std::string_view name, const Histogram& histogram, const char* help) {
    head(name, "histogram", help);
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < histogram.bounds().size(); ++i) {
      below += histogram.counts()[i];
      sample(static_cast<double>(below), fmt::format("le=\"{}\"", histogram.bounds()[i]), "_bucket");
    }
    sample(static_cast<double>(histogram.count()), "le=\"+Inf\"", "_bucket");
    sample(histogram.sum(), {}, "_sum");
    sample(static_cast<double>(histogram.count()), {}, "_count");
  }

  std::string text() && { return std::move(text_); }

 private:
  template <class... Args>
  void write(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  std::string model_, text_;
  std::string_view name_;
};

void write_requests(Writer& to, const ServerMetrics& metrics) {
  const RequestMetrics& requests = metrics.requests;
  to.gauge("vllm:num_requests_running", metrics.running, "Requests that are computed together now.");
  to.gauge("vllm:num_requests_waiting", metrics.waiting, "Requests that wait for their turn.");
  to.gauge("shale_requests_loading", metrics.loading, "Of the running requests, those that wait for a tier.");
  to.gauge("shale_requests_preempted", metrics.preempted, "Requests that were preempted for others and will go on.");
  to.counter("vllm:num_preemptions_total", metrics.engine.preempted, "Times that a request was preempted for others.");
  to.counter("vllm:prompt_tokens_total", requests.prompt_tokens, "Tokens of the prompts of finished requests.");
  to.counter("vllm:generation_tokens_total", requests.generated_tokens, "Tokens generated for finished requests.");
  to.head("vllm:request_success_total", "counter", "Finished requests by why they ended.");
  const auto of = [&](StopReason reason) {
    return static_cast<double>(requests.finished[static_cast<std::size_t>(reason)]);
  };
  to.sample(of(StopReason::kEndOfTurn) + of(StopReason::kStopString) + of(StopReason::kStopToken),
            "finished_reason=\"stop\"");
  to.sample(of(StopReason::kLength) + of(StopReason::kContextFull), "finished_reason=\"length\"");
  to.sample(of(StopReason::kCancelled), "finished_reason=\"abort\"");
  to.head("shale_requests_unanswered_total", "counter", "Requests without an answer, by why.");
  to.sample(of(StopReason::kError), "reason=\"failed\"");
  to.sample(static_cast<double>(requests.refused), "reason=\"refused\"");
  to.sample(static_cast<double>(requests.overloaded), "reason=\"overload\"");
  to.counter("shale_requests_lossy_total", requests.lossy, "Finished requests that read lossy keys and values.");
  to.histogram("vllm:time_to_first_token_seconds", requests.ttft_seconds, "From submission to the first token.");
  to.histogram("vllm:request_time_per_output_token_seconds", requests.tpot_seconds,
               "Mean time between the later tokens of a request.");
  to.histogram("vllm:inter_token_latency_seconds", requests.gap_seconds, "Time between two tokens of a request.");
  to.histogram("vllm:e2e_request_latency_seconds", requests.total_seconds, "From submission to the end.");
  to.histogram("vllm:request_queue_time_seconds", requests.queue_seconds,
               "From submission to where a request began, or left.");
  to.histogram("vllm:request_prefill_time_seconds", requests.prefill_seconds,
               "From where a request began to its first token.");
  to.histogram("vllm:request_decode_time_seconds", requests.decode_seconds,
               "From a request's first token to its last.");
  to.histogram("vllm:request_prompt_tokens", requests.prompt_lengths, "Tokens of a request's prompt.");
  to.histogram("vllm:request_prefill_kv_computed_tokens", requests.computed_lengths,
               "Tokens of a request's prompt that were computed, those from a cache left out.");
  to.histogram("vllm:request_generation_tokens", requests.answer_lengths, "Tokens of a request's answer.");
  // As vLLM has it: of requests to the server, which may have several answers.
  to.histogram("vllm:request_max_num_generation_tokens", requests.longest_answers,
               "Tokens of a request's longest answer.");
}

void write_engine(Writer& to, const EngineStats& engine, const Occupancy& occupancy) {
  to.counter("shale_engine_steps_total", engine.steps, "Forward steps.");
  to.counter("shale_engine_prefill_tokens_total", engine.prefill_tokens, "Tokens of prompts that were computed.");
  to.counter("shale_engine_decode_tokens_total", engine.decode_tokens, "Tokens of answers that were computed.");
  to.seconds("shale_engine_threads_short_seconds_total", engine.threads_short_seconds,
             "Seconds computed with fewer threads than there are, because other programs wanted their cores.");
  to.counter("shale_engine_shared_loads_total", engine.shared_loads,
             "Requests that waited for what another loaded, or for the form that it made or loaded, and took it.");
  to.counter("shale_engine_retries_total", engine.retried, "Requests begun again because an extent was unreadable.");
  to.counter("shale_measured_beside_tokens_total", engine.guest_tokens, "Tokens computed beside requests to measure.");
  to.seconds("shale_measured_beside_seconds_total", engine.guest_seconds,
             "Seconds of requests' time that measuring quality took.");
  const KvBudgetStats& budgets = engine.budgets;
  to.counter("shale_kv_budget_evictions_total", budgets.evictions, "Passes that dropped tokens of a KV budget.");
  to.counter("shale_kv_budget_compactions_total", budgets.compactions, "Passes that closed holes.");
  to.counter("shale_kv_budget_tokens_dropped_total", budgets.paging.tokens_dropped,
             "Tokens of a head that were dropped.");
  to.counter("shale_kv_budget_slots_copied_total", budgets.paging.slots_copied,
             "Tokens of a head that were moved or copied.");
  to.counter("shale_kv_budget_pages_freed_total", budgets.paging.pages_freed,
             "Pages that KV budgets let go, less those that copies took.");
  to.gauge("shale_kv_budget_occupancy", occupancy.budget, "Share of their KV budgets that requests hold now.");
  to.seconds("shale_kv_budget_seconds_total", engine.budget_seconds, "Seconds spent dropping and compacting.");
}

void write_quality(Writer& to, const ServerMetrics& metrics) {
  to.head("shale_quality_floor", "gauge", "Expected quality below which nothing is compressed, and its metric.");
  to.sample(metrics.quality_floor, fmt::format("metric=\"{}\"", metrics.metric));
}

void write_watch(Writer& to, const QualityWatchStats& watch) {
  to.counter("shale_profile_questions_total", watch.questions, "Questions recorded about contexts.");
  to.counter("shale_profile_questions_recalled_total", watch.recalled,
             "Questions recalled that were asked before this process.");
  to.counter("shale_prior_texts_total", watch.prior_texts, "Texts measured for the prior of the model.");
  to.gauge("shale_prior_texts_left", static_cast<double>(watch.prior_texts_left), "Texts still to be measured for it.");
  to.counter("shale_drift_checks_total", watch.checks, "Profiles that were checked on what was asked since.");
  to.counter("shale_drift_answers_total", watch.answers,
             "Answers over lossy forms that were compared with what the full cache says.");
  to.counter("shale_drift_found_total", watch.drifted, "Profiles that no longer held.");
  to.counter("shale_contexts_profiled_total", watch.profiled, "Profiles that were made of contexts.");
  to.counter("shale_profile_interrupted_total", watch.interrupted, "Checks and profiles that a request interrupted.");
  to.counter("shale_profile_failed_total", watch.failed, "Checks and profiles that failed.");
  to.head("shale_profile_seconds_total", "counter",
          "Seconds spent on contexts, beside requests or while none was running.");
  to.sample(watch.prior_seconds, "work=\"prior\"");
  to.sample(watch.check_seconds, "work=\"check\"");
  to.sample(watch.profile_seconds, "work=\"profile\"");
}

void write_pool(Writer& to, const ServerMetrics& metrics) {
  const auto total = static_cast<double>(metrics.pages_total), free = static_cast<double>(metrics.pages_free);
  const auto kept = static_cast<double>(metrics.pages_evictable);
  to.gauge("vllm:kv_cache_usage_perc", (total - free - kept) / total,
           "Share of the pool that requests, and what is stored and measured, hold; 1 is all.");
  to.gauge("shale_page_fragmentation", metrics.occupancy.fragmentation(),
           "Share of the slots of running requests' pages that hold no token.");
  to.head("shale_pool_bytes", "gauge",
          "The page pool's bytes: held by requests and by what is stored and measured, kept for later requests, free.");
  const auto bytes = static_cast<double>(metrics.page_bytes);
  to.sample((total - free - kept) * bytes, "state=\"held\"");
  to.sample(kept * bytes, "state=\"kept\"");
  to.sample(free * bytes, "state=\"free\"");
}

void write_cache(Writer& to, const ServerMetrics& metrics) {
  const CacheStats& cache = metrics.cache;
  const CachedTokens& cached = metrics.requests.cached;
  to.counter("vllm:prefix_cache_queries_total", metrics.requests.prompt_tokens, "Tokens looked up in the pool.");
  to.counter("vllm:prefix_cache_hits_total", cached.from(kPoolSource), "Tokens found in the pool.");
  to.head("shale_cached_tokens_total", "counter", "Tokens of prompts that were not computed, by where they came from.");
  for (const auto& [name, tokens] : cached.sources()) {
    to.sample(static_cast<double>(tokens), fmt::format("source=\"{}\"", name));
  }
  const StoreStats& store = metrics.store;
  to.gauge("shale_cache_extents", static_cast<double>(store.extents), "Extents that are known, on any tier.");
  to.gauge("shale_cache_index_bytes", static_cast<double>(store.index_bytes), "Memory that knowing them takes.");
  to.counter("shale_cache_lookups_total", cache.lookups, "Look-ups of prefixes.");
  to.counter("shale_cache_hits_total", cache.hits, "Look-ups that found something.");
  to.seconds("shale_cache_background_seconds_total", cache.background_seconds,
             "Seconds that the engine's thread spent encoding, writing and moving.");
  to.seconds("shale_cache_encode_seconds_total", store.encode_seconds, "Of those, seconds spent ranking and encoding.");
  to.seconds("shale_cache_planning_seconds_total", store.planning_seconds, "Seconds spent planning.");
  to.counter("shale_cache_encoded_bytes_total", store.encoded_bytes, "Bytes at rest of what was encoded.");
  to.counter("shale_cache_saves_total", store.saves, "Runs handed over to be stored.");
  to.gauge("shale_cache_saving_chunks", static_cast<double>(store.chunks_saving),
           "Chunks that are still to be stored.");
  to.gauge("shale_cache_saves_left", static_cast<double>(store.saves_left),
           "Runs of which something is still to be written, further copies too.");
  to.gauge("shale_cache_moves_left", static_cast<double>(store.moves_left), "Extents that are to lie elsewhere.");
  to.counter("shale_cache_shared_blocks_total", store.blocks_shared,
             "Blocks that were to be stored and were there already.");
  to.gauge("shale_cache_full_copy_bytes", static_cast<double>(store.full_copy_bytes),
           "On the lowest tier, of exact extents beside what is placed above.");
  to.counter("shale_cache_dropped_extents_total", store.dropped_extents, "Extents given up everywhere, for others.");
  to.counter("shale_cache_damaged_chunks_total", store.damaged_chunks, "Chunks found damaged and not served.");
  to.counter("shale_cache_damaged_rankings_total", store.damaged_rankings,
             "Importance rankings found damaged: what kept them is compressed by these no more.");
  to.counter("shale_cache_stale_extents_total", store.stale_extents, "Extents that were not there any more.");
  to.counter("shale_cache_failed_extents_total", store.extents_failed, "Extents that could not be stored.");
  to.counter("shale_cache_failed_loads_total", cache.failed_loads, "Loads of which not every block came.");
  to.counter("shale_cache_late_loads_total", cache.late_loads,
             "Loads that a request gave up waiting for, and computed.");
  to.counter("shale_cache_meetings_total", cache.meetings,
             "Prefixes computed from the front while they were loaded from the back.");
  to.counter("shale_cache_head_bytes_total", cache.head_bytes,
             "Bytes of heads that IMPRESS would have read to find what matters of what was loaded; planner impress.");
  to.counter("shale_cache_given_up_total", cache.given_up,
             "Runs that were to be stored, and were given up for the room that requests needed.");
  to.head("shale_cache_moves_total", "counter",
          "Extents that changed their place or form, by the tier where they lay.");
  for (const StoreTierStats& tier : store.tiers) {
    const auto move = [&](std::string_view what, std::uint64_t count) {
      to.sample(static_cast<double>(count), fmt::format("tier=\"{}\",move=\"{}\"", tier.name, what));
    };
    move("demoted", tier.demoted);
    move("promoted", tier.promoted);
    move("compressed", tier.compressed);
    move("removed", tier.removed);
  }
}

// Breakers of tiers behind a network, where there are any.
void write_breakers(Writer& to, const ServerMetrics& metrics) {
  if (std::ranges::none_of(metrics.tiers, [](const TierMetrics& tier) { return tier.breaker.has_value(); })) return;
  const auto each = [&](const char* name, const char* type, const char* help, auto value) {
    to.head(name, type, help);
    for (const TierMetrics& tier : metrics.tiers) {
      if (!tier.breaker) continue;
      to.sample(static_cast<double>(value(*tier.breaker)), fmt::format("tier=\"{}\"", tier.name));
    }
  };
  using State = BreakerState;
  each("shale_tier_breaker_state", "gauge", "0: the tier answers; 1: it is being probed; 2: it is left alone.",
       [](const State& breaker) { return static_cast<int>(breaker.kind); });
  each("shale_tier_breaker_opened_total", "counter", "Times that the tier was left alone for not answering.",
       [](const State& breaker) { return breaker.opened; });
  each("shale_tier_breaker_failures_total", "counter", "Operations that failed, or were not answered in time.",
       [](const State& breaker) { return breaker.failures; });
  each("shale_tier_breaker_refused_total", "counter", "Operations refused at once while it was left alone.",
       [](const State& breaker) { return breaker.refused; });
}

void write_tiers(Writer& to, const ServerMetrics& metrics) {
  const auto each = [&](const char* name, const char* type, const char* help, auto value) {
    to.head(name, type, help);
    for (const TierMetrics& tier : metrics.tiers) {
      to.sample(static_cast<double>(value(tier)), fmt::format("tier=\"{}\"", tier.name));
    }
  };
  using Tier = TierMetrics;
  each("shale_tier_used_bytes", "gauge", "Bytes stored.", [](const Tier& tier) { return tier.used_bytes; });
  each("shale_tier_capacity_bytes", "gauge", "Room; 2^64 - 1 for no bound.",
       [](const Tier& tier) { return tier.capacity_bytes; });
  each("shale_tier_read_bytes_per_second", "gauge", "Speed of reads as measured.",
       [](const Tier& tier) { return tier.speed.read_bytes_per_s; });
  each("shale_tier_write_bytes_per_second", "gauge", "Speed of writes as measured.",
       [](const Tier& tier) { return tier.speed.write_bytes_per_s; });
  each("shale_tier_read_latency_seconds", "gauge", "Latency of reads as measured.",
       [](const Tier& tier) { return tier.speed.latency_s; });
  each("shale_tier_read_queue_bytes", "gauge", "Bytes that a read would wait for.",
       [](const Tier& tier) { return tier.reads.bytes; });
  each("shale_tier_write_queue_bytes", "gauge", "Bytes that a write would wait for.",
       [](const Tier& tier) { return tier.writes.bytes; });
  each("shale_tier_read_seconds_total", "counter", "Seconds from start to end, summed over reads.",
       [](const Tier& tier) { return tier.stats.read_seconds; });
  each("shale_tier_read_wait_seconds_total", "counter", "Of those, seconds behind other reads.",
       [](const Tier& tier) { return tier.stats.read_wait_seconds; });
  each("shale_tier_write_seconds_total", "counter", "Seconds from start to end, summed over writes.",
       [](const Tier& tier) { return tier.stats.write_seconds; });
  each("shale_tier_write_wait_seconds_total", "counter", "Of those, seconds behind other writes.",
       [](const Tier& tier) { return tier.stats.write_wait_seconds; });
  each("shale_tier_reads_total", "counter", "Blobs read.", [](const Tier& tier) { return tier.stats.reads; });
  each("shale_tier_read_bytes_total", "counter", "Bytes read.", [](const Tier& tier) { return tier.stats.read_bytes; });
  each("shale_tier_read_errors_total", "counter", "Reads that failed.",
       [](const Tier& tier) { return tier.stats.read_errors; });
  each("shale_tier_misses_total", "counter", "Reads of blobs that were not there.",
       [](const Tier& tier) { return tier.stats.misses; });
  each("shale_tier_writes_total", "counter", "Blobs written.", [](const Tier& tier) { return tier.stats.writes; });
  each("shale_tier_written_bytes_total", "counter", "Bytes written.",
       [](const Tier& tier) { return tier.stats.written_bytes; });
  each("shale_tier_write_errors_total", "counter", "Writes that failed.",
       [](const Tier& tier) { return tier.stats.write_errors; });
  each("shale_tier_removals_total", "counter", "Blobs removed.", [](const Tier& tier) { return tier.stats.removals; });
  each("shale_tier_refused_full_total", "counter", "Writes refused for lack of room.",
       [](const Tier& tier) { return tier.stats.refused_full; });
  write_breakers(to, metrics);
}

void write_tenants(Writer& to, const ServerMetrics& metrics) {
  if (metrics.tenants.empty()) return;
  const auto each = [&](const char* name, const char* type, const char* help, auto value) {
    to.head(name, type, help);
    for (const TenantMetrics& tenant : metrics.tenants) {
      to.sample(static_cast<double>(value(tenant)), fmt::format("tenant=\"{}\"", tenant.name));
    }
  };
  using Tenant = TenantMetrics;
  each("shale_tenant_requests_total", "counter", "Requests for answers.",
       [](const Tenant& tenant) { return tenant.requests; });
  each("shale_tenant_refused_total", "counter", "Of those, refused for having too many running.",
       [](const Tenant& tenant) { return tenant.refused; });
  each("shale_tenant_requests_running", "gauge", "Requests that wait or are answered.",
       [](const Tenant& tenant) { return tenant.running; });
  each("shale_tenant_prompt_tokens_total", "counter", "Tokens of the prompts of finished requests.",
       [](const Tenant& tenant) { return tenant.served.prompt_tokens; });
  each("shale_tenant_generation_tokens_total", "counter", "Tokens generated for finished requests.",
       [](const Tenant& tenant) { return tenant.served.generated_tokens; });
  to.head("shale_tenant_cached_tokens_total", "counter", "Of the prompts' tokens, by where they came from.");
  for (const Tenant& tenant : metrics.tenants) {
    for (const auto& [source, tokens] : tenant.served.cached.sources()) {
      to.sample(static_cast<double>(tokens), fmt::format("tenant=\"{}\",source=\"{}\"", tenant.name, source));
    }
  }
  to.head("shale_tenant_queue_seconds", "summary", "From submission to where a request began, or left.");
  for (const Tenant& tenant : metrics.tenants) {
    const std::string label = fmt::format("tenant=\"{}\"", tenant.name);
    to.sample(tenant.served.queue_seconds, label, "_sum");
    to.sample(static_cast<double>(tenant.served.requests), label, "_count");
  }
  each("shale_tenant_stored_bytes", "gauge", "Bytes at rest, on all tiers but shared ones.",
       [](const Tenant& tenant) { return tenant.store.bytes; });
  each("shale_tenant_stored_bytes_max", "gauge", "What they may be; 0 for no bound.",
       [](const Tenant& tenant) { return tenant.store.bytes_max; });
  each("shale_tenant_dropped_extents_total", "counter",
       "Extents given up for others of the tenant, to stay within that.",
       [](const Tenant& tenant) { return tenant.store.dropped_for_room; });
  each("shale_tenant_not_stored_total", "counter", "Extents that were not stored, to stay within that.",
       [](const Tenant& tenant) { return tenant.store.refused; });
}

}  // namespace

std::string metrics_text(const ServerMetrics& metrics, std::string_view model_name) {
  Writer to(model_name);
  write_requests(to, metrics);
  write_engine(to, metrics.engine, metrics.occupancy);
  write_quality(to, metrics);
  write_watch(to, metrics.watch);
  write_pool(to, metrics);
  write_cache(to, metrics);
  write_tiers(to, metrics);
  write_tenants(to, metrics);
  return std::move(to).text();
}

}  // namespace shale
