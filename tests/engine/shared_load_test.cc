// Requests that begin alike and come together: one loads, the others wait for that and share its blocks.
#include <gmock/gmock.h>

#include <map>
#include <utility>
#include <vector>

#include "engine/shared_load_fixture.h"

namespace shale {
namespace {

using testing::kAlone;
using testing::SharedLoadTest;

TEST_F(SharedLoadTest, OneLoadServesAllWhoComeTogether) {
  store(256);
  std::vector<std::vector<Token>> alone;
  for (std::uint32_t question = 1; question <= 4; ++question) {
    alone.push_back(engine_->run(ask(1, 200, question)).tokens);
    EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  }
  const std::uint64_t one = bytes_of_one(), before = bytes_read();
  EXPECT_GT(one, 0u);
  blocks_used_ = 0;
  const std::vector<RequestId> ids = submit_all(4);
  const auto responses = run_all();
  ASSERT_EQ(responses.size(), 4u);
  EXPECT_EQ(bytes_read() - before, one);
  expect_sources(responses, 1, 3);
  EXPECT_LE(blocks_used_, kAlone + 3 * 3) << "the document's blocks once";
  EXPECT_EQ(engine_->stats().shared_loads, 3u);
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(responses.at(ids[i]).tokens, alone[i]);
}

TEST_F(SharedLoadTest, WhoWaitsNeedsNeitherBlocksNorALoadOfItsOwn) {
  store(kAlone + 3 * 4);
  tier_->set_silent(true);
  static_cast<void>(submit_all(4));
  run_some_turns();
  EXPECT_EQ(engine_->loading(), 4u);
  EXPECT_EQ(engine_->waiting(), 0u);
  EXPECT_LE(pool_->blocks_total() - pool_->blocks_free(), kAlone);

  tier_->answer();
  expect_sources(run_all(), 1, 3);
  EXPECT_EQ(engine_->stats().preempted, 0u);
}

TEST_F(SharedLoadTest, WhatCameIsSharedBeforeTheRestIsComputed) {
  store(256);
  Request longer = ask(1, 200, 1);
  longer.spans.back().tokens = testing::random_tokens(900, 256, 5);
  ASSERT_TRUE(engine_->submit(longer));
  for (int turn = 0; turn < 2; ++turn) ASSERT_TRUE(engine_->run_once());
  ASSERT_EQ(engine_->loading(), 0u);
  ASSERT_TRUE(engine_->finished().empty());
  const RequestId next = submit(2);
  EXPECT_EQ(run_all().at(next).cached.from("pool"), 192u);
}

TEST_F(SharedLoadTest, AnotherLoadsWhereTheFirstIsCancelled) {
  store(256);
  tier_->set_silent(true);
  const std::vector<RequestId> ids = submit_all(3);
  run_some_turns();
  EXPECT_EQ(engine_->loading(), 3u);
  engine_->cancel(ids[0]);
  tier_->answer();
  auto responses = run_all();
  ASSERT_EQ(responses.size(), 3u);
  responses.erase(ids[0]);
  expect_sources(responses, 1, 1);
}

TEST_F(SharedLoadTest, WhatCannotBeReadIsComputedOnce) {
  store(256);
  tier_->set_silent(true);
  const std::uint64_t computed = engine_->stats().prefill_tokens;
  static_cast<void>(submit_all(4));
  run_some_turns();
  tier_->set_silent(false);  // what it owes fails
  ASSERT_EQ(run_all().size(), 4u);
  EXPECT_EQ(cache_->stats().failed_loads, 1u);
  EXPECT_EQ(engine_->stats().prefill_tokens - computed, 209u + 3 * 9);
}

// Once for all, as soon as the one that loads gives up.
TEST_F(SharedLoadTest, ATierThatNeverAnswersIsWaitedForOnce) {
  load_always_ = false;
  store(256);
  tier_->set_silent(true);
  const double begun_s = time_.now_s();
  const std::uint64_t computed = engine_->stats().prefill_tokens;
  static_cast<void>(submit_all(4));
  const auto responses = run_all();
  ASSERT_EQ(responses.size(), 4u);
  EXPECT_EQ(cache_->stats().late_loads, 1u);
  EXPECT_LT(time_.now_s() - begun_s, late_after_s(0.1));
  EXPECT_EQ(engine_->stats().prefill_tokens - computed, 209u + 3 * 9);
  EXPECT_EQ(engine_->stats().shared_loads, 0u);
}

TEST_F(SharedLoadTest, WhoSharesIsNotChargedForWhatCame) {
  store(256);
  engine_ = std::make_unique<Engine>(EngineOptions{.sequences_max = 2}, *model_, tokenizer_, *cache_, time_);
  tier_->set_silent(true);
  const auto submit_for = [&](std::string tenant, Request request) {
    request.tenant = std::move(tenant);
    return engine_->submit(std::move(request)).value();
  };
  submit_for("one", ask(1, 200, 1));
  submit_for("one", ask(1, 200, 2));
  run_some_turns();
  ASSERT_EQ(engine_->loading(), 2u);
  // The other begins with what the least served of those who wait was charged.
  const RequestId next = submit_for("one", generate(6, 40, 1)), after = submit_for("one", generate(7, 40, 1));
  const RequestId other = submit_for("other", generate(8, 40, 1));
  tier_->answer();
  std::vector<RequestId> finished;
  while (finished.size() < 5) {
    ASSERT_TRUE(engine_->run_once());
    for (const Response& response : engine_->finished()) finished.push_back(response.id);
  }
  finished.erase(finished.begin(), finished.begin() + 2);
  EXPECT_THAT(finished, ::testing::ElementsAre(next, after, other));
}

TEST_F(SharedLoadTest, NobodySharesAcrossSalts) {
  store(256);
  const RequestPolicy mine{.salt = "mine"}, theirs{.salt = "theirs"};
  for (const RequestPolicy& policy : {mine, theirs}) {
    submit(1, policy);
    static_cast<void>(run_all());
    drain();
    EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  }
  submit(2, mine);
  submit(2, theirs);
  expect_sources(run_all(), 2, 0);
}

TEST_F(SharedLoadTest, ButForWhatIsPublished) {
  store(256);
  cache_->publish(ask(1, 200, 1).spans[0].tokens);
  submit(1, {.salt = "mine"});
  submit(2, {.salt = "theirs"});
  submit(3, {.salt = "yours"});
  expect_sources(run_all(), 1, 2);
}

TEST_F(SharedLoadTest, BudgetsAndNamedMethodsKeepToThemselves) {
  store(256);
  tier_->set_silent(true);
  submit(1);
  Request budgeted = ask(1, 200, 2), uncached = ask(1, 200, 3);
  budgeted.budget = KvBudgetOptions{.tokens = 256, .method = "knorm", .interval = 32};
  uncached.use_cache = false;
  ASSERT_TRUE(engine_->submit(std::move(budgeted)));
  ASSERT_TRUE(engine_->submit(std::move(uncached)));
  submit(4, {.method = Method::parse("kivi4").value()});
  run_some_turns();
  EXPECT_EQ(engine_->loading(), 3u);
  EXPECT_GT(pool_->blocks_total() - pool_->blocks_free(), 3 * 12u) << "each in blocks of its own";
}

// Requests under the same rules about documents of their own. All lies on the tier alone, which takes a second for what
// one of them loads.
class SharedFrontTest : public SharedLoadTest {
 protected:
  static constexpr std::uint32_t kRules = 256, kDocument = 192, kAlone = 30;  // tokens, and blocks of one of them

  void SetUp() override { store_all(256); }
  void store_all(std::uint32_t pool_blocks) {
    open_over_tier(pool_blocks);
    alone_.clear();
    for (int i = 0; i < 3; ++i) cache_->note_prefill(100, 0, 10);
    for (std::uint32_t document = 1; document <= 3; ++document) alone_.push_back(run(about(document)));
    bytes_ = bytes_of({1});
    const auto bytes = static_cast<double>(bytes_);
    tier_->expect({.latency_s = 0, .read_bytes_per_s = bytes, .write_bytes_per_s = bytes});
  }
  static Request about(std::uint32_t document) {
    Request request = ask(document, kDocument, 1);
    request.spans.insert(request.spans.begin(),
                         {.tokens = testing::random_tokens(kRules, 256, 70), .store = true, .label = "rules"});
    return request;
  }
  std::vector<Token> run(Request request) {
    const Response response = engine_->run(std::move(request));
    EXPECT_FALSE(response.error);
    drain();
    EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
    return response.tokens;
  }
  // That are read for these documents, one after another.
  std::uint64_t bytes_of(std::initializer_list<std::uint32_t> documents) {
    const std::uint64_t before = bytes_read();
    for (const std::uint32_t document : documents) EXPECT_FALSE(engine_->run(about(document)).error);
    drain();
    EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
    return bytes_read() - before;
  }
  std::vector<RequestId> submit_about(std::initializer_list<std::uint32_t> documents) {
    tier_->set_silent(true);
    std::vector<RequestId> ids;
    for (const std::uint32_t document : documents) ids.push_back(engine_->submit(about(document)).value());
    run_some_turns();
    EXPECT_EQ(engine_->loading(), documents.size());
    return ids;
  }
  std::uint32_t blocks_used() const { return pool_->blocks_total() - pool_->blocks_free(); }

  std::vector<std::vector<Token>> alone_;
  std::uint64_t bytes_ = 0;  // that one of them loads
};

TEST_F(SharedFrontTest, OneLoadsTheFrontAndEachItsOwnRest) {
  const std::uint64_t one_by_one = bytes_of({1, 2, 3}), before = bytes_read();
  EXPECT_LT(one_by_one, 3 * bytes_);
  const std::vector<RequestId> ids = submit_about({1, 2, 3});
  EXPECT_LE(blocks_used(), kAlone);
  tier_->answer();
  const auto responses = run_all();
  ASSERT_EQ(responses.size(), 3u);
  EXPECT_EQ(bytes_read() - before, one_by_one);
  EXPECT_EQ(engine_->stats().shared_loads, 2u);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Response& response = responses.at(ids[i]);
    EXPECT_EQ(response.cached.from("pool"), i == 0 ? 0u : kRules);
    EXPECT_EQ(response.cached.from("memory"), i == 0 ? kRules + kDocument : kDocument);
    EXPECT_EQ(response.tokens, alone_[i]);
  }
}

TEST_F(SharedFrontTest, WhoWaitsTwiceCountsOnce) {
  const std::vector<RequestId> ids = submit_about({1, 2, 2});  // for the front, then for the rest
  tier_->answer();
  const auto responses = run_all();
  EXPECT_EQ(responses.at(ids[1]).cached.from("memory"), kDocument);
  EXPECT_EQ(responses.at(ids[2]).cached.from("memory"), 0u);
  EXPECT_EQ(engine_->stats().shared_loads, 2u);
}

TEST_F(SharedFrontTest, TheNextLoadsItWhereTheFirstIsCancelled) {
  const std::vector<RequestId> ids = submit_about({1, 2, 3});
  engine_->cancel(ids[0]);
  run_some_turns();
  EXPECT_EQ(engine_->loading(), 2u);
  EXPECT_LE(blocks_used(), kAlone);
  tier_->answer();
  const auto responses = run_all();
  EXPECT_EQ(responses.at(ids[1]).cached.from("memory"), kRules + kDocument);
  EXPECT_EQ(responses.at(ids[2]).cached.from("pool"), kRules);
  EXPECT_EQ(responses.at(ids[2]).tokens, alone_[2]);
}

TEST_F(SharedFrontTest, NobodyWaitsForItLongerThanForALoadOfItsOwn) {
  submit_about({1, 2});
  const double begun_s = time_.now_s();
  while (blocks_used() <= kAlone && time_.now_s() < begun_s + 8) engine_->run_once();
  EXPECT_GT(blocks_used(), kAlone);
  EXPECT_GE(time_.now_s(), begun_s + 1);
  EXPECT_EQ(cache_->stats().late_loads, 0u) << "the other waits still";
  tier_->answer();
  EXPECT_EQ(run_all().size(), 2u);
  EXPECT_EQ(engine_->stats().shared_loads, 0u);
}

// So that there is room to compute.
TEST_F(SharedFrontTest, WhoWaitsForItCountsAsOneThatLoads) {
  store_all(3 * kAlone + 10);
  tier_->set_silent(true);
  for (std::uint32_t document = 1; document <= 3; ++document) ASSERT_TRUE(engine_->submit(about(document)));
  run_some_turns();
  EXPECT_EQ(engine_->loading(), 2u);
  EXPECT_EQ(engine_->waiting(), 1u);
  tier_->answer();
  EXPECT_EQ(run_all().size(), 3u);
}

// As the first block of a chat's template.
TEST_F(SharedFrontTest, AFrontThatSavesNextToNothingIsNotWaitedFor) {
  const auto about_briefly = [](std::uint32_t document) {
    Request request = about(document);
    request.spans[0].tokens.resize(16);
    return request;
  };
  for (const std::uint32_t document : {4u, 5u}) run(about_briefly(document));
  tier_->set_silent(true);
  for (const std::uint32_t document : {4u, 5u}) ASSERT_TRUE(engine_->submit(about_briefly(document)));
  run_some_turns();
  EXPECT_EQ(engine_->loading(), 2u);
  EXPECT_GE(blocks_used(), 2 * (16 + kDocument) / 16) << "each in blocks of its own";
  tier_->answer();
  EXPECT_EQ(run_all().size(), 2u);
  EXPECT_EQ(engine_->stats().shared_loads, 0u);
}

// The chunk that the front ends in is read with the rest.
TEST_F(SharedFrontTest, WhatIsReadAgainAllTheSameIsNotWaitedFor) {
  const auto beginning_with = [](std::uint32_t document) {
    Request request = ask(document, kDocument, 1);
    std::vector<Token>& tokens = request.spans[0].tokens;
    tokens.insert(tokens.begin(), 128, 'x');
    return request;
  };
  for (const std::uint32_t document : {4u, 5u}) run(beginning_with(document));  // the front is stored with the first
  tier_->set_silent(true);
  for (const std::uint32_t document : {5u, 4u}) ASSERT_TRUE(engine_->submit(beginning_with(document)));
  run_some_turns();
  EXPECT_EQ(engine_->loading(), 2u);
  EXPECT_GE(blocks_used(), 2 * (128 + kDocument) / 16) << "each in blocks of its own";
  tier_->answer();
  EXPECT_EQ(run_all().size(), 2u);
}

}  // namespace
}  // namespace shale
