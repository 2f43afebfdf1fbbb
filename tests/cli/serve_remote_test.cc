// `shale serve` over S3 and Redis that fail while it serves: every answer is given, and the same.
#include <gtest/gtest.h>

#include "cli/serve_program.h"
#include "support/eventually.h"
#include "support/s3_server.h"
#include "tiers/redis_server.h"

namespace shale::testing {
namespace {

constexpr int kQuestions = 20;

class ServeRemoteTest : public ServeProgram {
 protected:
  std::uint16_t serve_on(const std::string& tier) {
    return port_of(serve({"--tiers", "memory:?size=64KiB," + tier, "--load-always", "--profile", "never"}));
  }
  std::string question(int number) const { return fmt::format("Chapter {}. {}", number, read(context_)); }
  static std::string text_of(const nlohmann::json& answer) { return answer["choices"].dump(); }

  // What a server without trouble answers, all of which it leaves in the tier.
  void fill(const std::string& tier) {
    const std::uint16_t port = serve_on(tier);
    for (int i = 0; i < kQuestions; ++i) answers_.push_back(text_of(chat(port, question(i))));
    EXPECT_EQ(end(SIGTERM).status, 0);
  }
  // The next of the questions, which this server has not been asked yet: its cached tokens.
  int ask_next(std::uint16_t port) {
    const int number = next_++;
    const auto answer = chat(port, question(number));
    EXPECT_EQ(text_of(answer), answers_[number]) << "question " << number;
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"];
  }
  double metric_of(std::uint16_t port, const std::string& name, const std::string& tier) const {
    return metric(port, fmt::format("{}{{model_name=\"tiny\",tier=\"{}\"}}", name, tier));
  }
  // No request waits until the tier is given up.
  void expect_failures(std::uint16_t port, const std::string& tier) const {
    EXPECT_TRUE(
        eventually_beside_others([&] { return metric_of(port, "shale_tier_breaker_failures_total", tier) > 0; }));
  }
  // Some question is answered from what lies there: none while the breaker is open, and none for which the tier takes
  // longer to say what it has than a prompt of so little work waits.
  void expect_hits_again(std::uint16_t port, const std::string& tier) {
    int cached = 0;
    while (cached < 500 && next_ < kQuestions) {
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      cached = ask_next(port);
    }
    EXPECT_GE(cached, 500) << "it is not used again";
    EXPECT_TRUE(eventually_beside_others([&] { return metric_of(port, "shale_tier_breaker_state", tier) == 0; }));
  }

  std::vector<std::string> answers_;
  int next_ = 0;
};

TEST_F(ServeRemoteTest, TheTierThatSaysWhichWeightsAreRunIsOpenedOnce) {
  std::atomic<int> opened = 0;
  S3Server s3({.fault = [&](const S3Asked& asked, S3Answer right) {
    opened += asked.method == "PUT" && asked.path.ends_with("/shale-s3-1");
    return right;
  }});
  s3.put("kv/shale-s3-1", "");
  serve_on(s3.url("kv"));
  EXPECT_EQ(opened, 1);
  EXPECT_EQ(end(SIGTERM).status, 0);
}

TEST_F(ServeRemoteTest, AnS3ThatAnswers503AndHangsChangesNoAnswer) {
  S3Server s3;
  const std::string tier = s3.url("kv", "&timeout=1500ms");
  fill(tier);
  ASSERT_GT(s3.objects().size(), 10u);
  const std::uint16_t port = serve_on(tier);
  EXPECT_GE(ask_next(port), 500);
  s3.set_fault([](const S3Asked&, const S3Answer&) {
    return S3Answer{503, "<Error><Code>SlowDown</Code><Message>no</Message></Error>"};
  });
  for (int i = 0; i < 3; ++i) (void)ask_next(port);
  s3.set_fault([](const S3Asked&, S3Answer right) {
    right.delay_s = 60;
    return right;
  });
  for (int i = 0; i < 3; ++i) (void)ask_next(port);
  expect_failures(port, "s3");
  s3.set_fault({});
  expect_hits_again(port, "s3");
  EXPECT_EQ(end(SIGTERM).status, 0);
}

// It answers once they are given.
TEST_F(ServeRemoteTest, NoAnswerWaitsForAnS3ThatHangs) {
  std::atomic<bool> hangs = false;
  S3Server s3({.fault = [&hangs](const S3Asked&, S3Answer right) {
    hangs.wait(true);
    return right;
  }});
  const std::string tier = s3.url("kv", "&timeout=600s");
  fill(tier);
  const std::uint16_t port = serve_on(tier);
  hangs = true;
  for (int i = 0; i < 3; ++i) (void)ask_next(port);
  hangs = false;
  hangs.notify_all();
  EXPECT_EQ(end(SIGTERM).status, 0);
}

TEST_F(ServeRemoteTest, ARedisThatIsKilledAndComesBackChangesNoAnswer) {
  const auto redis = RedisServer::start();
  if (!redis && redis.error().code == ErrorCode::kUnsupported) GTEST_SKIP() << redis.error().message;
  ASSERT_TRUE(redis) << redis.error().message;
  const std::string tier = fmt::format("redis://127.0.0.1:{}?timeout=300ms&deadline=400ms", (*redis)->port());
  fill(tier);
  const std::uint16_t port = serve_on(tier);
  EXPECT_GE(ask_next(port), 500);
  (*redis)->signal(SIGSTOP);
  for (int i = 0; i < 3; ++i) (void)ask_next(port);
  (*redis)->signal(SIGCONT);
  (*redis)->kill();
  for (int i = 0; i < 3; ++i) (void)ask_next(port);
  expect_failures(port, "redis");
  ASSERT_TRUE((*redis)->restart());
  EXPECT_LT(ask_next(port), 100) << "it came back empty; the pool has how prompts begin";
  const int filled = next_;
  while (next_ < kQuestions) (void)ask_next(port);
  EXPECT_EQ(end(SIGTERM).status, 0);
  // What was asked since then lies there for the next server.
  next_ = filled;
  const std::uint16_t next_port = serve_on(tier);
  expect_hits_again(next_port, "redis");
  EXPECT_EQ(end(SIGTERM).status, 0);
}

}  // namespace
}  // namespace shale::testing
