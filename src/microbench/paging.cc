#include "microbench/paging.h"

#include <algorithm>
#include <random>
#include <utility>

#include "core/clock.h"
#include "runtime/engine_stack.h"
#include "sim/simulate.h"
#include "tiers/tiers.h"

namespace shale::bench {
namespace {

constexpr std::size_t kTimeLinePoints = 400;

std::uint32_t blocks_of(const PageShape& shape, const PagingLoad& load) {
  const std::uint32_t each = shape.pages_for(load.prompt_tokens + load.output_tokens) + 2;
  return std::max(each, static_cast<std::uint32_t>(load.pool_share * load.sequences * each));
}

std::vector<Token> prompt_of(const PagingLoad& load, std::uint32_t vocabulary, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(load.prompt_tokens);
  std::ranges::generate(tokens, [&] { return static_cast<Token>(random() % vocabulary); });
  return tokens;
}

Request random_request(const PagingLoad& load, std::uint32_t vocabulary, std::uint32_t seed) {
  Request request;
  request.spans.emplace_back().tokens = prompt_of(load, vocabulary, seed);
  request.max_tokens = load.output_tokens;
  request.budget = load.budget;
  request.use_cache = request.insert_prefix = load.prefix_cache;
  request.ignore_end = true;
  return request;
}

void thin(std::vector<std::pair<double, double>>& line) {
  const std::size_t step = (line.size() + kTimeLinePoints - 1) / kTimeLinePoints;
  if (step <= 1) return;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < line.size(); i += step) line[kept++] = line[i];
  line.resize(kept);
}

// An engine over a pool of its own and a memory tier to spill to.
Result<std::unique_ptr<EngineStack>> open_stack(Model& model, const Tokenizer& tokenizer, std::uint32_t blocks,
                                                const EngineOptions& engine, const Clock& clock) {
  EngineStackOptions options{.pool_bytes = blocks * model.page_shape().block_bytes(), .engine = engine};
  options.cache.methods = {};
  std::vector<StoreTier> tiers;
  tiers.push_back({make_memory_tier(kUnlimited, clock)});
  return EngineStack::open(model, tokenizer, std::move(options), std::move(tiers), nullptr, clock);
}

// With prefixes of others, numbered from `seed`. Nobody asks for them, so nothing is computed.
Status fill_pool(EngineStack& stack, const PagingLoad& load, std::uint32_t vocabulary, std::uint32_t seed) {
  PagePool& pool = stack.pool();
  const std::uint32_t blocks = pool.shape().pages_for(load.prompt_tokens);
  for (; pool.blocks_free() >= blocks; ++seed) {
    Sequence other(pool);
    SHALE_TRY(other.append(load.prompt_tokens));
    stack.cache().insert_prefix(prompt_of(load, vocabulary, seed), other);
  }
  return {};
}

std::uint64_t pages_held(EngineStack& stack) {
  const PagePool& pool = stack.pool();
  const std::uint64_t blocks = pool.blocks_total() - stack.cache().blocks_evictable();
  return blocks * pool.shape().pages_per_block() - pool.pages_free();
}

}  // namespace

Result<PagingResult> measure_paging(Model& model, const Tokenizer& tokenizer, const PagingLoad& load) {
  const PageShape shape = model.page_shape();
  const RealClock clock;
  SHALE_ASSIGN(const auto stack,
               open_stack(model, tokenizer, blocks_of(shape, load),
                          {.sequences_max = load.sequences, .chunk_slowdown = load.chunk_slowdown}, clock));
  Engine& engine = stack->engine();

  PagingResult result;
  result.pages_total = std::uint64_t{stack->pool().blocks_total()} * shape.pages_per_block();
  if (load.prefix_cache) SHALE_TRY(fill_pool(*stack, load, model.info().vocabulary, load.sequences));
  for (std::uint32_t i = 0; i < load.sequences; ++i) {
    SHALE_TRY(engine.submit(random_request(load, model.info().vocabulary, i)));
  }
  const double start_s = clock.now_s();
  double output = 0, decode_s = 0;
  std::uint64_t decoded = 0;
  std::vector<double> gaps;
  std::uint64_t steps = 0;
  for (std::uint32_t left = load.sequences; left > 0; ++steps) {
    const EngineStats before = engine.stats();
    const double step_s = clock.now_s();
    engine.run_once();
    const EngineStats after = engine.stats();
    if (after.prefill_tokens == before.prefill_tokens) {
      decoded += after.decode_tokens - before.decode_tokens;
      decode_s += clock.now_s() - step_s;
    }
    const double now_s = clock.now_s() - start_s;
    const Occupancy occupancy = engine.occupancy();
    result.fragmentation += occupancy.fragmentation();
    result.budget_occupancy += occupancy.budget;
    const std::uint64_t used = pages_held(*stack);
    result.pages_peak = std::max(result.pages_peak, used);
    result.time_line.emplace_back(now_s, static_cast<double>(used) / static_cast<double>(result.pages_total));
    for (const Response& response : engine.finished()) {
      if (response.error) return std::unexpected(*response.error);
      --left;
      output += static_cast<double>(response.tokens.size());
      result.ttft_seconds += response.ttft_seconds / load.sequences;
      result.tpot_seconds += response.tpot_seconds / load.sequences;
      gaps.insert(gaps.end(), response.gaps_seconds.begin(), response.gaps_seconds.end());
    }
  }
  const double seconds = clock.now_s() - start_s;
  const double input = double{1} * load.sequences * load.prompt_tokens;
  result.tokens_per_second = (input + output) / seconds;
  result.decode_tokens_per_second = decoded == 0 ? 0 : static_cast<double>(decoded) / decode_s;
  const Percentiles itl = percentiles_of(gaps);
  result.itl_p50_seconds = itl.p50;
  result.itl_p99_seconds = itl.p99;
  result.pages_end = pages_held(*stack);
  result.fragmentation /= static_cast<double>(steps);
  result.budget_occupancy /= static_cast<double>(steps);
  result.preempted = engine.stats().preempted;
  result.budgets = engine.stats().budgets;
  result.budget_seconds = engine.stats().budget_seconds;
  thin(result.time_line);
  return result;
}

Result<JoiningResult> measure_joining(Model& model, const Tokenizer& tokenizer, const JoiningLoad& load) {
  constexpr std::uint32_t kAlone = 200;  // steps
  const std::uint32_t output = model.info().context_max - load.prompt_tokens - 1;
  const PageShape shape = model.page_shape();
  const RealClock clock;
  SHALE_ASSIGN(const auto stack,
               open_stack(model, tokenizer, (load.sequences + 1) * (shape.pages_for(model.info().context_max) + 2),
                          {.sequences_max = load.sequences + 1, .chunk_slowdown = load.chunk_slowdown}, clock));
  Engine& engine = stack->engine();
  const auto submit = [&](std::uint32_t prompt_tokens, std::uint32_t output_tokens, std::uint32_t seed) {
    const PagingLoad one{.prompt_tokens = prompt_tokens, .output_tokens = output_tokens, .budget = std::nullopt};
    return engine.submit(random_request(one, model.info().vocabulary, seed));
  };
  for (std::uint32_t i = 0; i < load.sequences; ++i) SHALE_TRY(submit(load.prompt_tokens, output, i));
  while (engine.stats().prefill_tokens < std::uint64_t{load.sequences} * load.prompt_tokens) engine.run_once();
  for (int step = 0; step < 20; ++step) engine.run_once();  // what chunks left behind settles

  JoiningResult result;
  std::vector<double> alone, joined;
  const auto timed_step = [&](std::vector<double>& gaps) {
    const double start_s = clock.now_s();
    engine.run_once();
    gaps.push_back(clock.now_s() - start_s);
  };
  for (std::uint32_t step = 0; step < kAlone; ++step) timed_step(alone);
  SHALE_ASSIGN(const RequestId joining, submit(load.joining_tokens, 1, load.sequences));
  std::vector<Response> finished;
  while ((finished = engine.finished()).empty()) timed_step(joined);
  for (const Response& response : finished) {
    if (response.error) return std::unexpected(*response.error);
    if (response.id != joining) {
      return fail(ErrorCode::kInvalidArgument,
                  "those that decode filled the model's context of {} before a prompt of {} was computed beside them: "
                  "give fewer tokens to --prompt-tokens or --join",
                  model.info().context_max, load.joining_tokens);
    }
  }
  result.ttft_seconds = finished[0].ttft_seconds;
  result.joined_steps = joined.size();
  const Percentiles itl = percentiles_of(alone), joined_itl = percentiles_of(joined);
  result.itl_p50_seconds = itl.p50;
  result.itl_p99_seconds = itl.p99;
  result.joined_itl_p50_seconds = joined_itl.p50;
  result.joined_itl_p99_seconds = joined_itl.p99;
  return result;
}

}  // namespace shale::bench
