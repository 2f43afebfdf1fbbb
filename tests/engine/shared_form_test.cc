// Requests that come together and name the same form of the same context: one makes it, or loads it, the others wait
// for that and take it from the pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/loading_fixture.h"

namespace shale {
namespace {

using testing::EngineTest;
using testing::LoadingTest;

constexpr std::uint32_t kContext = 192, kBehind = 17;  // tokens: in whole blocks, and those that follow them

Request naming(std::string_view method, Request request) {
  request.policy.method = Method::parse(method).value();
  request.policy.keep = request.policy.method->scorer.empty() ? 1 : 0.5;
  return request;
}

// Runs all that were submitted, `count` of them.
std::vector<Response> run_all(Engine& engine, std::size_t count) {
  std::vector<Response> responses;
  for (int turn = 0; turn < 100'000 && responses.size() < count; ++turn) {
    engine.run_once();
    for (Response& response : engine.finished()) {
      EXPECT_FALSE(response.error) << response.error->message;
      EXPECT_TRUE(response.lossy);
      responses.push_back(std::move(response));
    }
  }
  EXPECT_EQ(responses.size(), count);
  return responses;
}

// Of these, how many took it from there in a lossy form.
std::ptrdiff_t forms_from(const std::vector<Response>& responses, std::string_view where) {
  return std::ranges::count_if(responses, [where](const Response& response) {
    return std::ranges::any_of(response.sources, [where](const SourceUsed& source) {
      return source.where == where && source.lossy() && source.tokens == kContext;
    });
  });
}

class SharedFormTest : public EngineTest {
 protected:
  std::uint64_t computed() const { return engine_->stats().prefill_tokens; }
  void submit(const Request& request, int times) {
    for (int i = 0; i < times; ++i) ASSERT_TRUE(engine_->submit(request));
  }
};

TEST_F(SharedFormTest, OneMakesItForAllWhoComeTogether) {
  std::uint32_t document = 20;
  for (const char* method : {"kivi4", "knorm", "snapkv+int8", "kvzip"}) {
    const Request request = naming(method, ask(++document, 200, 1));
    const std::uint64_t before = computed();
    submit(request, 3);
    const std::vector<Response> responses = run_all(*engine_, 3);
    EXPECT_EQ(computed() - before, kContext + 3 * kBehind) << method;
    EXPECT_EQ(forms_from(responses, "pool"), 2) << method;
    EXPECT_EQ(engine_->stats().shared_loads, 2u) << method;
    drain();
    open();
    const Response alone = engine_->run(request);
    EXPECT_EQ(alone.cached.from("disk"), kContext) << method;
    for (const Response& response : responses) EXPECT_EQ(response.tokens, alone.tokens) << method;
  }
}

TEST_F(SharedFormTest, OfExactPagesOfThePoolItIsMadeOnce) {
  ASSERT_FALSE(engine_->run(ask(1, 200, 1)).error);
  const std::uint64_t before = computed();
  submit(naming("int8", ask(1, 200, 2)), 3);
  EXPECT_EQ(forms_from(run_all(*engine_, 3), "pool"), 2);
  EXPECT_EQ(computed() - before, 3 * kBehind);
}

TEST_F(SharedFormTest, TwoFormsOfOneContextAreMadeOnceEach) {
  const Request one = naming("kivi4", ask(1, 200, 1)), other = naming("knorm", ask(1, 200, 1));
  submit(one, 2);
  submit(other, 2);
  EXPECT_EQ(forms_from(run_all(*engine_, 4), "pool"), 2);
  const std::uint64_t before = computed();
  for (const Request& request : {one, other, one}) {
    submit(request, 1);
    EXPECT_EQ(forms_from(run_all(*engine_, 1), "pool"), 1);
  }
  EXPECT_EQ(computed() - before, 3 * kBehind);
}

// The method is applied to what follows a system message of less than a block, with that.
TEST_F(SharedFormTest, ASpanWithoutAWholeBlockIsPartOfTheNext) {
  Request request = naming("kivi4", ask(1, 192, 1));
  request.spans.insert(request.spans.begin(),
                       {.tokens = testing::random_tokens(8, 256, 70), .store = true, .label = "rules"});
  submit(request, 3);
  EXPECT_EQ(forms_from(run_all(*engine_, 3), "pool"), 2);
  EXPECT_EQ(computed(), kContext + 3 * kBehind);
  EXPECT_EQ(engine_->stats().shared_loads, 2u);
}

TEST_F(SharedFormTest, TheNextMakesItWhereTheFirstIsCancelled) {
  const Request request = naming("kivi4", ask(1, 200, 1));
  const RequestId first = engine_->submit(request).value();
  submit(request, 2);
  ASSERT_TRUE(engine_->run_once());
  ASSERT_EQ(engine_->loading(), 2u) << "the first computes";
  engine_->cancel(first);
  ASSERT_EQ(engine_->finished().size(), 1u);
  const std::uint64_t before = computed();
  EXPECT_EQ(forms_from(run_all(*engine_, 2), "pool"), 1);
  EXPECT_EQ(computed() - before, kContext + 2 * kBehind);
  EXPECT_EQ(engine_->stats().shared_loads, 1u);
}

TEST_F(SharedFormTest, NobodyWaitsForAnotherFormOrForWhomItPasses) {
  std::uint32_t document = 30;
  const auto expect_no_wait = [&](const std::function<void(Request&, Request&)>& change) {
    Request first = naming("knorm", ask(++document, 600, 1)), second = first;
    change(first, second);
    ASSERT_TRUE(engine_->submit(first));
    ASSERT_TRUE(engine_->run_once());
    ASSERT_TRUE(engine_->submit(second));
    ASSERT_TRUE(engine_->run_once());
    EXPECT_EQ(engine_->running(), 2u);
    EXPECT_EQ(engine_->loading(), 0u) << document;
    run_all(*engine_, 2);
  };
  expect_no_wait([](Request&, Request& second) { second.policy.keep = 0.25; });
  expect_no_wait([](Request&, Request& second) { second.policy.salt = "mine"; });
  expect_no_wait([](Request&, Request& second) { second.tenant = "another"; });
  expect_no_wait([](Request&, Request& second) { second.priority = 1; });
  expect_no_wait([](Request& first, Request&) { first.insert_prefix = false; });
  expect_no_wait([](Request&, Request& second) { second.spans[0].tokens[40] ^= 1; });
}

class SharedFormLoadTest : public LoadingTest {};

TEST_F(SharedFormLoadTest, OneLoadsItForAll) {
  const Request request = naming("kivi4", ask(1, 200, 1));
  const Response made = engine_->run(request);
  drain();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  const std::uint64_t before = tier_->stats().read_bytes;
  EXPECT_EQ(engine_->run(request).cached.from("memory"), kContext);
  const std::uint64_t bytes = tier_->stats().read_bytes - before;
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));

  tier_->set_silent(true);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(engine_->submit(request));
  for (int turn = 0; turn < 3; ++turn) engine_->run_once();
  EXPECT_EQ(engine_->loading(), 3u);
  tier_->answer();
  const std::vector<Response> responses = run_all(*engine_, 3);
  EXPECT_EQ(tier_->stats().read_bytes - before, 2 * bytes);
  EXPECT_EQ(forms_from(responses, "memory"), 1);
  EXPECT_EQ(forms_from(responses, "pool"), 2);
  for (const Response& response : responses) EXPECT_EQ(response.tokens, made.tokens);
}

}  // namespace
}  // namespace shale
