#include "bench/paging.h"

#include <algorithm>
#include <random>

#include "core/clock.h"
#include "tier/tiers.h"

namespace shale::bench {
namespace {

constexpr std::size_t kTimeLinePoints = 400;

std::uint32_t slabs_of(const PageShape& shape, const PagingLoad& load) {
  const std::uint32_t each = shape.pages_for(load.prompt_tokens + load.output_tokens) + 2;
  return std::max(each, static_cast<std::uint32_t>(load.pool_share * load.sequences * each));
}

Request random_request(const PagingLoad& load, std::uint32_t vocabulary, std::uint32_t seed) {
  std::mt19937 random(seed);
  Request request;
  Segment& prompt = request.segments.emplace_back();
  for (std::uint32_t i = 0; i < load.prompt_tokens; ++i)
    prompt.tokens.push_back(static_cast<Token>(random() % vocabulary));
  request.max_tokens = load.output_tokens;
  request.budget = load.budget;
  request.use_cache = request.remember = false;
  request.ignore_end = true;
  return request;
}

double quantile(std::vector<float>& values, double share) {
  if (values.empty()) return 0;
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, place);
  return double{*place};
}

void thin(std::vector<std::pair<double, double>>& line) {
  const std::size_t step = (line.size() + kTimeLinePoints - 1) / kTimeLinePoints;
  if (step <= 1) return;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < line.size(); i += step) line[kept++] = line[i];
  line.resize(kept);
}

}  // namespace

Result<PagingResult> measure_paging(Model& model, const Tokenizer& tokenizer, const PagingLoad& load) {
  const RealClock clock;
  const PageShape shape = model.page_shape();
  SHALE_ASSIGN(const auto pool, PagePool::create(shape, slabs_of(shape, load) * shape.slab_bytes()));
  std::vector<std::unique_ptr<Tier>> tiers;
  tiers.push_back(make_memory_tier(kUnlimited, clock));
  CacheOptions options;
  options.model.rope = model.info().rope;
  options.methods = {};
  SHALE_ASSIGN(const auto cache, Cache::open(std::move(options), {model.fingerprint(), model.info().name}, *pool,
                                             std::move(tiers), nullptr, clock));
  Engine engine({.sequences_max = load.sequences}, model, tokenizer, *cache, clock);

  PagingResult result;
  result.pages_total = std::uint64_t{pool->slabs_total()} * shape.pages_per_slab();
  for (std::uint32_t i = 0; i < load.sequences; ++i) {
    SHALE_TRY(engine.submit(random_request(load, model.info().vocabulary, i)));
  }
  const double start_s = clock.now_s();
  double last_first_token_s = 0, output = 0;
  std::vector<float> gaps;
  for (std::uint32_t left = load.sequences; left > 0;) {
    engine.run_once();
    const double now_s = clock.now_s() - start_s;
    const std::uint64_t used = result.pages_total - pool->pages_free();
    result.pages_peak = std::max(result.pages_peak, used);
    result.time_line.emplace_back(now_s, static_cast<double>(used) / static_cast<double>(result.pages_total));
    for (const Response& response : engine.finished()) {
      if (response.error) return std::unexpected(*response.error);
      --left;
      output += static_cast<double>(response.tokens.size());
      last_first_token_s = std::max(last_first_token_s, response.ttft_seconds);
      result.ttft_seconds += response.ttft_seconds / load.sequences;
      result.tpot_seconds += response.tpot_seconds / load.sequences;
      gaps.insert(gaps.end(), response.gaps_seconds.begin(), response.gaps_seconds.end());
    }
  }
  const double seconds = clock.now_s() - start_s;
  const double input = double{1} * load.sequences * load.prompt_tokens;
  result.tokens_per_second = (input + output) / seconds;
  result.decode_tokens_per_second = gaps.empty() ? 0 : load.sequences / result.tpot_seconds;
  result.itl_p50_seconds = quantile(gaps, 0.5);
  result.itl_p99_seconds = quantile(gaps, 0.99);
  result.pages_end = result.pages_total - pool->pages_free();
  result.preempted = engine.stats().preempted;
  result.budgets = engine.stats().budgets;
  result.budget_seconds = engine.stats().budget_seconds;
  thin(result.time_line);
  return result;
}

}  // namespace shale::bench
