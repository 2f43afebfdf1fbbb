#include <gmock/gmock.h>

#include <set>

#include "metadata/sqlite.h"
#include "profile/prior_texts.h"
#include "profile/quality_watch_fixture.h"
#include "support/eventually.h"

namespace shale {
namespace {

using testing::kNever;
using testing::QualityWatchTest;

TEST_F(QualityWatchTest, LooksOnceEnoughDifferentThingsWereAsked) {
  profile(0);
  QualityWatch watch(options_, *bench_.engine);
  EXPECT_FALSE(watch.work(kNever));
  ask_several(watch, "the same", 1);
  for (int i = 0; i < 10; ++i) ask_several(watch, "the same", 1);
  EXPECT_FALSE(watch.work(kNever));
  ask_several(watch, "another", options_.questions_between - 1);
  EXPECT_EQ(work_all(watch), 1);
  EXPECT_EQ(watch.stats().checks, 1u);
  EXPECT_EQ(watch.stats().questions, options_.questions_between);
  EXPECT_GT(watch.stats().check_seconds, 0);
  EXPECT_FALSE(watch.work(kNever)) << "until more is asked";
}

TEST_F(QualityWatchTest, RecallsWhatAnEarlierProcessWasAsked) {
  options_.keep_questions = true;
  {
    QualityWatch earlier(options_, *bench_.engine);
    ask_several(earlier, "why", 3);
    EXPECT_EQ(work_all(earlier), 1) << "to note them";
  }
  options_.profile_new = true;
  QualityWatch watch(options_, *bench_.engine);
  ask_several(watch, "how", 1);
  ASSERT_TRUE(watch.work(kNever));
  EXPECT_EQ(watch.stats().recalled, 3u);
  EXPECT_EQ(watch.stats().questions, 1u);
  work_all(watch);
  EXPECT_EQ(watch.stats().profiled, 1u);
  for (const QualityRecord& row : profiled()) EXPECT_EQ(row.questions, 4u) << "what was recalled and what is new";

  QualityWatch again(options_, *bench_.engine);
  again.on_request(ask(" how0"));
  EXPECT_TRUE(again.work(kNever));
  EXPECT_EQ(again.stats().recalled, 3u) << "not what was asked here, too, however it is framed";
  EXPECT_FALSE(again.work(kNever)) << "the profile stands on as many";
}

TEST_F(QualityWatchTest, ForgetsWhereToldTo) {
  QualityWatch watch(options_, *bench_.engine);
  ask_several(watch, "why", 3);
  EXPECT_EQ(work_all(watch), 0);
  EXPECT_TRUE(metadata_store().questions(bench_.cache->run_of(context_))->empty());
}

TEST_F(QualityWatchTest, WhatCannotBeRecordedWhileAnotherProcessWritesIsRecordedLater) {
  options_.keep_questions = options_.profile_new = true;
  QualityWatch watch(options_, *bench_.engine);
  ask_several(watch, "why", 4);
  const auto other = SqlDatabase::open(bench_.folder.path() / "catalogue.sqlite", 1000).value();
  ASSERT_TRUE(other.execute("BEGIN IMMEDIATE"));
  for (int i = 0; i < 30; ++i) watch.work(kNever);
  const Hash128 run = bench_.cache->run_of(context_);
  EXPECT_TRUE(metadata_store().questions(run)->empty());
  EXPECT_TRUE(profiled().empty());
  EXPECT_EQ(watch.stats().profiled, 0u);
  EXPECT_EQ(watch.stats().failed, 0u);
  const auto available = [&] { return bench_.pool->blocks_free() + bench_.cache->blocks_evictable(); };
  EXPECT_LT(available(), bench_.pool->blocks_total());
  EXPECT_TRUE(watch.holds_pages());
  watch.let_go();
  EXPECT_FALSE(watch.holds_pages());
  watch.work(kNever);
  EXPECT_EQ(available(), bench_.pool->blocks_total()) << "the context need not be computed to be noted";
  ASSERT_TRUE(other.execute("COMMIT"));
  work_all(watch);
  EXPECT_EQ(metadata_store().questions(run)->size(), 4u);
  EXPECT_FALSE(profiled().empty());
  EXPECT_EQ(watch.stats().profiled, 1u);
}

TEST_F(QualityWatchTest, ProfilesAgainWhatNoLongerHolds) {
  profile(0);
  QualityWatchOptions strict = options_;
  strict.check.threshold = -2;  // nothing agrees enough
  QualityWatch watch(strict, *bench_.engine);
  ask_several(watch, "why", 4);
  work_all(watch);
  EXPECT_EQ(watch.stats().drifted, 1u);
  EXPECT_EQ(watch.stats().profiled, 1u);
  EXPECT_GT(watch.stats().profile_seconds, 0);
  for (const QualityRecord& row : profiled()) {
    EXPECT_GT(row.quality, 0) << row.method.text() << " is still as pretended";
    EXPECT_LE(row.quality, 1) << row.method.text();
    EXPECT_EQ(row.questions, 4u);
  }
  QualityWatch later(options_, *bench_.engine);
  ask_several(later, "how", 4);
  work_all(later);
  EXPECT_EQ(later.stats().checks, 1u);
  EXPECT_EQ(later.stats().drifted, 0u) << "it holds again";
}

TEST_F(QualityWatchTest, ProfilesNewContextsWhereToldTo) {
  QualityWatch drifted_alone(options_, *bench_.engine);
  ask_several(drifted_alone, "why", 4);
  EXPECT_FALSE(drifted_alone.work(kNever));
  EXPECT_THAT(profiled(), ::testing::IsEmpty());

  options_.profile_new = true;
  QualityWatch all(options_, *bench_.engine);
  ask_several(all, "why", 1);
  work_all(all);
  EXPECT_EQ(all.stats().checks, 0u);
  EXPECT_EQ(all.stats().profiled, 1u) << "one question is enough";
  EXPECT_EQ(all.stats().failed, 0u);
  EXPECT_THAT(profiled(), ::testing::SizeIs(::testing::Ge(bench_.cache->methods().size() - 1)));
  for (const QualityRecord& row : profiled()) EXPECT_EQ(row.questions, 1u);
  EXPECT_FALSE(all.work(kNever));
}

TEST_F(QualityWatchTest, MeasuresNothingWhereThereIsNothingToChoose) {
  CacheOptions exact_alone;
  exact_alone.methods = {"full"};
  testing::EngineBench bench;
  bench.open_tiny(std::size_t{64} << 20, exact_alone);
  options_.prior = true;
  options_.profile_new = true;
  QualityWatch watch(options_, *bench.engine);
  ask_several(watch, "why", 4);
  EXPECT_FALSE(watch.work(kNever));
}

TEST_F(QualityWatchTest, ProfilesAgainOnTwiceAsManyQuestions) {
  options_.profile_new = true;
  options_.check.threshold = 1;  // whatever they answer
  QualityWatch watch(options_, *bench_.engine);
  const auto profiled_on = [&](const std::string& question) {
    watch.on_request(ask(question));
    work_all(watch);
    std::set<std::uint32_t> questions;
    for (const QualityRecord& row : profiled()) questions.insert(row.questions);
    return questions;
  };
  EXPECT_THAT(profiled_on("who"), ::testing::ElementsAre(1u)) << "on what was asked, and that alone";
  EXPECT_THAT(profiled_on("who"), ::testing::ElementsAre(1u)) << "nothing new";
  EXPECT_THAT(profiled_on("what"), ::testing::ElementsAre(2u));
  EXPECT_THAT(profiled_on("when"), ::testing::ElementsAre(2u));
  EXPECT_THAT(profiled_on("where"), ::testing::ElementsAre(4u));
  EXPECT_EQ(watch.stats().checks, 0u);
  for (const char* more : {"why", "how", "whom", "which"}) profiled_on(more);
  EXPECT_EQ(watch.stats().profiled, 3u) << "enough was asked";
  EXPECT_EQ(watch.stats().checks, 1u) << "from now on it is checked";
}

// What is to be profiled anew in any case is not checked before; what is profiled by some methods is not profiled.
TEST_F(QualityWatchTest, ProfilesWholeInsteadOfChecking) {
  options_.profile_new = true;
  profile(1);
  QualityWatch watch(options_, *bench_.engine);
  ask_several(watch, "who", 1);
  work_all(watch);
  EXPECT_EQ(watch.stats().profiled, 1u);
  ask_several(watch, "why", 4);
  work_all(watch);
  EXPECT_EQ(watch.stats().checks, 0u);
  EXPECT_EQ(watch.stats().profiled, 2u);
  for (const Method& method : bench_.cache->methods()) {
    if (method.is_full()) continue;
    EXPECT_EQ(metadata_store().questions_measured(bench_.cache->run_of(context_), method), 4u) << method.text();
  }
}

// Two contexts alike but for how often they are asked: the one asked more is profiled first.
TEST_F(QualityWatchTest, BeginsWhereAProfileIsWorthMost) {
  options_.profile_new = true;
  QualityWatch watch(options_, *bench_.engine);
  const std::vector<Token> rare = context_;
  watch.on_request(ask("who"));
  context_.front() = 7;
  for (int i = 0; i < 3; ++i) watch.on_request(ask("who"));
  std::swap(context_.front(), const_cast<Token&>(rare.front()));
  watch.on_request(ask("who"));  // the last one asked
  const Hash128 often = [&] {
    auto tokens = context_;
    tokens.front() = 7;
    return bench_.cache->run_of(tokens);
  }();
  while (watch.stats().profiled == 0) ASSERT_TRUE(watch.work(kNever));
  EXPECT_FALSE(metadata_store().qualities(often)->empty());
  EXPECT_TRUE(profiled().empty());
  work_all(watch);
  EXPECT_EQ(watch.stats().profiled, 2u);
}

TEST_F(QualityWatchTest, BeginsWithWhatIsUsedMostOfMany) {
  options_.profile_new = true;
  QualityWatch watch(options_, *bench_.engine);
  for (int i = 0; i < 3; ++i) watch.on_request(ask("who"));
  const Token oldest = context_.front();
  for (Token first = 0; first < 70; ++first) {
    context_.front() = first;
    watch.on_request(ask("who"));
  }
  context_.front() = oldest;
  while (watch.stats().profiled == 0) ASSERT_TRUE(watch.work(kNever));
  EXPECT_FALSE(profiled().empty());
}

// Used alike, the one of which less is known.
TEST_F(QualityWatchTest, BeginsWithWhatWasNeverProfiled) {
  options_.profile_new = true;
  QualityWatch watch(options_, *bench_.engine);
  for (const Token others : {8, 9}) {  // by whom it is known how much is known
    const Token mine = std::exchange(context_.front(), others);
    watch.on_request(ask("who"));
    context_.front() = mine;
  }
  watch.on_request(ask("who"));
  work_all(watch);
  ASSERT_EQ(watch.stats().profiled, 3u);
  const Token first = std::exchange(context_.front(), 7);
  for (int i = 0; i < 2; ++i) watch.on_request(ask("who"));
  const Hash128 never = bench_.cache->run_of(context_);
  context_.front() = first;
  watch.on_request(ask("what"));  // the last one asked
  while (watch.stats().profiled == 3) ASSERT_TRUE(watch.work(kNever));
  EXPECT_FALSE(metadata_store().qualities(never)->empty());
  work_all(watch);
  EXPECT_EQ(watch.stats().profiled, 5u);
}

TEST_F(QualityWatchTest, MeasuresThePriorFirstAndOnce) {
  options_.prior = true;
  options_.profile_new = true;
  QualityWatch watch(options_, *bench_.engine);
  ask_several(watch, "why", 1);
  const auto knorm = Method::parse("knorm").value();
  const Hash128 unknown{1, 2};
  EXPECT_FALSE(metadata_store().quality_for(unknown, knorm, 0.5));
  EXPECT_EQ(watch.stats().prior_texts_left, prior_texts().size());
  while (watch.stats().prior_texts < 1) ASSERT_TRUE(watch.work(kNever));
  EXPECT_EQ(watch.stats().prior_texts_left, prior_texts().size() - 1);
  while (watch.stats().profiled == 0) ASSERT_TRUE(watch.work(kNever));
  EXPECT_EQ(watch.stats().prior_texts, prior_texts().size());
  EXPECT_EQ(watch.stats().prior_texts_left, 0u);
  EXPECT_EQ(watch.stats().failed, 0u);
  EXPECT_GT(watch.stats().prior_seconds, 0);
  const auto expected = metadata_store().quality_for(unknown, knorm, 0.5);
  ASSERT_TRUE(expected);
  EXPECT_EQ(expected->source, QualitySource::kPrior);
  EXPECT_EQ(expected->prefixes, prior_texts().size() + 1);
  bench_.cache->drain(bench_.model->executor());
  std::size_t stored = 0;
  bench_.cache->store().for_each_extent([&](const StoreExtent& extent) { stored += extent.run != unknown; });
  EXPECT_EQ(stored, 1u) << "the context, and none of the texts";

  QualityWatch later(options_, *bench_.engine);
  EXPECT_FALSE(later.work(kNever)) << "the metadata store knows the prior";
  EXPECT_EQ(later.stats().prior_texts_left, 0u);
}

// However little time there is between two requests, as long as it is enough for a piece.
TEST_F(QualityWatchTest, ThePriorSurvivesInterruptions) {
  options_.prior = true;
  QualityWatch watch(options_, *bench_.engine);
  int looks = 0;
  for (int patience = 0; watch.stats().prior_texts < 1; ++patience) {
    ASSERT_LT(++looks, 1000);
    watch.work([&, left = patience % 50]() mutable { return left-- <= 0; });
    ask_several(watch, "why", 1);
  }
  EXPECT_GT(watch.stats().interrupted, 10u);
  EXPECT_EQ(watch.stats().failed, 0u);
}

TEST_F(QualityWatchTest, StopsAndBeginsAnew) {
  profile(1);
  options_.check.threshold = -0.1;  // nothing agrees enough
  QualityWatch watch(options_, *bench_.engine);
  ask_several(watch, "why", 4);
  int looks = 0;
  for (int patience = 0; watch.stats().profiled == 0; ++patience) {
    ASSERT_LT(++looks, 1000);
    watch.work([&, left = patience]() mutable { return left-- <= 0; });
  }
  EXPECT_GT(watch.stats().interrupted, 10u);
  EXPECT_EQ(watch.stats().failed, 0u);
  EXPECT_EQ(watch.stats().drifted, 1u);
  EXPECT_FALSE(watch.work(kNever));
}

// It does not ask over and over for room that requests have.
TEST_F(QualityWatchTest, WaitsWhereRequestsFillThePool) {
  options_.profile_new = options_.beside = true;
  QualityWatch watch(options_, *bench_.engine);
  ask_several(watch, "why", 4);
  work_beside_full_pool(watch);
  EXPECT_TRUE(testing::eventually([&] { return watch.work(kNever) && watch.stats().profiled == 1; }));
  EXPECT_EQ(watch.stats().failed, 0u);
}

TEST_F(QualityWatchTest, ThePriorWaitsForRoomThatRequestsHave) {
  options_.prior = options_.beside = true;
  QualityWatch watch(options_, *bench_.engine);
  work_beside_full_pool(watch);
  EXPECT_TRUE(
      testing::eventually([&] { return watch.work(kNever) && watch.stats().prior_texts == prior_texts().size(); }));
  EXPECT_EQ(watch.stats().failed, 0u);
}

TEST_F(QualityWatchTest, KeepsOnlyQuestionsAboutOneLongContext) {
  options_.questions_between = 1;
  QualityWatch watch(options_, *bench_.engine);
  Request request = ask("why");
  request.spans[0].tokens.resize(options_.context_tokens_min - 1);
  watch.on_request(request);  // too short
  request = ask("why");
  request.spans[0].store = false;
  watch.on_request(request);
  request = ask("why");
  request.spans.push_back(request.spans.back());
  watch.on_request(request);
  request = ask(std::string(1000, 'x'));
  watch.on_request(request);
  EXPECT_EQ(watch.stats().questions, 0u);
  request = ask("why");  // of a chat that begins with a few words
  request.spans.insert(request.spans.begin(), {bench_.tokenizer->tokenize("be brief", false), true, "system"});
  watch.on_request(request);
  EXPECT_EQ(watch.stats().questions, 1u);
}

TEST_F(QualityWatchTest, ProfilesTheContextsAskedLast) {
  options_.profile_new = true;
  context_.resize(options_.context_tokens_min);
  const auto profiled_of = [&](Token first, Token end) {
    QualityWatch watch(options_, *bench_.engine);
    for (; first < end; ++first) {
      context_.front() = first;
      watch.on_request(ask("why"));
    }
    work_all(watch);
    return watch.stats().profiled;
  };
  EXPECT_EQ(profiled_of(0, 70), 70u);
  options_.contexts_max = 2;
  EXPECT_EQ(profiled_of(70, 75), 2u);
  options_.contexts_max = 100;
  options_.tokens_max = 3 * context_.size();
  EXPECT_EQ(profiled_of(75, 80), 3u);
}

TEST_F(QualityWatchTest, GivesUpWhatFails) {
  profile(0);
  bench_.cache->drain(bench_.model->executor());  // nobody gives pages back
  QualityWatch watch(options_, *bench_.engine);
  ask_several(watch, "why", 4);
  const Sequence holder = [&] {  // nothing is left in the pool
    Sequence sequence(*bench_.pool);
    while (sequence.append(16)) {
    }
    return sequence;
  }();
  EXPECT_TRUE(watch.work(kNever));
  EXPECT_EQ(watch.stats().failed, 1u);
  EXPECT_FALSE(watch.work(kNever));
}

}  // namespace
}  // namespace shale
