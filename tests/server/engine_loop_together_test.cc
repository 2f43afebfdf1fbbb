// Requests that are submitted together.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/engine_fixture.h"
#include "server/engine_loop.h"
#include "support/eventually.h"

namespace shale {
namespace {

using namespace std::chrono_literals;
using testing::EngineTest;

class TogetherTest : public EngineTest {
 protected:
  explicit TogetherTest(const testing::TinyModel& tiny = {}) : EngineTest(tiny) {}

  void start(std::uint32_t queue_max = 64) {
    loop_ = std::make_unique<EngineLoop>(EngineLoopOptions{.queue_max = queue_max}, *engine_, clock_);
  }
  // The part that ends an answer of one request.
  static Channel::Part ended(Answer answer) {
    while (true) {
      auto part = answer.next(1000ms);
      if (part && (part->response || part->refused)) return std::move(*part);
    }
  }
  // Takes seconds.
  static Request endless(std::uint32_t document) {
    Request request = ask(document, 40, 1);
    request.max_tokens = 1500;
    return request;
  }
  std::uint64_t cancelled() const {
    return loop_->metrics().requests.finished[static_cast<int>(StopReason::kCancelled)];
  }
  // Every page can be had again once the loop has ended.
  void expect_pages_back() {
    loop_->stop(0ms);
    drain();
    EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
  }

  std::unique_ptr<EngineLoop> loop_;
};

class BusyTogetherTest : public TogetherTest {
 protected:
  BusyTogetherTest() : TogetherTest(testing::slow_model()) {}
};

TEST_F(TogetherTest, AllAreAnswered) {
  std::vector<Request> requests;
  std::vector<std::string> wanted, said(3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    wanted.push_back(engine_->run(ask(i, 40, i)).text);
    requests.push_back(ask(i, 40, i));
  }
  start();
  Answer answer = loop_->submit(std::move(requests), {.streamed = true}).value();
  std::size_t over = 0;
  while (over < 3) {
    const auto part = answer.next(1000ms);
    if (!part) continue;
    said[part->choice] += part->text;
    if (!part->response) continue;
    EXPECT_EQ(part->response->text, wanted[part->choice]);
    ++over;
  }
  EXPECT_EQ(said, wanted);
  EXPECT_FALSE(answer.next(0ms)) << "all have ended";
  expect_pages_back();
}

// Whoever refuses: what was taken before is given up, and so are the places of all, before the client hears of it.
TEST_F(TogetherTest, OneThatIsRefusedIsForAll) {
  start(0);
  for (int i = 0; i < 10; ++i) {
    std::vector<Request> requests;
    requests.push_back(ask(1, 40, 1));
    requests.push_back(ask(2, 40, 1));
    requests.emplace_back();
    std::vector<std::shared_ptr<const void>> places;
    std::vector<std::weak_ptr<const void>> held;
    for (int place = 0; place < 3; ++place) held.push_back(places.emplace_back(std::make_shared<int>()));
    const Channel::Part heard = ended(loop_->submit(std::move(requests), {}, std::move(places)).value());
    ASSERT_TRUE(heard.refused);
    EXPECT_EQ(heard.refused->code, ErrorCode::kInvalidArgument);
    for (const auto& place : held) EXPECT_TRUE(place.expired());
  }
  EXPECT_EQ(ended(loop_->submit({ask(1, 40, 1)}, {.streamed = true}).value()).response->error, std::nullopt);
  const RequestMetrics requests = loop_->metrics().requests;
  EXPECT_EQ(requests.refused, 30u) << "all of them, not those left alone";
  EXPECT_EQ(requests.finished[static_cast<int>(StopReason::kCancelled)], 0u) << "none had begun";
  EXPECT_EQ(requests.total_seconds.count(), 1u);
  expect_pages_back();
}

TEST_F(BusyTogetherTest, AllArePlacedOrNone) {
  start(1);
  std::vector<Answer> answers;
  for (std::uint32_t i = 0; i < 4; ++i) answers.push_back(loop_->submit({endless(i)}, {}).value());
  const auto two = [&] { return std::vector<Request>{ask(8, 40, 1), ask(9, 40, 1)}; };
  const auto refused = loop_->submit(two(), {});
  EXPECT_TRUE(!refused && refused.error().code == ErrorCode::kBusy);
  EXPECT_EQ(loop_->metrics().requests.overloaded, 2u);
  EXPECT_TRUE(loop_->submit({ask(9, 40, 1)}, {})) << "the place that is left";
}

TEST_F(BusyTogetherTest, ADroppedAnswerCancelsAll) {
  start();
  {
    std::vector<Request> requests;
    for (std::uint32_t i = 0; i < 3; ++i) requests.push_back(endless(i));
    Answer answer = loop_->submit(std::move(requests), {.streamed = true}).value();
    ASSERT_TRUE(answer.next(10s));  // they are taken
    ASSERT_TRUE(answer.next(10s));
  }
  EXPECT_TRUE(testing::eventually([&] { return cancelled() == 3; }));
  expect_pages_back();
}

}  // namespace
}  // namespace shale
