// Requests by HTTP, whoever answers them or does not.
#include "io/http_client.h"

#include <gtest/gtest.h>

#include <atomic>

#include "support/child_process.h"

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

}  // namespace
}  // namespace shale::testing
