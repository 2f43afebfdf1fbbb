// One connection to a Redis server, step by step.
#include "tiers/redis/redis_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <functional>
#include <string>
#include <utility>

#include "support/eventually.h"
#include "tiers/blobs.h"
#include "tiers/redis/redis_client.h"
#include "tiers/redis_server.h"
#include "tiers/scripted_redis.h"

namespace shale::testing {
namespace {

class RedisLinkTest : public ::testing::Test {
 protected:
  std::unique_ptr<RedisLink> link_to(std::uint16_t port) {
    const auto on_reply = [this](std::unique_ptr<RedisCall> call, Result<RespValue> reply) {
      ++replies_;
      lost_at_reply_ = lost_;
      call->done(std::move(reply));
    };
    return std::make_unique<RedisLink>(RedisNode{"127.0.0.1", port}, access_, RedisLink::Touch::kLooks, clock_,
                                       on_reply, [this] { ++lost_; });
  }
  static std::unique_ptr<RedisCall> command(std::initializer_list<std::string_view> arguments, double deadline_s) {
    auto call = redis_call(std::span(arguments.begin(), arguments.size()), [](const auto&) {});
    call->deadline_s = deadline_s;
    return call;
  }
  static void step(RedisLink& link) {
    pollfd fd{link.fd(), static_cast<short>(link.wants_write() ? POLLIN | POLLOUT : POLLIN), 0};
    (void)poll(&fd, 1, 5);
    link.step();
  }

  VirtualClock clock_;
  RedisAccess access_{.user = {}, .password = {}, .timeout_s = 1e9, .deadline_s = 1e9};
  unsigned replies_ = 0, lost_ = 0, lost_at_reply_ = 0;
};

// TLS has made a record of its beginning, which would go out in place of what comes next.
TEST_F(RedisLinkTest, OverTlsACommandThatIsGivenUpBeforeAByteOfItWentOutEndsTheConnection) {
  auto server = RedisServer::start({.tls = true});
  if (code_of(server) == ErrorCode::kUnsupported) GTEST_SKIP() << server.error().message;
  ASSERT_TRUE(server) << server.error().message;
  access_.tls = TlsContext::make((*server)->ca()).value();
  const auto link = link_to((*server)->port());
  link->send(command({"PING"}, 1e9));
  ASSERT_TRUE(eventually([&] { return step(*link), replies_ == 1; }));
  (*server)->signal(SIGSTOP);
  // What is behind has less time, so that of all commands only the one that does not go out is late.
  const std::string value(4000, 'x');
  int last = 0;
  for (; last < 20'000 && !link->wants_write(); ++last) {
    link->send(command({"SET", "first" + std::to_string(last), value}, 100'000 - last));
    link->step();
  }
  ASSERT_TRUE(link->wants_write()) << "the network takes what no server reads";
  link->send(command({"SET", "next", std::string(4000, 'y')}, 1e9));
  clock_.sleep_until_s(100'000 - (last - 1));
  link->step();
  EXPECT_EQ(lost_, 1u);
  (*server)->signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return step(*link), replies_ == static_cast<unsigned>(last) + 2; }));
  EXPECT_NE((*server)->ask("get next").find("yyyy"), std::string::npos);
}

// Whoever waits for the last answer may end what the loss is told to.
TEST_F(RedisLinkTest, ALossIsToldBeforeItsCallsAreAnswered) {
  const ScriptedRedis silent([](const std::string&) { return ""; });
  access_.timeout_s = 1;
  const auto link = link_to(silent.port());
  link->send(command({"PING"}, 1e9));
  clock_.sleep_until_s(clock_.now_s() + 2);
  step(*link);
  EXPECT_EQ(replies_, 2u) << "the greeting's, too";
  EXPECT_EQ(lost_at_reply_, 1u);
}

// Whether nothing comes, or something and never the rest of it.
TEST_F(RedisLinkTest, WhatHasReachedItsDeadlineIsGivenUpThen) {
  for (const std::string answer : {"", "$100\r\nthe beginning"}) {
    const ScriptedRedis server([&](const std::string&) { return answer; });
    const auto link = link_to(server.port());
    std::optional<Error> error;
    const double deadline_s = clock_.now_s() + 10;
    auto call = command({"GET", "key"}, deadline_s);
    call->done = [&](const Result<RespValue>& reply) { error = reply.error(); };
    link->send(std::move(call));
    EXPECT_TRUE(eventually([&] { return step(*link), server.commands().size() == 2; })) << "the greeting, too";
    EXPECT_EQ(link->overdue_s(), deadline_s);
    clock_.advance(9.9);
    step(*link);
    EXPECT_FALSE(error);
    clock_.advance(0.1);
    step(*link);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, ErrorCode::kIo);
    EXPECT_THAT(error->message, ::testing::HasSubstr("was not done within"));
  }
}

// Replies that a server has made and nobody takes count against its memory. How long they are is known of the first.
TEST_F(RedisLinkTest, NoMoreThanEightMebibytesOfRepliesAreAskedForAhead) {
  constexpr std::size_t kReplyBytes = 3 << 20;
  std::atomic<int> blobs = 0;
  const ScriptedRedis server([&](const std::string& command) -> std::string {
    if (!command.starts_with("GET")) return "+OK\r\n";
    if (blobs++ > 0) return "";  // not yet
    return fmt::format("${}\r\n{}\r\n", kReplyBytes, std::string(kReplyBytes, 'x'));
  });
  const auto link = link_to(server.port());
  std::vector<std::byte> into(kReplyBytes);
  const auto ask = [&] {
    auto call = command({"GET", "key"}, 1e9);
    call->place = [&](std::size_t bytes) { return std::span(into).first(bytes); };
    link->send(std::move(call));
  };
  ask();
  EXPECT_TRUE(eventually([&] { return step(*link), replies_ == 1; }));
  for (int i = 0; i < 8; ++i) ask();
  EXPECT_TRUE(eventually([&] { return step(*link), blobs == 1 + 2; }));
  EXPECT_FALSE(link->wants_write()) << "three would be nine";
}

TEST_F(RedisLinkTest, WhileTlsWaitsForTheServerThereIsNothingToWrite) {
  const ScriptedRedis silent([](const std::string&) { return ""; });
  access_.tls = TlsContext::make("").value();
  const auto link = link_to(silent.port());
  link->send(command({"PING"}, 1e9));
  EXPECT_TRUE(link->wants_write());
  EXPECT_TRUE(eventually([&] { return step(*link), !link->wants_write(); })) << "or it would be asked without end";
}

// The workers' calls are cancelled when they end. That of writes may send to the other until then.
TEST(RedisClientTest, TheWorkerOfQuestionsEndsLast) {
  const ScriptedRedis silent([](const std::string&) { return ""; });
  const RealClock clock;
  std::vector<std::string> ended;
  {
    RedisClient client({"127.0.0.1", silent.port()}, {.user = {}, .password = {}, .timeout_s = 1e9}, clock);
    for (const auto& [lane, name] :
         {std::pair(RedisClient::Lane::kQuestions, "questions"), std::pair(RedisClient::Lane::kWrites, "writes")}) {
      client.send(lane,
                  redis_call(std::array<std::string_view, 2>{"GET", "key"}, [&ended, name = name](const auto& reply) {
                    EXPECT_EQ(code_of(reply), ErrorCode::kCancelled);
                    ended.emplace_back(name);
                  }));
    }
  }
  EXPECT_THAT(ended, ::testing::ElementsAre("writes", "questions"));
}

// It is shown on a terminal: when it answers, when it refuses who connects, and when it lets wait and then says nothing
// that makes sense.
TEST(RedisClientTest, WhatTheServerSaysIsToldInOneShortLine) {
  const RealClock clock;
  const std::string said = " \x1b[2J" + std::string(50'000, 'x') + "\r\n";
  const auto error_of = [&](const std::string& password, const ScriptedRedis::Answer& answer) {
    const ScriptedRedis server(answer);
    RedisClient client({"127.0.0.1", server.port()}, {.user = {}, .password = password}, clock);
    const RedisClient::Command get{"GET", "key"};
    return client.ask({&get, 1}).front().error().message;
  };
  const auto to_get = [](const std::function<std::string()>& answer) {
    return [=](const std::string& command) { return command.starts_with("GET") ? answer() : "+OK\r\n"; };
  };
  bool loading = false;
  const std::pair<std::string, std::string> errors[] = {
      {"says: ERR ?[2Jxxx", error_of("", to_get([&] { return "-ERR" + said; }))},
      {"refuses: ERR ?[2Jxxx", error_of("secret", [&](const std::string&) { return "-ERR" + said; })},
      {"a server said: LOADING ?[2Jxxx",
       error_of("", to_get([&] { return std::exchange(loading, true) ? "no reply\r\n" : "-LOADING" + said; }))}};
  for (const auto& [expected, error] : errors) {
    EXPECT_THAT(error, ::testing::HasSubstr(expected));
    EXPECT_LT(error.size(), 1000u);
  }
}

// Else what a killed writer left would be as young as the last look at it.
TEST_F(RedisLinkTest, WhoOnlyLooksAsksTheServerNotToCountItAndGoesOnWhereItCannot) {
  access_.password = "secret";
  for (const bool refused : {false, true}) {
    const ScriptedRedis server([refused](const std::string& command) {
      return refused && command.starts_with("CLIENT") ? "-ERR unknown subcommand 'NO-TOUCH'\r\n" : "+OK\r\n";
    });
    const auto link = link_to(server.port());
    replies_ = 0;
    link->send(command({"HKEYS", "key"}, 1e9));
    EXPECT_TRUE(eventually([&] { return step(*link), replies_ == 1; }));
    EXPECT_THAT(server.commands(), ::testing::ElementsAre("AUTH secret", "CLIENT NO-TOUCH ON", "HKEYS key"));
  }
}

}  // namespace
}  // namespace shale::testing
