// Requests that come while the loop measures quality.
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <thread>
#include <utility>

#include "engine/engine_fixture.h"
#include "metadata/sqlite.h"
#include "server/engine_loop.h"

namespace shale {
namespace {

using namespace std::chrono_literals;
using testing::EngineTest;

// Looks, on the thread of whoever asks for the time, for the moment to do something once.
class WatchfulClock final : public Clock {
 public:
  double now_s() const override {
    if (look) look();
    return real_.now_s();
  }
  void sleep_until_s(double time_s) const override { real_.sleep_until_s(time_s); }

  std::function<void()> look;

 private:
  RealClock real_;
};

// A piece ends with recording what it measured; then the loop takes in who has come, before the next one.
TEST_F(EngineTest, WhoComesBetweenTwoPiecesOfMeasuringHasTheirPages) {
  ASSERT_FALSE(engine_->run(ask(2, 480, 1)).error);
  drain();
  cache_options_.load_always = true;  // a slow disk is waited for
  open(40);  // for its 30 blocks and its answer, not beside the 12 of the context that is measured
  ASSERT_FALSE(engine_->run(ask(1, 200, 1)).error);
  drain();

  std::unique_ptr<EngineLoop> loop;
  std::promise<Answer> came;
  const Hash128 measured = cache_->run_of(ask(1, 200, 1).spans[0].tokens);
  bool waits = true;
  WatchfulClock clock;
  clock.look = [&] {
    if (!waits || cache_->metadata_store()->qualities(measured)->empty()) return;
    waits = false;
    came.set_value(loop->submit({ask(2, 480, 2)}, {}).value());
  };
  EngineLoopOptions options;
  options.watch = QualityWatchOptions{.prior = false, .profile_new = true, .questions_between = 2};
  loop = std::make_unique<EngineLoop>(options, *engine_, clock);
  for (std::uint32_t question = 1; question <= 2; ++question) {
    Answer asked = loop->submit({ask(1, 200, question)}, {}).value();
    for (bool over = false; !over;) {
      const auto part = asked.next(1000ms);
      over = part && part->response;
    }
  }
  Answer answer = came.get_future().get();
  std::optional<Channel::Part> part;
  while (!part || !part->response) part = answer.next(1000ms);
  EXPECT_FALSE(part->response->error);
  EXPECT_EQ(part->response->cached.total(), 480u) << "loaded, where they were free";
  loop->stop(0ms);
}

// As servers do on one folder that end together.
TEST_F(EngineTest, WhatALoopHasLearnedIsNotedThoughAnotherProcessWrites) {
  EngineLoopOptions options;
  options.watch = QualityWatchOptions{.prior = false, .profile_new = false};
  EngineLoop loop(options, *engine_, clock_);
  Answer answer = loop.submit({ask(1, 200, 1)}, {}).value();
  std::optional<Channel::Part> part;
  while (!part || !part->response) part = answer.next(1000ms);
  loop.stop(0ms);
  const auto other = SqlDatabase::open(folder_.path() / "catalogue.sqlite", 1000).value();
  ASSERT_TRUE(other.execute("BEGIN IMMEDIATE"));
  std::thread ends([&] {
    std::this_thread::sleep_for(100ms);
    EXPECT_TRUE(other.execute("COMMIT"));
  });
  cache_->record_learned();
  ends.join();
  EXPECT_FALSE(cache_->metadata_store()->prefixes()->empty());
}

}  // namespace
}  // namespace shale
