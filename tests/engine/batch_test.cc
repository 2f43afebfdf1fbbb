// Which prompts a step computes, and how much of each.
#include "engine/batch.h"

#include <gmock/gmock.h>

#include <memory>
#include <vector>

#include "support/model_runner.h"

namespace shale {
namespace {

using ::testing::ElementsAre;
using testing::random_tokens;

class BatchTest : public ::testing::Test {
 protected:
  BatchTest() {
    for (int i = 0; i < 8; ++i) costs_.prefill(512, 0, 0.512);  // a millisecond a token
  }

  void add(std::size_t prompt_tokens, double submitted_s, int priority = 0) {
    Request request;
    request.spans.push_back({.tokens = random_tokens(prompt_tokens, 256, 1), .store = false, .label = ""});
    request.priority = priority;
    runs_.push_back(std::make_unique<shale::RequestState>(runs_.size(), std::move(request), *pool_, submitted_s));
  }

  // One that waits for its next token.
  void add_decoding() {
    add(16, 0);
    ASSERT_TRUE(runs_.back()->sequence.append(16));
    runs_.back()->drawn.push_back(7);
  }

  // Tokens of each run in the next step.
  std::vector<std::size_t> shares(BatchBuilder&& builder) const { return shares(builder); }
  std::vector<std::size_t> shares(BatchBuilder& builder) const {
    std::vector<std::size_t> shares(runs_.size());
    for (const BatchPart& part : builder.choose(runs_)) shares[part.run->id] = part.chunk.tokens.size();
    return shares;
  }

  // As the engine does with what was chosen, but for the model's work. Who is done leaves.
  void compute(const std::vector<BatchPart>& parts) {
    for (const BatchPart& part : parts) {
      ASSERT_TRUE(part.run->sequence.append(static_cast<std::uint32_t>(part.chunk.tokens.size())));
      part.run->over = !part.run->prefilling();
    }
  }

  const PageShape shape_{.layers = 1, .kv_heads = 1, .head_dim = 64};
  std::unique_ptr<PagePool> pool_ = PagePool::create(shape_, 256 * shape_.block_bytes()).value();
  CostModel costs_;
  std::vector<std::unique_ptr<shale::RequestState>> runs_;
};

TEST_F(BatchTest, TheLeastLeftGoesFirst) {
  add(2000, 0);
  add(50, 0.1);
  EXPECT_THAT(shares(BatchBuilder(512, 0, 0, costs_)), ElementsAre(0, 50));
}

TEST_F(BatchTest, ShortOnesGoTogether) {
  add(20, 0);
  add(30, 0);
  add(40, 0);
  EXPECT_THAT(shares(BatchBuilder(512, 0, 0, costs_)), ElementsAre(20, 30, 0));
}

TEST_F(BatchTest, NobodyIsOvertakenForLong) {
  add(2000, 0);
  add(100, 7.7);  // four times what the first takes more than itself: 7.6 s
  EXPECT_THAT(shares(BatchBuilder(128, 0, 0, costs_)), ElementsAre(128, 0));
  add(100, 7.5);
  EXPECT_THAT(shares(BatchBuilder(128, 0, 0, costs_)), ElementsAre(0, 0, 100));
}

TEST_F(BatchTest, AShortRestGoesFirstWheneverItCame) {
  add(2000, 0);
  add(16, 60);
  add(16, 60, -1);
  add(65, 60);
  EXPECT_THAT(shares(BatchBuilder(128, 0, 0, costs_)), ElementsAre(0, 16, 0, 0)) << "but for those of lower priority";
}

// However many short ones come.
TEST_F(BatchTest, TheLongPromptWhoseTurnItIsHasEveryOtherStep) {
  BatchBuilder builder(128, 0, 0, costs_);
  add(900, 0);
  int steps = 0, passed = 0;
  while (!runs_[0]->over && steps < 100) {
    for (int i = 0; i < 3; ++i) add(40, 10 + steps);
    const std::vector<BatchPart> parts = builder.choose(runs_);
    ASSERT_FALSE(parts.empty()) << "somebody can always be computed";
    passed += parts[0].run != runs_[0].get();
    compute(parts);
    ++steps;
  }
  EXPECT_LE(steps, 16) << "eight chunks, and a step between two";
  EXPECT_GE(passed, 7);
}

TEST_F(BatchTest, AShortRestWaitsForOneChunkOfAllLongPrompts) {
  BatchBuilder builder(128, 0, 0, costs_);
  for (int i = 0; i < 3; ++i) add(900, 0);
  for (int each = 0; each < 5; ++each) {
    add(30, 50 + each);
    int steps = 0;
    while (!runs_.back()->over) {
      ASSERT_LT(++steps, 3);
      compute(builder.choose(runs_));
    }
  }
}

TEST_F(BatchTest, PriorityComesBeforeLength) {
  add(50, 0);
  add(2000, 0, 1);
  EXPECT_THAT(shares(BatchBuilder(128, 0, 0, costs_)), ElementsAre(0, 128));
}

TEST_F(BatchTest, WhoDecodesIsAlwaysThere) {
  add(2000, 0);
  add_decoding();
  add_decoding();
  EXPECT_THAT(shares(BatchBuilder(128, 0, 0, costs_)), ElementsAre(126, 1, 1));
}

// What a step takes beyond decoding is what prompts take of it.
TEST_F(BatchTest, TellsWhatPromptsTook) {
  BatchBuilder builder(128, 2, 0.05, costs_);
  add_decoding();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(builder.took(builder.choose(runs_), 0.01), 0);
  add(2000, 0);
  EXPECT_NEAR(builder.took(builder.choose(runs_), 0.04), 0.03, 1e-3);
}

TEST_F(BatchTest, PromptsTakeLongerBesideThoseWhoDecode) {
  BatchBuilder builder(512, 2, 0.05, costs_);
  add_decoding();
  EXPECT_EQ(builder.prompt_slowdown(1, 0), 1) << "nothing was seen yet";
  for (int i = 0; i < 100; ++i) static_cast<void>(builder.took(builder.choose(runs_), 0.02));
  add(20000, 0);
  for (int i = 0; i < 200; ++i) {
    const std::vector<BatchPart> parts = builder.choose(runs_);
    static_cast<void>(builder.took(parts, 0.02 + 0.001 * static_cast<double>(parts[1].chunk.tokens.size())));
  }
  EXPECT_EQ(builder.prompt_slowdown(0, 0), 1);
  EXPECT_NEAR(builder.prompt_slowdown(1, 0), 5.0 / 3, 0.2)
      << "30 ms of every 50 are the prompt's, which takes 1 ms a token";
  EXPECT_EQ(BatchBuilder(512, 0, 0, costs_).prompt_slowdown(1, 0), 1) << "nobody bounds its steps";
}

}  // namespace
}  // namespace shale
