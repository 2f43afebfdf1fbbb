#include <set>

#include "engine/engine_fixture.h"

namespace shale {
namespace {

using testing::EngineTest;
using testing::random_tokens;

TEST_F(EngineTest, AnswersAreTheSameComputedFromThePoolAndFromDisk) {
  const Response cold = engine_->run(ask(1, 150, 1));
  ASSERT_FALSE(cold.error) << cold.error->message;
  EXPECT_EQ(cold.prompt_tokens, 159u);
  EXPECT_EQ(cold.cached.total(), 0u);
  EXPECT_GT(cold.ttft_seconds, 0);

  const Response warm = engine_->run(ask(1, 150, 1));
  EXPECT_EQ(warm.cached.from("pool"), 158u);  // the question as well, but for its last token
  EXPECT_EQ(engine_->run(ask(1, 150, 2)).cached.from("pool"), 150u);
  EXPECT_EQ(engine_->run(ask(1, 150, 1)).tokens, cold.tokens);
  drain();

  open();
  const Response restarted = engine_->run(ask(1, 150, 1));
  EXPECT_EQ(restarted.cached.from("disk"), 144u) << "whole blocks";
  EXPECT_FALSE(restarted.lossy);
  EXPECT_EQ(restarted.tokens, cold.tokens);
  ASSERT_EQ(restarted.sources.size(), 1u);
  EXPECT_EQ(restarted.sources[0].method, Method::full());
}

// Tokens are what these tests compare: they tell nothing where the model says the same whatever it read.
TEST_F(EngineTest, AnswersFollowFromWhatWasRead) {
  EXPECT_NE(engine_->run(ask(1, 150, 1)).tokens, engine_->run(ask(2, 150, 1)).tokens);
}

TEST_F(EngineTest, ARequestMayIgnoreTheCache) {
  const Response cold = engine_->run(ask(2, 100, 1));
  Request request = ask(2, 100, 1);
  request.use_cache = false;
  const Response again = engine_->run(std::move(request));
  EXPECT_EQ(again.cached.total(), 0u);
  EXPECT_EQ(again.tokens, cold.tokens);
}

TEST_F(EngineTest, WithoutPrefixCachingNothingIsFoundOrKept) {
  const Response kept = engine_->run(ask(1, 150, 1));
  drain();
  engine_ = std::make_unique<Engine>(EngineOptions{.sequences_max = 4, .chunk_tokens = 128, .prefix_cache = false},
                                     *model_, tokenizer_, *cache_, slow_);
  const std::uint32_t evictable = cache_->blocks_evictable();
  for (int turn = 0; turn < 2; ++turn) {
    Request request = ask(1, 150, 1);
    request.store_answer = true;
    const Response response = engine_->run(std::move(request));
    EXPECT_EQ(response.cached.total(), 0u);
    EXPECT_EQ(response.computed_tokens(), 159u);
    EXPECT_EQ(response.tokens, kept.tokens);
    EXPECT_EQ(cache_->blocks_evictable(), evictable);
  }
  EXPECT_EQ(engine_->run(ask(2, 150, 1)).cached.total(), 0u);
  drain();
  EXPECT_EQ(cache_->store().stats().extents, 1u) << "what was stored before alone";
  Request named = ask(1, 150, 1);
  named.policy.method = Method::parse("int8").value();
  const auto refused = engine_->submit(std::move(named));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(EngineTest, ANamedMethodIsLossyNowAndFromDiskWithTheSameAnswer) {
  expect_named_methods_restart();
  Request exact = ask(3, 200, 1);
  exact.policy.exact = true;
  const Response answer = engine_->run(std::move(exact));
  EXPECT_FALSE(answer.lossy);
  Request uncached = ask(3, 200, 1);
  uncached.use_cache = false;
  EXPECT_EQ(answer.tokens, engine_->run(std::move(uncached)).tokens);
}

// What a request names is its own. What stands on a form that the planner chose is stored for whoever accepts that.
TEST_F(EngineTest, WhatStandsOnALossyPrefixIsNeverTakenForExact) {
  std::uint32_t document = 10;
  for (const char* how : {"fixed:int8", "fixed:knorm+int8@0.5", "int8", "knorm"}) {
    Request request = ask(++document, 200, 1);
    request.ignore_end = true;
    request.max_tokens = 40;
    cache_options_.planner = std::string_view(how).starts_with("fixed:") ? how : "shale";
    if (cache_options_.planner != how) {
      request.policy.method = Method::parse(how).value();
      request.policy.keep = request.policy.method->scorer.empty() ? 1 : 0.5;
    }
    open();
    ASSERT_FALSE(engine_->run(request).error) << how;
    drain();
    open();
    const std::uint64_t extents = cache_->store().stats().extents;
    request.spans.insert(request.spans.begin() + 1,
                         {.tokens = random_tokens(100, 256, 50), .store = true, .label = "notes"});
    request.store_answer = true;
    const Response answer = engine_->run(request);
    ASSERT_FALSE(answer.error) << how << ": " << answer.error->message;
    EXPECT_TRUE(answer.lossy) << how;
    drain();
    const bool chosen = cache_options_.planner == how;
    EXPECT_EQ(cache_->store().stats().extents > extents, chosen) << how;
    Request next = request;
    std::vector<Token>& turn = next.spans.back().tokens;
    turn.insert(turn.end(), answer.tokens.begin(), answer.tokens.end());
    const std::uint32_t stored = cache_->whole_blocks(200 + 100 + 9 + answer.tokens.size() - 1);
    EXPECT_EQ(engine_->run(next).cached.total(), chosen ? stored : 192u) << how;
    drain();

    open();
    next.policy = {};
    next.policy.exact = true;
    const Response exact = engine_->run(next);
    EXPECT_FALSE(exact.lossy) << how;
    EXPECT_EQ(exact.cached.total(), chosen ? 0u : 192u) << how;
    next.use_cache = false;
    EXPECT_EQ(exact.tokens, engine_->run(next).tokens) << how;
    drain();
  }
}

TEST_F(EngineTest, DamagedBytesCostTimeAndNothingElse) {
  const Response cold = engine_->run(ask(4, 180, 1));
  drain();
  damage_disk([](std::uintmax_t) { return 2000; });
  open();
  const Response answer = engine_->run(ask(4, 180, 1));
  ASSERT_FALSE(answer.error);
  EXPECT_EQ(answer.tokens, cold.tokens);
  EXPECT_EQ(answer.cached.total(), 0u);
  EXPECT_GE(cache_->store().stats().damaged_chunks, 1u);
  drain();
}

TEST_F(EngineTest, AnAnswerBecomesPartOfTheNextTurnsPrefix) {
  Request first = ask(5, 64, 1);
  first.spans.back().store = false;
  first.store_answer = true;
  const Response answer = engine_->run(first);
  drain();
  open();

  Request second;
  second.spans = first.spans;
  std::vector<Token>& turn = second.spans.back().tokens;
  turn.insert(turn.end(), answer.tokens.begin(), answer.tokens.end());
  second.spans.push_back({.tokens = random_tokens(6, 256, 77), .store = false, .label = ""});
  const Response next = engine_->run(std::move(second));
  // Of all but the last token of the answer, which was never computed, the whole blocks.
  EXPECT_EQ(next.cached.from("disk"), (64 + 9 + answer.tokens.size() - 1) / 16 * 16);
}

TEST_F(EngineTest, ManyRequestsShareTheStepsAndGiveEverythingBack) {
  std::vector<RequestId> ids;
  for (std::uint32_t i = 0; i < 12; ++i) ids.push_back(engine_->submit(ask(10 + i % 3, 90, i)).value());
  std::size_t answered = 0;
  while (answered < ids.size()) {
    engine_->run_once();
    ASSERT_TRUE(pool_->check_integrity());
    for (const Response& response : engine_->finished()) {
      EXPECT_FALSE(response.error);
      EXPECT_FALSE(response.tokens.empty());
      ++answered;
    }
  }
  drain();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()))
      << "only the prefix tree holds pages, and it lets them go";
  EXPECT_EQ(pool_->blocks_free(), pool_->blocks_total());
}

TEST_F(EngineTest, PromptsThatBeginAlikeAreComputedOnceHoweverManyWaitTogether) {
  std::vector<RequestId> ids;
  for (std::uint32_t question = 0; question < 4; ++question)
    ids.push_back(engine_->submit(ask(40, 400, question)).value());
  std::map<RequestId, Response> together;
  while (together.size() < ids.size()) {
    engine_->run_once();
    for (Response& response : engine_->finished()) together.emplace(response.id, std::move(response));
  }
  EXPECT_EQ(engine_->stats().prefill_tokens, 409u + 3 * 9);
  EXPECT_EQ(cache_->stats().lookups, 4u);
  for (std::uint32_t question = 0; question < 4; ++question) {
    const Response& response = together.at(ids[question]);
    EXPECT_EQ(response.cached.from("pool"), question == 0 ? 0u : 400u);
    Request alone = ask(40, 400, question);
    alone.use_cache = false;
    EXPECT_EQ(response.tokens, engine_->run(alone).tokens);
  }
}

TEST_F(EngineTest, APoolTooSmallForAllMakesRequestsWait) {
  open(24);
  std::vector<RequestId> ids;
  for (std::uint32_t i = 0; i < 5; ++i) ids.push_back(engine_->submit(ask(20 + i, 150, i)).value());
  std::size_t answered = 0;
  while (answered < ids.size()) {
    engine_->run_once();
    for (const Response& response : engine_->finished()) {
      EXPECT_FALSE(response.error) << response.error->message;
      ++answered;
    }
  }
  drain();
}

// Until the context is full; the pool, where that is smaller, is not too small for a request that names no length.
TEST_F(EngineTest, AnAnswerWithoutALengthHasAllThatIsLeft) {
  Request request = ask(1, 50, 1);
  request.ignore_end = true;
  request.max_tokens = std::nullopt;
  const Response whole = engine_->run(request);
  const std::uint32_t prompt = whole.prompt_tokens;
  EXPECT_EQ(prompt + whole.drawn(), model_->info().context_max);
  EXPECT_TRUE(whole.stop == StopReason::kLength || whole.stop == StopReason::kContextFull);

  constexpr std::uint32_t kBlocks = 16;
  ASSERT_GT(model_->info().context_max, kBlocks * model_->page_shape().block_size);
  open(kBlocks);
  const Response fitting = engine_->run(request);
  EXPECT_EQ(fitting.stop, StopReason::kLength);
  EXPECT_GT(prompt + fitting.drawn(), (kBlocks - 2) * model_->page_shape().block_size);
  EXPECT_LE(prompt + fitting.drawn(), kBlocks * model_->page_shape().block_size);
  request.max_tokens = model_->info().context_max;
  EXPECT_TRUE(engine_->run(request).error) << "who asks for more than fits is told";
}

TEST_F(EngineTest, RefusesWhatCannotBeServedAndSaysWhy) {
  const auto refusal = [&](Request request) {
    const auto id = engine_->submit(std::move(request));
    return id ? std::string("accepted") : id.error().message;
  };
  EXPECT_NE(refusal(Request{}).find("empty"), std::string::npos);
  EXPECT_NE(refusal(ask(1, 5000, 1)).find("maximum context length"), std::string::npos);
  Request nothing = ask(1, 50, 1);
  nothing.max_tokens = 0;
  EXPECT_NE(refusal(nothing).find("max_tokens"), std::string::npos);
  Request foreign = ask(1, 50, 1);
  foreign.spans[0].tokens[3] = 100000;
  EXPECT_NE(refusal(foreign).find("vocabulary"), std::string::npos);
  Request keep = ask(1, 50, 1);
  keep.policy.keep = 0;
  EXPECT_NE(refusal(keep).find("keep"), std::string::npos);
  Request whole = ask(1, 50, 1);
  whole.policy = {.exact = false, .method = Method::parse("int8").value(), .keep = 0.5};
  EXPECT_NE(refusal(whole).find("keeps every token"), std::string::npos);
  open(8);
  EXPECT_NE(refusal(ask(1, 400, 1)).find("pool"), std::string::npos);
}

TEST_F(EngineTest, ACancelledRequestGivesItsPagesBack) {
  Request request = ask(6, 200, 1);
  request.max_tokens = 500;
  const RequestId id = engine_->submit(std::move(request)).value();
  for (int i = 0; i < 8; ++i) engine_->run_once();
  engine_->cancel(id);
  const auto responses = engine_->finished();
  ASSERT_EQ(responses.size(), 1u);
  EXPECT_EQ(responses[0].stop, StopReason::kCancelled);
  drain();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
}

TEST_F(EngineTest, StreamsExactlyTheText) {
  Request request = ask(7, 40, 1);
  std::string streamed;
  request.on_text = [&](std::string_view piece) { streamed += piece; };
  const Response response = engine_->run(std::move(request));
  EXPECT_EQ(streamed, response.text);
  ASSERT_GE(response.text.size(), 3u);

  Request stopped = ask(7, 40, 1);
  stopped.stop = {response.text.substr(2, 1)};
  const Response cut = engine_->run(std::move(stopped));
  EXPECT_EQ(cut.stop, StopReason::kStopString);
  EXPECT_EQ(cut.text, response.text.substr(0, response.text.find(response.text[2])));
}

TEST_F(EngineTest, PenaltiesKeepAnAnswerFromRepeatingItself) {
  Request request = generate(3, 40, 60);
  request.sampling.repetition_penalty = 100;
  request.sampling.frequency_penalty = request.sampling.presence_penalty = 2;
  const Response response = engine_->run(request);
  ASSERT_EQ(response.tokens.size(), 60u);
  const std::set<Token> different(response.tokens.begin(), response.tokens.end());
  EXPECT_EQ(different.size(), 60u);
  for (const Token token : request.spans[0].tokens) EXPECT_FALSE(different.contains(token));
}

// A token that ends the answer is drawn, and neither said nor stored, unless it is to be included.
TEST_F(EngineTest, StopTokensEndTheAnswer) {
  const Response whole = engine_->run(generate(3, 40, 12, true));
  const auto stop_at = [&](bool include) {
    Request request = generate(3, 40, 12, true);
    request.stop_tokens = {whole.tokens[4]};
    request.include_stop = include;
    return engine_->run(std::move(request));
  };
  const auto first = std::ranges::find(whole.tokens, whole.tokens[4]) - whole.tokens.begin();
  const std::vector<Token> before(whole.tokens.begin(), whole.tokens.begin() + first);
  const Response left_out = stop_at(false), included = stop_at(true);
  EXPECT_EQ(left_out.stop, StopReason::kStopToken);
  EXPECT_EQ(left_out.tokens, before);
  EXPECT_EQ(left_out.end_token, whole.tokens[4]);
  EXPECT_EQ(left_out.drawn(), before.size() + 1);
  EXPECT_EQ(left_out.text, tokenizer_.text(before, false));
  EXPECT_EQ(included.stop, StopReason::kStopToken);
  EXPECT_EQ(included.tokens.size(), before.size() + 1);
  EXPECT_FALSE(included.end_token);
  EXPECT_EQ(included.text, tokenizer_.text(included.tokens, false));

  Request beyond = generate(3, 40, 12);
  beyond.stop_tokens = {static_cast<Token>(model_->info().vocabulary)};
  const Response refused = engine_->run(std::move(beyond));
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code, ErrorCode::kInvalidArgument);
}

// Whether a document was encoded before the last of those who came with it had its first token.
TEST_F(EngineTest, StoringHasAShareOfStepsAndNoMore) {
  for (const double share : {0.0, 1000.0}) {
    open();
    Engine engine({.sequences_max = 4, .chunk_tokens = 32, .background_share = share}, *model_, tokenizer_, *cache_,
                  slow_);
    for (std::uint32_t i = 0; i < 8; ++i) ASSERT_TRUE(engine.submit(ask((share > 0 ? 20 : 8) + i, 150, 1)));
    bool stored_meanwhile = false;
    for (std::size_t answered = 0; answered < 8; answered += engine.finished().size()) {
      engine.run_once();
      if (engine.stats().prefill_tokens < 8 * 159) stored_meanwhile |= cache_->store().stats().encoded_bytes > 0;
    }
    EXPECT_EQ(stored_meanwhile, share > 0);
    drain();
    EXPECT_GT(cache_->store().stats().encoded_bytes, 0u);
  }
}

}  // namespace
}  // namespace shale
