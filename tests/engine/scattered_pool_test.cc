// Requests where too few blocks of the pool are whole, and many pages of split ones are free.
#include <vector>

#include "engine/engine_fixture.h"

namespace shale {
namespace {

using testing::EngineTest;
using testing::random_tokens;

class ScatteredPoolTest : public EngineTest {
 protected:
  ~ScatteredPoolTest() override {
    for (const PageId page : held_) pool_->release_page(page);
  }

  // Of so many blocks one page is held, as by a sequence that dropped tokens. All others are the prefix cache's.
  void scatter(std::uint32_t blocks) {
    const std::uint32_t each = pool_->shape().pages_per_block();
    std::vector<PageId> pages;
    for (std::uint32_t i = 0; i < blocks * each; ++i) pages.push_back(pool_->allocate_page().value());
    for (const PageId page : pages) {
      if (pool_->page_of(pool_->block_of(page), 0) == page) {
        held_.push_back(page);
      } else {
        pool_->release_page(page);
      }
    }
    Sequence kept(*pool_);
    const std::uint32_t tokens = pool_->blocks_free() * pool_->shape().block_size;
    kept.append(tokens).value();
    cache_->insert_prefix(random_tokens(tokens, 256, 99), kept, kAllTokens, "");
    ASSERT_EQ(held_.size(), blocks);
  }

  std::vector<PageId> held_;
};

TEST_F(ScatteredPoolTest, APrefixIsEvictedBeforeSinglePagesAreTaken) {
  open(64);
  scatter(20);
  EXPECT_EQ(engine_->run(ask(1, 200, 1)).cached.total(), 0u);
  EXPECT_GT(engine_->run(ask(1, 200, 2)).cached.from("pool"), 0u) << "the context was kept";
  drain();
  EXPECT_GT(cache_->store().lookup(cache_->keys_of(ask(1, 200, 1).spans[0].tokens, "")).blocks, 0u) << "and stored";
}

TEST_F(ScatteredPoolTest, WhatIsToBeCompressedHasBlocks) {
  Request request = ask(3, 200, 1);
  request.policy.method = Method::parse("knorm").value();
  request.policy.keep = 0.5;
  request.use_cache = false;
  const Response alone = engine_->run(request);
  drain();
  open(64);
  scatter(20);
  const Response response = engine_->run(request);
  ASSERT_FALSE(response.error) << response.error->message;
  EXPECT_TRUE(response.lossy);
  EXPECT_EQ(response.tokens, alone.tokens);
}

// Not even where nobody gives it any, and single pages would do for its prompt.
TEST_F(ScatteredPoolTest, WhatIsToBeCompressedTakesNoSinglePages) {
  Request request = ask(3, 200, 1);
  request.policy.method = Method::parse("knorm").value();
  request.policy.keep = 0.5;
  request.use_cache = false;
  const Response alone = engine_->run(request);
  drain();
  open(64);
  scatter(20);
  Sequence others(*pool_);
  ASSERT_TRUE(cache_->evict_until_free(44));
  others.append(40 * pool_->shape().block_size).value();
  Response response = engine_->run(request);
  ASSERT_TRUE(response.error);
  EXPECT_EQ(response.error->code, ErrorCode::kFull);
  others.clear();
  response = engine_->run(request);
  ASSERT_FALSE(response.error) << response.error->message;
  EXPECT_EQ(response.tokens, alone.tokens);
}

}  // namespace
}  // namespace shale
