// Spans that the model repeats, beside requests that decode and prompts that are computed.
#include "engine/spans/repetition.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/engine_fixture.h"
#include "support/timed_model.h"

namespace shale {
namespace {

using testing::TimedModel;

class RepetitionTest : public testing::EngineTest {
 protected:
  RepetitionTest() : EngineTest({.context = 4096}) {
    engine_.reset();
    cache_.reset();
    model_ = std::make_unique<TimedModel>(std::move(model_), time_);
  }

  void open(std::string planner, std::uint32_t pool_blocks = 512) {
    engine_.reset();
    cache_.reset();
    pool_ = PagePool::create(model_->page_shape(), pool_blocks * model_->page_shape().block_bytes()).value();
    std::vector<StoreTier> tiers;
    tiers.push_back({make_memory_tier(tier_bytes_, time_)});
    const Fingerprint fingerprint{model_->fingerprint(), "tiny"};
    CacheOptions options;
    options.model = model_->info().traits();
    options.planner = std::move(planner);
    options.load_always = true;
    cache_ = Cache::open(std::move(options), fingerprint, *pool_, std::move(tiers),
                         MetadataStore::open_in_memory(fingerprint.hash).value(), time_)
                 .value();
    engine_ = std::make_unique<Engine>(EngineOptions{.sequences_max = 4}, *model_, tokenizer_, *cache_, time_);
  }

  static Request decode(std::uint32_t seed, std::uint32_t tokens) { return generate(seed, 24, tokens); }
  // The model repeats its context for the method, which the request names.
  static Request named(std::uint32_t document, std::size_t tokens) {
    Request request = ask(document, tokens, 1);
    request.policy = {.exact = false, .method = Method::parse("global:kvzip").value(), .keep = 0.5};
    return request;
  }

  RequestId submit(Request request) { return engine_->submit(std::move(request)).value(); }
  // All that is running, and what is stored after it.
  std::map<RequestId, Response> finish() {
    std::map<RequestId, Response> responses;
    for (bool more = true; more;) {
      more = engine_->run_once();
      for (Response& each : engine_->finished()) responses.emplace(each.id, std::move(each));
    }
    EXPECT_FALSE(engine_->stores_any());
    const Status sound = pool_->check_integrity();
    EXPECT_TRUE(sound) << sound.error().message;
    return responses;
  }
  void expect_all_blocks_back() {
    EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
    EXPECT_EQ(pool_->blocks_free(), pool_->blocks_total());
  }
  double longest_gap_s(const Response& response) { return std::ranges::max(response.gaps_seconds); }
};

TEST_F(RepetitionTest, ThoseWhoDecodeGoOnWhileWhatIsToBeStoredIsRepeated) {
  open("fixed:global:kvzip@0.5");
  const RequestId decodes = submit(decode(1, 300));
  const Request asked = ask(7, 1024, 1);
  submit(asked);
  const Response decoded = finish().at(decodes);
  EXPECT_EQ(decoded.tokens.size(), 300u);
  EXPECT_LE(longest_gap_s(decoded), 1.5 * engine_->options().chunk_step_s);
  expect_all_blocks_back();
  const Response loaded = engine_->run(asked);
  ASSERT_EQ(loaded.sources.size(), 1u);
  EXPECT_EQ(loaded.sources[0].method.text(), "global:kvzip");
  EXPECT_EQ(loaded.cached.from("memory"), 1024u);
}

TEST_F(RepetitionTest, ThoseWhoDecodeGoOnWhileTheSpanOfARequestIsRepeated) {
  open("shale");
  const RequestId alone = submit(named(7, 1024));
  const std::vector<Token> answer = finish().at(alone).tokens;
  open("shale");
  const RequestId decodes = submit(decode(1, 300)), names = submit(named(7, 1024));
  const auto responses = finish();
  EXPECT_LE(longest_gap_s(responses.at(decodes)), 1.5 * engine_->options().chunk_step_s);
  EXPECT_TRUE(responses.at(names).lossy);
  EXPECT_EQ(responses.at(names).tokens, answer);
  expect_all_blocks_back();
}

// In whole chunks: it is computed as soon as a prompt of that length would be.
TEST_F(RepetitionTest, WhoBeginsWaitsForWhatIsToBeStored) {
  open("fixed:global:kvzip@0.5");
  submit(ask(7, 2000, 1));
  while (engine_->running() > 0 || engine_->waiting() > 0) engine_->run_once();
  ASSERT_TRUE(engine_->stores_any());
  const Response next = engine_->run(ask(8, 1024, 1));
  EXPECT_LT(next.ttft_seconds, 10 * TimedModel::kStepS + (2000 + 128 + 1024 + 9) * TimedModel::kTokenS);
}

TEST_F(RepetitionTest, ARequestThatIsCancelledMeanwhileGivesItsPagesBack) {
  open("shale");
  const RequestId names = submit(named(7, 1024));
  while (engine_->loading() == 0) engine_->run_once();
  engine_->cancel(names);
  EXPECT_EQ(finish().at(names).stop, StopReason::kCancelled);
  expect_all_blocks_back();
}

// They take the pages of what is repeated to be stored.
TEST_F(RepetitionTest, RequestsThatAreRunningComeFirstWhereThePoolIsSmall) {
  open("fixed:global:kvzip@0.5", 90);
  const RequestId grows = submit(decode(1, 900));
  const Request asked = ask(7, 700, 1);
  submit(asked);
  EXPECT_EQ(finish().at(grows).tokens.size(), 900u);
  expect_all_blocks_back();
  EXPECT_EQ(engine_->stats().preempted, 0u);
  EXPECT_EQ(engine_->run(asked).cached.total(), 0u) << "it was given up";
}

TEST_F(RepetitionTest, ARequestThatNamesTheMethodComesFirstToo) {
  open("fixed:global:kvzip@0.5", 105);
  Request first = ask(7, 700, 1);
  first.max_tokens = 1;
  submit(first);
  while (engine_->running() > 0 || engine_->waiting() > 0) engine_->run_once();
  ASSERT_TRUE(engine_->stores_any());
  const RequestId names = submit(named(8, 700));
  const Response answer = finish().at(names);
  ASSERT_FALSE(answer.error) << answer.error->message;
  EXPECT_TRUE(answer.lossy);
  expect_all_blocks_back();
}

// What the answer adds ends in the block that the context ended in.
TEST_F(RepetitionTest, NothingIsRepeatedWhereNoWholeBlockIsNew) {
  open("fixed:global:kvzip@0.5");
  Request request = ask(7, 40, 1);
  request.spans.back().tokens.resize(3);
  request.max_tokens = 1;
  request.store_answer = true;
  const RequestId asked = submit(request);
  EXPECT_FALSE(finish().at(asked).error);
  expect_all_blocks_back();
}

}  // namespace
}  // namespace shale
