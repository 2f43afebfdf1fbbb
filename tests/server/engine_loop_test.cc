#include "server/engine_loop.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "engine/engine_fixture.h"
#include "support/eventually.h"

namespace shale {
namespace {

using namespace std::chrono_literals;
using testing::EngineTest;

class EngineLoopTest : public EngineTest {
 protected:
  explicit EngineLoopTest(const testing::TinyModel& tiny = {}) : EngineTest(tiny) {}

  struct Heard {
    std::string streamed;
    std::optional<Response> response;
    std::optional<Error> refused;
  };

  static Heard hear(Answer answer) {
    Heard heard;
    while (!heard.response && !heard.refused) {
      auto part = answer.next(1000ms);
      if (!part) continue;
      heard.refused = part->refused;
      heard.streamed += part->text;
      heard.response = std::move(part->response);
    }
    return heard;
  }

  // Takes seconds.
  static Request endless(std::uint32_t document) {
    Request request = ask(document, 40, 1);
    request.max_tokens = 1500;
    return request;
  }

  void start(const EngineLoopOptions& options = {}) { loop_ = std::make_unique<EngineLoop>(options, *engine_, clock_); }

  // Requests that are refused when they are taken: between two of them lies a turn of the loop.
  void take_turns(int turns) {
    for (int turn = 0; turn <= turns; ++turn) EXPECT_TRUE(hear(loop_->submit({Request{}}, {}).value()).refused);
  }

  // Every page can be had again once the loop has ended.
  void expect_pages_back() {
    loop_->stop(0ms);
    drain();
    EXPECT_EQ(pool_->blocks_free() + cache_->blocks_evictable(), pool_->blocks_total());
    EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
    EXPECT_TRUE(pool_->check_integrity());
  }

  VirtualClock virtual_clock_;
  std::unique_ptr<EngineLoop> loop_;
};

// Whose answers take so long that something happens meanwhile.
class BusyEngineLoopTest : public EngineLoopTest {
 protected:
  BusyEngineLoopTest() : EngineLoopTest(testing::slow_model()) {}

  // As many as the loop takes: one more is refused.
  std::vector<Answer> fill(std::uint32_t requests) {
    std::vector<Answer> answers;
    for (std::uint32_t i = 0; i < requests; ++i) answers.push_back(loop_->submit({endless(i)}, {}).value());
    const auto refused = loop_->submit({ask(9, 40, 1)}, {});
    EXPECT_TRUE(!refused && refused.error().code == ErrorCode::kBusy);
    EXPECT_EQ(loop_->metrics().requests.overloaded, 1u);
    return answers;
  }
};

TEST_F(EngineLoopTest, AnswersAsTheEngineDoesAlone) {
  const Response alone = engine_->run(ask(1, 60, 1));
  start();
  for (const bool streamed : {true, false}) {
    const Heard heard = hear(loop_->submit({ask(1, 60, 1)}, {.streamed = streamed}).value());
    EXPECT_EQ(heard.response->tokens, alone.tokens);
    EXPECT_EQ(heard.response->text, alone.text);
    EXPECT_EQ(heard.streamed, streamed ? alone.text : "");
  }
  EXPECT_EQ(loop_->metrics().requests.finished[static_cast<std::size_t>(alone.stop)], 2u);
  expect_pages_back();
}

TEST_F(EngineLoopTest, GivesEachThreadItsOwnAnswer) {
  constexpr std::uint32_t kThreads = 6, kEach = 3;
  std::vector<std::string> wanted;
  for (std::uint32_t i = 0; i < kThreads; ++i) wanted.push_back(engine_->run(ask(i, 40, i)).text);
  start();
  std::vector<std::thread> threads;
  std::vector<int> right(kThreads);
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (std::uint32_t j = 0; j < kEach; ++j) {
        right[i] += hear(loop_->submit({ask(i, 40, i)}, {.streamed = true}).value()).streamed == wanted[i];
        loop_->metrics();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(kThreads, kEach));
  expect_pages_back();
}

TEST_F(BusyEngineLoopTest, ADroppedAnswerIsCancelledAndItsPagesComeBack) {
  start();
  {
    Answer answer = loop_->submit({endless(1)}, {.streamed = true}).value();
    ASSERT_TRUE(answer.next(10s));  // it is taken
    ASSERT_TRUE(answer.next(10s));
    Answer unread = loop_->submit({endless(2)}, {}).value();
  }
  const auto cancelled = [&] { return loop_->metrics().requests.finished[static_cast<int>(StopReason::kCancelled)]; };
  for (int i = 0; i < 2000 && cancelled() < 2; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(cancelled(), 2u);
  EXPECT_EQ(loop_->metrics().running, 0u);
  expect_pages_back();
}

TEST_F(BusyEngineLoopTest, APlaceIsHeldUntilTheEngineIsDone) {
  start();
  std::promise<std::uint64_t> cancelled;
  std::shared_ptr<const void> place(nullptr, [&](const void*) {
    cancelled.set_value(loop_->metrics().requests.finished[static_cast<int>(StopReason::kCancelled)]);
  });
  {
    Answer answer = loop_->submit({endless(1)}, {.streamed = true}, {std::move(place)}).value();
    ASSERT_TRUE(answer.next(10s));  // it is taken
    ASSERT_TRUE(answer.next(10s));
  }
  EXPECT_EQ(cancelled.get_future().get(), 1u);
}

TEST_F(BusyEngineLoopTest, WhoLeavesWhileItWaitsHasWaitedAndWasNotComputed) {
  VirtualClock& clock = virtual_clock_;
  engine_ = std::make_unique<Engine>(engine_->options(), *model_, tokenizer_, *cache_, clock);
  loop_ = std::make_unique<EngineLoop>(EngineLoopOptions{}, *engine_, clock);
  std::vector<Answer> running;
  for (std::uint32_t i = 0; i < 4; ++i) running.push_back(loop_->submit({endless(i)}, {}).value());
  {
    Answer waiting = loop_->submit({endless(9)}, {}).value();
    ASSERT_TRUE(waiting.next(10s));  // the engine has it
    clock.advance(100);
  }
  const auto ended = [&] { return loop_->metrics().requests.total_seconds.count(); };
  ASSERT_TRUE(testing::eventually([&] { return ended() > 0; }));
  const RequestMetrics requests = loop_->metrics().requests;
  EXPECT_EQ(requests.finished[static_cast<int>(StopReason::kCancelled)], 1u);
  EXPECT_GE(requests.queue_seconds.sum(), 100);
  EXPECT_EQ(requests.prompt_lengths.count(), 1u);
  EXPECT_EQ(requests.computed_lengths.count(), 0u);
  EXPECT_EQ(requests.prompt_tokens, 0u);
}

// They are in no queue of the store yet.
TEST_F(EngineLoopTest, SpansThatAreToBeRepeatedAreLeftToSave) {
  cache_options_.planner = "fixed:global:kvzip@0.5";
  open();
  VirtualClock& clock = virtual_clock_;
  loop_ = std::make_unique<EngineLoop>(EngineLoopOptions{}, *engine_, clock);
  bool told = false;
  const auto look = [&] {  // on the engine's thread
    clock.advance(1);      // metrics are told of after every turn
    if (engine_->spans_to_repeat().empty()) return;
    told = told || loop_->metrics().store.saves_left > 0;
  };
  Answer beside = loop_->submit({generate(1, 24, 300)}, {.streamed = true, .on_news = look}).value();
  hear(loop_->submit({ask(7, 512, 1)}, {}).value());
  hear(std::move(beside));
  EXPECT_TRUE(told);
  loop_.reset();
}

// The engine's thread is kept where it tells the first client, as by a step.
TEST_F(EngineLoopTest, CountsTheWaitForTheStepThatRuns) {
  VirtualClock clock;
  loop_ = std::make_unique<EngineLoop>(EngineLoopOptions{}, *engine_, clock);
  std::promise<void> kept, let_go;
  std::once_flag once;
  const auto keep = [&] {
    std::call_once(once, [&] {
      kept.set_value();
      let_go.get_future().wait();
    });
  };
  Answer first = loop_->submit({ask(1, 40, 1)}, {.on_news = keep}).value();
  kept.get_future().wait();
  Answer second = loop_->submit({ask(2, 40, 1)}, {}).value();
  constexpr double kStepS = 1e6;  // beside which the engine's own seconds are nothing
  clock.advance(kStepS);
  let_go.set_value();
  hear(std::move(first));
  const Response response = *hear(std::move(second)).response;
  EXPECT_GE(response.queue_seconds, kStepS);
  EXPECT_GE(response.ttft_seconds, kStepS);
  EXPECT_GE(loop_->metrics().requests.total_seconds.sum(), 2 * kStepS);
  loop_.reset();  // before its clock
}

TEST_F(BusyEngineLoopTest, AReaderThatIsTooSlowIsCancelled) {
  start({.text_bytes_max = 2});
  Answer answer = loop_->submit({endless(1)}, {.streamed = true}).value();
  for (int i = 0; i < 2000 && loop_->metrics().requests.total_seconds.count() == 0; ++i) {
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_EQ(hear(std::move(answer)).response->stop, StopReason::kCancelled);
}

TEST_F(EngineLoopTest, RefusesWhatTheEngineRefusesAndGoesOn) {
  start({.queue_max = 0});
  for (int i = 0; i < 10; ++i) {
    const Heard heard = hear(loop_->submit({Request{}}, {.streamed = true}).value());
    ASSERT_TRUE(heard.refused);
    EXPECT_EQ(heard.refused->code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(hear(loop_->submit({ask(1, 40, 1)}, {.streamed = true}).value()).response->error, std::nullopt);
}

TEST_F(EngineLoopTest, WhatIsRefusedIsNoQuestionToMeasureBy) {
  start({.watch = QualityWatchOptions{.prior = false, .profile_new = false}});
  Request request = ask(1, 200, 1);
  request.spans.back().tokens.back() = 1'000'000;
  EXPECT_TRUE(hear(loop_->submit({std::move(request)}, {}).value()).refused);
  EXPECT_TRUE(hear(loop_->submit({ask(1, 200, 2)}, {}).value()).response);
  loop_->stop(1000ms);
  EXPECT_EQ(loop_->metrics().watch.questions, 1u);
}

TEST_F(BusyEngineLoopTest, TakesAsManyAsAreDecodedTogetherAndMayWait) {
  start({.queue_max = 1});
  auto answers = fill(5);
  EXPECT_GE(loop_->retry_after_s(), 1u);
  answers.clear();
  for (int i = 0; i < 2000 && !loop_->submit({ask(9, 40, 1)}, {}); ++i) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(loop_->submit({ask(9, 40, 1)}, {}));
}

TEST_F(BusyEngineLoopTest, TakesNoMoreThanTheEngineLetsWait) {
  engine_ = std::make_unique<Engine>(EngineOptions{.sequences_max = 1, .waiting_max = 2, .chunk_tokens = 128}, *model_,
                                     tokenizer_, *cache_, slow_);
  start({.queue_max = 4});
  const auto answers = fill(2);
}

TEST_F(BusyEngineLoopTest, KeepsProfilesWhenIdleAndAnswersFirst) {
  const Response alone = engine_->run(ask(1, 200, 1));
  start({.watch = QualityWatchOptions{.prior = false, .profile_new = true, .questions_between = 2}, .quiet_s = 0});
  const auto watched = [&] { return loop_->metrics().watch; };
  const auto idle_until = [&](const auto& reached) {
    for (int i = 0; i < 24000 && !reached(); ++i) std::this_thread::sleep_for(5ms);
    ASSERT_TRUE(reached());
  };
  hear(loop_->submit({ask(1, 200, 1)}, {.streamed = true}).value());
  hear(loop_->submit({ask(1, 200, 2)}, {.streamed = true}).value());
  idle_until([&] { return watched().profile_seconds > 0; });
  EXPECT_EQ(hear(loop_->submit({ask(1, 200, 1)}, {.streamed = true}).value()).response->tokens, alone.tokens);
  idle_until([&] { return watched().profiled == 1; });
  EXPECT_EQ(watched().failed, 0u);
  EXPECT_EQ(watched().questions, 2u);
  loop_->stop(0ms);
  const Hash128 run = cache_->run_of(ask(1, 200, 1).spans[0].tokens);
  EXPECT_FALSE(cache_->metadata_store()->qualities(run)->empty());
  expect_pages_back();
}

TEST_F(EngineLoopTest, MeasuresNoMoreThanItsShareWhileRequestsCome) {
  VirtualClock& clock = virtual_clock_;
  const QualityWatchOptions watch{.prior = false, .keep_questions = false};
  loop_ = std::make_unique<EngineLoop>(EngineLoopOptions{.watch = watch}, *engine_, clock);
  const auto profile_seconds = [&] { return loop_->metrics().watch.profile_seconds; };
  hear(loop_->submit({ask(1, 200, 1)}, {}).value());
  clock.advance(1);
  ASSERT_TRUE(testing::eventually([&] {
    clock.advance(0.01);  // pays for the beginning
    return profile_seconds() > 0;
  }));
  const double first_piece_s = profile_seconds();
  for (int i = 0; i < 5; ++i) {
    hear(loop_->submit({ask(1, 200, 1)}, {}).value());
    take_turns(20);  // in which whatever is due would be done
  }
  EXPECT_EQ(profile_seconds(), first_piece_s);
  clock.advance(EngineLoopOptions{}.quiet_s + 1);
  EXPECT_TRUE(testing::eventually([&] { return loop_->metrics().watch.profiled == 1; }));
}

TEST_F(BusyEngineLoopTest, KeepsProfilesWhileATierTakesNothing) {
  const auto path = folder_.path() / "faults";
  faults_ = FaultFile::open(path).value();
  open();
  std::ofstream(path) << "disk hang\n";
  start({.watch = QualityWatchOptions{.prior = false, .profile_new = true, .questions_between = 2}, .quiet_s = 0});
  hear(loop_->submit({ask(1, 200, 1)}, {.streamed = true}).value());
  hear(loop_->submit({ask(1, 200, 2)}, {.streamed = true}).value());
  EXPECT_TRUE(testing::eventually([&] { return loop_->metrics().watch.profiled == 1; }, 12000));
  EXPECT_FALSE(cache_->store().idle()) << "it is still being written there";
  std::filesystem::remove(path);
  expect_pages_back();
}

TEST_F(BusyEngineLoopTest, StopsGentlyOrAtOnce) {
  start();
  Answer answer = loop_->submit({ask(1, 40, 1)}, {.streamed = true}).value();
  loop_->stop(60s);
  const Heard heard = hear(std::move(answer));
  EXPECT_THAT(heard.response->stop, ::testing::AnyOf(StopReason::kLength, StopReason::kEndOfTurn));
  EXPECT_EQ(loop_->submit({ask(1, 40, 1)}, {.streamed = true}).error().code, ErrorCode::kCancelled);

  start();
  Answer cut = loop_->submit({endless(2)}, {.streamed = true}).value();
  loop_->stop(0ms);
  EXPECT_EQ(hear(std::move(cut)).response->stop, StopReason::kCancelled);
  expect_pages_back();
}

}  // namespace
}  // namespace shale
