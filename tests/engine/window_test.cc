// Models with sliding windows beside full layers.
#include "engine/engine_fixture.h"

namespace shale {
namespace {

using testing::EngineTest;
using testing::random_tokens;

class WindowTest : public EngineTest {
 protected:
  WindowTest() {
    testing::write_tiny_model({.architecture = "gemma3", .tied_head = false}, path_);
    model_ = Model::load(path_, {.weights = WeightChoice::kFile, .threads = 1, .float32 = true}).value();
    open();
  }

  // A turn that is stored keeps all of its pages.
  static Request generate(bool stored) {
    Request request;
    request.spans.push_back({.tokens = random_tokens(100, 256, 7), .store = false, .label = ""});
    request.max_tokens = 300;
    request.store_answer = stored;
    request.use_cache = request.insert_prefix = false;
    request.ignore_end = true;
    return request;
  }
  std::uint32_t most_pages(const Request& request, std::vector<Token>& answer) {
    EXPECT_TRUE(engine_->submit(request));
    std::uint32_t most = 0;
    while (true) {
      engine_->run_once();
      most = std::max(most, pool_->blocks_total() * pool_->shape().pages_per_block() - pool_->pages_free());
      for (const Response& response : engine_->finished()) {
        EXPECT_FALSE(response.error);
        EXPECT_FALSE(response.lossy);
        answer = response.tokens;
        return most;
      }
    }
  }
};

TEST_F(WindowTest, AnswersFollowFromWhatWasRead) {
  EXPECT_NE(engine_->run(ask(1, 150, 1)).tokens, engine_->run(ask(2, 150, 1)).tokens);
}

TEST_F(WindowTest, PagesBehindEveryWindowComeBackAndTheAnswerStays) {
  std::vector<Token> kept, returned;
  const std::uint32_t all = most_pages(generate(true), kept);
  drain();
  open();
  const std::uint32_t fewer = most_pages(generate(false), returned);
  ASSERT_EQ(kept.size(), 300u);
  EXPECT_EQ(returned, kept);
  // One layer of three sees everything or two do; the others keep a window of 24 tokens and what comes between two
  // looks.
  EXPECT_LT(fewer, all * 8 / 10);
  EXPECT_EQ(pool_->blocks_free(), pool_->blocks_total());
}

// What a window hides from those who come after a hit is not read, and not passed on to those who come before its end.
TEST_F(WindowTest, WhatCameFromATierAnswersAsIfComputed) {
  cache_options_.chunk_tokens = 32;
  cache_options_.load_always = true;
  open();
  const Response cold = engine_->run(ask(5, 200, 1));
  ASSERT_FALSE(cold.error) << cold.error->message;
  drain();
  open();
  for (int turn = 0; turn < 2; ++turn) {
    const Response loaded = engine_->run(ask(5, 200, 1));
    EXPECT_EQ(loaded.cached.from("disk") + loaded.cached.from("memory"), 192u);
    EXPECT_EQ(loaded.tokens, cold.tokens);
  }
  Request shorter = ask(5, 200, 2);
  shorter.spans[0].tokens.resize(100);
  const Response answer = engine_->run(shorter);
  EXPECT_GT(answer.cached.total(), 0u);
  shorter.use_cache = false;
  EXPECT_EQ(answer.tokens, engine_->run(shorter).tokens);
  drain();
}

// Where the end of a hit is damaged, what its window did not need is not there either.
TEST_F(WindowTest, AHitWhoseEndIsDamagedLeavesNothingUnwrittenBehind) {
  cache_options_.chunk_tokens = 32;
  cache_options_.load_always = true;
  open();
  const Response cold = engine_->run(ask(5, 200, 1));
  drain();
  damage_disk([](std::uintmax_t size) { return size - 200; });  // in the last chunk
  open();
  const Response answer = engine_->run(ask(5, 200, 1));
  ASSERT_FALSE(answer.error);
  EXPECT_GE(cache_->store().stats().damaged_chunks, 1u);
  EXPECT_EQ(answer.tokens, cold.tokens);
  drain();
}

TEST_F(WindowTest, FullLayersAreEvictedOnlyByName) {
  Request request = generate(false);
  request.budget = KvBudgetOptions{.tokens = 64};
  const Response refused = engine_->run(request);
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code, ErrorCode::kUnsupported);

  const std::vector<std::uint32_t>& windows = model_->info().windows;
  const auto full_tables = std::ranges::count(windows, 0u) * model_->info().kv_heads;
  ASSERT_GT(full_tables, 0);
  for (const char* method : {"paged_eviction", "h2o", "pyramid:snapkv"}) {
    request.budget = KvBudgetOptions{.tokens = 64, .method = method, .interval = 16, .full_layers = true};
    const Response response = engine_->run(request);
    ASSERT_FALSE(response.error) << method << ": " << response.error->message;
    EXPECT_EQ(response.tokens.size(), 300u);
    EXPECT_TRUE(response.lossy);
    // 399 tokens were computed, and what is beyond the budget, an interval and a page has left the full layers alone.
    const std::uint64_t dropped = response.budget.paging.tokens_dropped;
    EXPECT_LE(dropped, (399u - 64) * full_tables) << method;
    EXPECT_GE(dropped, (399u - 64 - 32) * full_tables) << method;
    EXPECT_EQ(pool_->blocks_free(), pool_->blocks_total()) << method;
  }
}

// What a layer with a window has behind it is not copied: the rest has room beside the prompt in the prefix cache.
TEST_F(WindowTest, ABudgetOwnsOnlyWhatWindowsShow) {
  open(28);
  Request request = EngineTest::generate(7, 320, 40, true);
  request.budget = KvBudgetOptions{.tokens = 64, .method = "knorm", .full_layers = true};
  const Response response = engine_->run(request);
  ASSERT_FALSE(response.error) << response.error->message;
  EXPECT_TRUE(response.lossy);
  EXPECT_EQ(cache_->pool_prefix(request.spans[0].tokens), 320u);
  EXPECT_EQ(pool_->blocks_free() + cache_->blocks_evictable(), pool_->blocks_total());
}

// Layers with a window answer as they would beside full layers that lose nothing.
TEST_F(WindowTest, AFullLayersBudgetNeverReachedChangesNothing) {
  Request request = generate(false);
  const Response full = engine_->run(request);
  request.budget = KvBudgetOptions{.tokens = 500, .method = "h2o", .full_layers = true};
  const Response same = engine_->run(request);
  ASSERT_FALSE(same.error);
  EXPECT_EQ(same.tokens, full.tokens);
  EXPECT_FALSE(same.lossy);
}

}  // namespace
}  // namespace shale
