// Requests by HTTP, whoever answers them or does not.
#include "io/http_client.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>

#include "support/child_process.h"
#include "tiers/scripted_redis.h"

namespace shale::testing {
namespace {

// Nobody listens, so that what is in flight ends at once and together; what waits behind it has not begun then.
TEST(HttpClientTest, WhatWaitsWhenItEndsIsAskedForAndTold) {
  std::atomic<int> told = 0;
  const std::string url = "http://127.0.0.1:" + std::to_string(free_port());
  {
    HttpClient client({.quick_at_once = 1, .bulk_at_once = 2});
    for (int i = 0; i < 50; ++i) {
      HttpRequest request;
      request.url = url;
      request.done = [&told](HttpAnswer&& answer) { told += !answer.trouble.empty(); };
      client.send(std::array{HttpLane::kQuick, HttpLane::kReads, HttpLane::kWrites}[i % 3], std::move(request));
    }
  }
  EXPECT_EQ(told, 50);
}

// Whoever listens takes what comes, and says nothing.
TEST(HttpClientTest, AnUploadThatStandsStillIsGivenUpLongBeforeItsTimeOut) {
  const ScriptedRedis silent([](const std::string&) { return ""; });
  for (const bool ending : {false, true}) {
    std::promise<std::string> trouble;
    auto client = std::make_unique<HttpClient>(HttpClient::Options());
    HttpRequest request{.method = "PUT", .url = fmt::format("http://127.0.0.1:{}/x", silent.port())};
    request.timeout_s = 3600;
    request.stall_s = 0.5;
    request.done = [&trouble](HttpAnswer&& answer) { trouble.set_value(answer.trouble); };
    client->send(HttpLane::kWrites, std::move(request));
    if (ending) client.reset();
    EXPECT_NE(trouble.get_future().get(), "");
  }
}

}  // namespace
}  // namespace shale::testing
