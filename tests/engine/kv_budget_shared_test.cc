// KV budgets of prompts that others hold, too: the prefix cache, requests that run, and what waits to be stored.
#include <vector>

#include "engine/kv_budget_fixture.h"

namespace shale {
namespace {

using testing::kBudgetMethods;
using testing::KvBudgetTest;

class SharedBudgetTest : public KvBudgetTest {
 protected:
  static Request shared(std::uint32_t seed, std::size_t prompt, std::uint32_t tokens,
                        std::optional<KvBudgetOptions> budget) {
    Request request = EngineTest::generate(seed, prompt, tokens, true);
    request.budget = std::move(budget);
    return request;
  }

  // Begins as 300 tokens of seed 5 do, and is cut chunk by chunk.
  static Request longer(const char* method) {
    Request request =
        shared(5, 300, 100,
               KvBudgetOptions{.tokens = 64, .method = method, .prefill = BudgetPrefill::kChunked, .interval = 32});
    const std::vector<Token> rest = testing::random_tokens(150, 256, 6);
    request.spans[0].tokens.insert(request.spans[0].tokens.end(), rest.begin(), rest.end());
    return request;
  }

  std::uint32_t pooled(const Request& request) const { return cache_->pool_prefix(request.spans[0].tokens); }
};

TEST_F(SharedBudgetTest, ThePrefixCacheKeepsThePromptAsItCameAndMayEvictIt) {
  for (const char* method : kBudgetMethods) {
    open(40);
    const Request request = shared(1, 200, 100, KvBudgetOptions{.tokens = 48, .method = method, .interval = 32});
    const Use use = run({request});
    ASSERT_FALSE(use.responses[0].error) << method << ": " << use.responses[0].error->message;
    EXPECT_EQ(pooled(request), 200u) << method;
    const Response exact = engine_->run(shared(1, 200, 20, std::nullopt));
    EXPECT_EQ(exact.cached.from("pool"), 199u) << method;
    open(40);
    EXPECT_EQ(engine_->run(shared(1, 200, 20, std::nullopt)).tokens, exact.tokens) << method;
  }
}

// As it would be for one who comes later, whose scorer may have to see some of it computed.
TEST_F(SharedBudgetTest, APromptIsComputedOnceForThoseWhoComeTogether) {
  for (const char* method : kBudgetMethods) {
    open();
    const Request request = shared(5, 300, 20, KvBudgetOptions{.tokens = 64, .method = method, .interval = 32});
    const Use use = run({request, request, request});
    const Response later = engine_->run(request);
    std::uint64_t cached = 0;
    for (const Response& response : use.responses) {
      ASSERT_FALSE(response.error) << method << ": " << response.error->message;
      EXPECT_EQ(response.tokens, later.tokens) << method;
      cached += response.cached.from("pool");
    }
    EXPECT_EQ(cached, 2 * later.cached.from("pool")) << method;
    expect_all_back(method);
  }
}

// A pool of as many blocks as it says that it needs.
TEST_F(SharedBudgetTest, APromptLeavesThePrefixCacheWhereThePoolHasNoRoomForACopy) {
  for (const auto& [prompt, tokens] : {std::pair(200u, 48u), std::pair(200u, 176u), std::pair(96u, 96u)}) {
    for (const char* method : kBudgetMethods) {
      const KvBudgetOptions budget{.tokens = tokens, .method = method, .interval = 32};
      open();
      const Response roomy = engine_->run(shared(1, prompt, 300, budget));
      const std::uint32_t blocks = (std::max(prompt, tokens + 32 + 16) + 15) / 16 + 2;
      open(blocks);
      const Use use = run({shared(1, prompt, 300, budget)});
      ASSERT_FALSE(use.responses[0].error) << method << ": " << use.responses[0].error->message;
      EXPECT_EQ(use.responses[0].tokens, roomy.tokens) << method;
      EXPECT_LE(use.most_decoding, (tokens + 32) / 16 + 2) << method << " of " << prompt;
      expect_all_back(method);
    }
  }
}

// Meanwhile nobody else can own the blocks; the request packs what it holds once no page is left.
TEST_F(SharedBudgetTest, APromptThatWaitsToBeStoredIsGivenUpForTheRequest) {
  for (const char* method : kBudgetMethods) {
    open(15);
    Request request = shared(2, 200, 300, KvBudgetOptions{.tokens = 48, .method = method, .interval = 64});
    request.spans[0].store = true;
    request.spans[0].label = "document";
    const Response response = engine_->run(request);
    ASSERT_FALSE(response.error) << method << ": " << response.error->message;
    EXPECT_EQ(response.tokens.size(), 300u) << method;
    drain();
    expect_all_back(method);
  }
}

TEST_F(SharedBudgetTest, SeveralThatBeginWithTheSameBlocksEachHoldTheirBudget) {
  for (const char* method : kBudgetMethods) {
    open(60);
    ASSERT_FALSE(engine_->run(shared(3, 200, 1, std::nullopt)).error);
    const Request request = shared(3, 200, 150, KvBudgetOptions{.tokens = 48, .method = method, .interval = 32});
    const Use use = run({request, request, request});
    for (const Response& response : use.responses) {
      EXPECT_FALSE(response.error) << method << ": " << response.error->message;
      EXPECT_EQ(response.cached.from("pool") > 0, std::string_view(method) != "h2o") << method;  // it sums attention
    }
    EXPECT_LE(use.most_decoding, 3 * ((48u + 32u) / 16 + 3)) << method;
    EXPECT_EQ(pooled(request), 200u) << method;
    expect_all_back(method);
  }
}

// One of them goes on with the exact prompt. When tokens go while several decode depends on time, so they go once.
TEST_F(SharedBudgetTest, NobodySeesWhatAnotherDropsOfTheSameBlocks) {
  for (const char* method : kBudgetMethods) {
    if (std::string_view(method) == "paged_eviction") continue;
    open(60);
    const Request exact = shared(3, 200, 150, std::nullopt);
    const Request budgeted = shared(3, 200, 150, KvBudgetOptions{.tokens = 48, .method = method, .interval = 512});
    const Response full = engine_->run(exact), alone = engine_->run(budgeted);
    ASSERT_FALSE(alone.error) << method << ": " << alone.error->message;
    for (const Response& response : run({budgeted, exact, budgeted}).responses) {
      EXPECT_FALSE(response.error) << method << ": " << response.error->message;
      EXPECT_EQ(response.tokens, response.lossy ? alone.tokens : full.tokens) << method;
    }
    EXPECT_EQ(engine_->run(exact).tokens, full.tokens) << method;
    expect_all_back(method);
  }
}

// Where they find no room to own what they share, they all end well.
TEST_F(SharedBudgetTest, SeveralThatBeginWithTheSameBlocksEndWellInAShortPool) {
  for (const char* method : kBudgetMethods) {
    open(16);
    const Request budgeted = shared(4, 200, 150, KvBudgetOptions{.tokens = 48, .method = method, .interval = 32});
    const Use use = run({budgeted, budgeted, shared(4, 200, 40, std::nullopt)});
    for (const Response& response : use.responses) {
      EXPECT_FALSE(response.error) << method << ": " << response.error->message;
    }
    expect_all_back(method);
  }
}

TEST_F(SharedBudgetTest, ChunksAfterAPrefixThatIsFoundAreCutAsTheyCome) {
  for (const char* method : kBudgetMethods) {
    open(40);
    ASSERT_FALSE(engine_->run(shared(5, 300, 1, std::nullopt)).error);
    const Use use = run({longer(method)});
    ASSERT_FALSE(use.responses[0].error) << method << ": " << use.responses[0].error->message;
    EXPECT_LE(use.most_decoding, (64u + 32u) / 16 + 2) << method;
    expect_all_back(method);
  }
}

TEST_F(SharedBudgetTest, APrefixThatIsFoundLeavesRoomForChunksWhereThePromptDoesNotFit) {
  for (const char* method : kBudgetMethods) {
    open(24);
    ASSERT_FALSE(engine_->run(shared(5, 300, 1, std::nullopt)).error);
    const Response response = engine_->run(longer(method));
    EXPECT_FALSE(response.error) << method << ": " << response.error->message;
    expect_all_back(method);
  }
}

TEST_F(SharedBudgetTest, PagesFreedAreThoseThatAreHeldNoMore) {
  for (const char* method : {"knorm", "streaming", "adakv:keydiff"}) {
    open(40);
    ASSERT_TRUE(engine_->submit(shared(7, 208, 100, KvBudgetOptions{.tokens = 48, .method = method})));
    while (engine_->stats().budgets.evictions == 0) engine_->run_once();
    const std::uint32_t per_block = pool_->shape().pages_per_block();
    const std::uint32_t held = (pool_->blocks_total() - cache_->blocks_evictable()) * per_block - pool_->pages_free();
    EXPECT_EQ(engine_->stats().budgets.paging.pages_freed, 208 / 16 * per_block - held) << method;
    while (engine_->finished().empty()) engine_->run_once();
  }
}

}  // namespace
}  // namespace shale
