// Random keys, values and queries of a context, and what scorers are told of it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <ranges>
#include <thread>
#include <vector>

#include "codec/naive_quantizer.h"
#include "core/executor.h"
#include "paging/page_shape.h"
#include "scoring/attention_statistics.h"
#include "scoring/scorer.h"

namespace shale {

// Real threads, so that thread sanitizers see what is shared.
class ThreadExecutor final : public Executor {
 public:
  std::size_t threads() const override { return 3; }
  void parallel_for(std::size_t count, const std::function<void(std::size_t)>& work) override {
    std::atomic<std::size_t> next = 0;
    std::vector<std::jthread> workers;
    for (std::size_t t = 0; t < threads(); ++t) {
      workers.emplace_back([&] {
        for (std::size_t i = next++; i < count; i = next++) work(i);
      });
    }
  }
};

// Queries of every token, [layers][query_heads][tokens][head_dim], and the keys and values of every (layer, head).
struct Context {
  PageShape shape;
  std::uint32_t tokens;
  std::uint32_t query_heads;
  std::vector<HeadRows> heads;  // layer · kv_heads + head
  std::vector<float> queries;
};

inline Context random_context(const PageShape& shape, std::uint32_t tokens, std::uint64_t seed) {
  Context context{shape, tokens, 2 * shape.kv_heads, {}, {}};
  for (std::uint32_t i = 0; i < shape.pages_per_block(); ++i) {
    context.heads.push_back(random_head(tokens, shape.head_dim, seed * 1000 + i));
  }
  context.queries = random_head(shape.layers * context.query_heads * tokens, shape.head_dim, seed).values;
  return context;
}

inline constexpr ScorerOptions kOptions = {.sinks = 4, .window = 8, .kernel = 5, .seed = 3};

// What scorers are given here: the queries of all tokens.
inline constexpr ScorerNeeds kCaptured = {.keys = true, .values = true, .last_queries = 1000};

// What was observed of tokens [first, end): all their queries.
inline AttentionStatistics observed(const Context& context, std::uint32_t first, std::uint32_t end) {
  const std::uint32_t d = context.shape.head_dim, window = end - first;
  AttentionStatistics statistics{.layers = context.shape.layers,
                                 .query_heads = context.query_heads,
                                 .kv_heads = context.shape.kv_heads,
                                 .head_dim = d,
                                 .tokens = window,
                                 .window = window};
  for (std::size_t row = 0; row < std::size_t{context.shape.layers} * context.query_heads; ++row) {
    const float* from = &context.queries[(row * context.tokens + first) * d];
    statistics.queries.insert(statistics.queries.end(), from, from + std::size_t{window} * d);
  }
  return statistics;
}

}  // namespace shale
