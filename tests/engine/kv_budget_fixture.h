// An engine whose requests stay inside KV budgets, and the memory that they hold meanwhile.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/engine_fixture.h"

namespace shale::testing {

inline constexpr const char* kBudgetMethods[] = {
    "paged_eviction", "streaming", "knorm",   "keydiff", "vk_ratio",     "h2o",           "tova",
    "snapkv",         "rkv",       "impress", "random",  "adakv:snapkv", "adakv:keydiff", "pyramid:knorm"};

class KvBudgetTest : public EngineTest {
 protected:
  static Request generate(std::size_t prompt, std::uint32_t tokens, std::optional<KvBudgetOptions> budget) {
    Request request = EngineTest::generate(77, prompt, tokens);
    request.budget = std::move(budget);
    return request;
  }

  // Blocks' worth of pages that are neither free nor the prefix cache's alone.
  std::uint32_t blocks_held() const {
    const std::uint32_t per_block = pool_->shape().pages_per_block();
    const std::uint32_t available = pool_->pages_free() + cache_->blocks_evictable() * per_block;
    return (pool_->blocks_total() * per_block - available + per_block - 1) / per_block;
  }

  // Blocks held, the most while the requests run and while each has drawn a token.
  struct Use {
    std::uint32_t most = 0, most_decoding = 0;
    std::vector<Response> responses;
  };
  Use run(std::vector<Request> requests) {
    Use use;
    std::uint32_t started = 0;
    for (Request& request : requests) {
      request.on_text = [&started, first = true](std::string_view) mutable { started += std::exchange(first, false); };
      const auto id = engine_->submit(request);
      EXPECT_TRUE(id) << id.error().message;
    }
    while (use.responses.size() < requests.size()) {
      const bool decoding = started == requests.size();
      engine_->run_once();
      const std::uint32_t blocks = blocks_held();
      use.most = std::max(use.most, blocks);
      if (decoding) use.most_decoding = std::max(use.most_decoding, blocks);
      for (Response& response : engine_->finished()) use.responses.push_back(std::move(response));
      const Status sound = pool_->check_integrity();
      EXPECT_TRUE(sound) << sound.error().message;
    }
    return use;
  }

  void expect_all_back(const char* method) const {
    EXPECT_EQ(pool_->blocks_free() + cache_->blocks_evictable(), pool_->blocks_total()) << method;
  }
};

}  // namespace shale::testing
