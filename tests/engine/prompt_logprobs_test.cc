// How likely a prompt's own tokens are: as drawing them would have told, whatever else is cached or computed.
#include <gmock/gmock.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/engine_fixture.h"

namespace shale {
namespace {

using testing::EngineTest;
using testing::random_tokens;

class PromptLogprobsTest : public EngineTest {
 protected:
  struct Told {
    PromptLogprobs prompt;
    int times = 0;
    Response response;
  };
  static Request rated(Request request, Told& told) {
    request.prompt_logprobs = 5;
    request.on_prompt = [&told](PromptLogprobs prompt) {
      told.prompt = std::move(prompt);
      ++told.times;
    };
    return request;
  }
  Told run(Request request) {
    Told told;
    told.response = engine_->run(rated(std::move(request), told));
    EXPECT_FALSE(told.response.error);
    EXPECT_EQ(told.times, 1);
    return told;
  }

  // As drawing one token behind the first `count` tells it: the whole vocabulary, the likeliest first.
  std::vector<std::pair<Token, float>> drawn_behind(std::span<const Token> prompt, std::size_t count) {
    Request request;
    const auto end = prompt.begin() + static_cast<std::ptrdiff_t>(count);
    request.spans.push_back({.tokens = {prompt.begin(), end}, .store = false, .label = ""});
    request.max_tokens = 1;
    request.use_cache = request.insert_prefix = false;
    request.logprobs = model_->info().vocabulary;
    std::vector<std::pair<Token, float>> likely;
    request.on_token = [&likely](DrawnToken drawn) { likely = std::move(drawn.logprobs->top); };
    EXPECT_FALSE(engine_->run(std::move(request)).error);
    return likely;
  }

  static void expect_alike(const PromptLogprobs& one, const PromptLogprobs& other) {
    ASSERT_EQ(one.size(), other.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      ASSERT_EQ(one[i].has_value(), other[i].has_value()) << i;
      if (!one[i]) continue;
      EXPECT_EQ(one[i]->drawn, other[i]->drawn) << i;
      EXPECT_EQ(one[i]->rank, other[i]->rank) << i;
      EXPECT_EQ(one[i]->top, other[i]->top) << i;
    }
  }
};

// Where nothing is drawn, no place is left for it.
TEST_F(PromptLogprobsTest, APromptMayFillTheContext) {
  const std::uint32_t longest = model_->info().context_max;
  Request request = generate(1, longest, 0);
  request.prompt_only = true;
  const Told told = run(request);
  ASSERT_EQ(told.prompt.size(), longest);
  EXPECT_TRUE(told.prompt.back());
  request.prompt_only = false;
  request.max_tokens = 1;
  EXPECT_TRUE(engine_->run(request).error);
}

TEST_F(PromptLogprobsTest, WhoCancelsOnHearingThemIsToldNoMore) {
  for (const bool prompt_only : {true, false}) {
    Request request = generate(1, 50, prompt_only ? 0 : 8);
    request.prompt_only = prompt_only;
    request.prompt_logprobs = 1;
    RequestId id = 0;
    request.on_prompt = [&](const PromptLogprobs&) { engine_->cancel(id); };
    request.on_token = [](const DrawnToken&) { ADD_FAILURE() << "it was cancelled"; };
    id = engine_->submit(request).value();
    while (engine_->run_once()) continue;
    const auto finished = engine_->finished();
    ASSERT_EQ(finished.size(), 1u);
    EXPECT_EQ(finished[0].stop, StopReason::kCancelled);
  }
}

// Also where a chunk ends: its last token rates the first of the next.
TEST_F(PromptLogprobsTest, AreThoseOfDrawingTokenByToken) {
  const Request request = ask(1, 390, 1);  // the span ends within a block, which belongs to what follows
  std::vector<Token> prompt = request.spans[0].tokens;
  prompt.insert(prompt.end(), request.spans[1].tokens.begin(), request.spans[1].tokens.end());
  const Told told = run(request);
  ASSERT_EQ(told.prompt.size(), prompt.size());
  EXPECT_FALSE(told.prompt[0]) << "nothing is before it";
  for (std::size_t i = 1; i < prompt.size(); ++i) ASSERT_TRUE(told.prompt[i]) << i;
  for (const std::size_t i : {1u, 2u, 127u, 128u, 129u, 255u, 256u, 257u, 320u, 383u, 384u, 385u, 398u}) {
    const auto likely = drawn_behind(prompt, i);
    const auto own = std::ranges::find(likely, prompt[i], &std::pair<Token, float>::first);
    ASSERT_NE(own, likely.end());
    EXPECT_EQ(told.prompt[i]->drawn, own->second) << i;
    EXPECT_EQ(told.prompt[i]->rank, own - likely.begin() + 1) << i;
    EXPECT_THAT(told.prompt[i]->top, ::testing::ElementsAreArray(std::span(likely).first(5))) << i;
  }
}

TEST_F(PromptLogprobsTest, NothingCachedIsReadAndWhatIsComputedIsKept) {
  const Told first = run(ask(1, 200, 1));
  EXPECT_EQ(first.response.cached.total(), 0u);
  EXPECT_GT(engine_->run(ask(1, 200, 1)).cached.total(), 0u) << "it serves who does not ask";
  expect_alike(run(ask(1, 200, 1)).prompt, first.prompt);
  drain();
  open();  // on the disk still
  const Told again = run(ask(1, 200, 1));
  EXPECT_EQ(again.response.cached.total(), 0u);
  EXPECT_EQ(again.response.tokens, first.response.tokens);
  expect_alike(again.prompt, first.prompt);
}

TEST_F(PromptLogprobsTest, NobodyBesideChangesThemOrIsChanged) {
  const Request question = generate(7, 300, 4);
  const Told alone = run(question);
  const Response other_alone = engine_->run(generate(5, 40, 60));
  const std::uint64_t decoded = engine_->stats().decode_tokens;
  const RequestId other = engine_->submit(generate(5, 40, 60)).value();
  while (engine_->stats().decode_tokens < decoded + 2) ASSERT_TRUE(engine_->run_once());
  Told told, second;
  ASSERT_TRUE(engine_->submit(rated(question, told)));
  ASSERT_TRUE(engine_->submit(rated(generate(8, 20, 4), second)));
  std::vector<Response> responses;
  while (engine_->run_once()) {
    for (Response& response : engine_->finished()) responses.push_back(std::move(response));
  }
  const auto of_other = std::ranges::find(responses, other, &Response::id);
  ASSERT_NE(of_other, responses.end());
  EXPECT_EQ(of_other->tokens, other_alone.tokens);
  expect_alike(told.prompt, alone.prompt);
  expect_alike(second.prompt, run(generate(8, 20, 4)).prompt);
}

// What is behind the span of a method that the request names is rated over what that left, and the same whether it was
// applied now or found: the span itself is not.
TEST_F(PromptLogprobsTest, BehindANamedMethodsSpanTheyAreOverWhatItLeft) {
  Request request = ask(1, 200, 1);
  const Told exact = run(request);
  request.policy.method = Method::parse("knorm").value();
  request.policy.keep = 0.25;
  const Told applied = run(request);
  drain();
  const Told found = run(request);
  EXPECT_EQ(found.response.cached.total(), 192u);
  expect_alike(found.prompt, applied.prompt);
  bool differs = false;
  for (std::size_t i = 0; i < 209; ++i) {
    ASSERT_EQ(found.prompt[i].has_value(), i > 192) << i << ": the first behind the span follows from its last token";
    differs = differs || (i > 192 && found.prompt[i]->drawn != exact.prompt[i]->drawn);
  }
  EXPECT_TRUE(differs);
}

TEST_F(PromptLogprobsTest, BehindANamedMethodsSpanAlsoWhereAShorterThanABlockComesBefore) {
  Request request = ask(1, 192, 1);
  request.spans.insert(request.spans.begin(),
                       {.tokens = testing::random_tokens(8, 256, 70), .store = true, .label = "rules"});
  request.policy.method = Method::parse("kivi4").value();
  const Told applied = run(request);
  for (std::size_t i = 0; i < 209; ++i) ASSERT_EQ(applied.prompt[i].has_value(), i > 192) << i;
}

TEST_F(PromptLogprobsTest, WhereABudgetCutsThePromptTheyAreOverWhatItLeft) {
  Request request = generate(3, 400, 2);
  const Told whole = run(request);
  request.budget = KvBudgetOptions{.tokens = 64, .method = "streaming", .prefill = BudgetPrefill::kChunked};
  const Told cut = run(request);
  ASSERT_EQ(cut.prompt.size(), 400u);
  EXPECT_EQ(cut.prompt[10]->drawn, whole.prompt[10]->drawn) << "before the first cut";
  EXPECT_NE(cut.prompt[399]->drawn, whole.prompt[399]->drawn);
}

TEST_F(PromptLogprobsTest, AreToldOnceThoughTheRequestIsPreempted) {
  std::vector<Told> alone(4), together(4);
  for (std::uint32_t i = 0; i < 4; ++i) alone[i] = run(generate(i, 100, 200));
  open(40);
  for (std::uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(engine_->submit(rated(generate(i, 100, 200), together[i])));
  while (engine_->run_once()) continue;
  EXPECT_GT(engine_->stats().preempted, 0u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(together[i].times, 1);
    expect_alike(together[i].prompt, alone[i].prompt);
  }
}

TEST_F(PromptLogprobsTest, APromptAloneDrawsNothing) {
  Request request = generate(4, 150, 0, true);
  request.prompt_only = true;
  const Told told = run(request);
  EXPECT_EQ(told.response.drawn(), 0u);
  EXPECT_EQ(told.response.stop, StopReason::kLength);
  EXPECT_EQ(told.response.ttft_seconds, 0);
  expect_alike(told.prompt, run(generate(4, 150, 1)).prompt);
  EXPECT_EQ(engine_->run(generate(4, 150, 1)).cached.total(), 149u) << "what was computed is kept";
  drain();
}

}  // namespace
}  // namespace shale
