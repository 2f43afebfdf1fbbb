// A tier over a bucket in this process that errs on policy.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>

#include "support/s3_server.h"
#include "tiers/tiers.h"

namespace shale::testing {

class S3Test : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Tier>> try_open(const S3Server& server, std::string_view options = "&timeout=2s") const {
    return make_tier(server.url("some/prefix", options), clock_);
  }
  std::unique_ptr<Tier> open(const S3Server& server, std::string_view options = "&timeout=2s") const {
    auto tier = try_open(server, options);
    EXPECT_TRUE(tier) << tier.error().message;
    return std::move(*tier);
  }
  std::unique_ptr<Tier> open_late(const S3Server& server, std::string_view options = "&timeout=2s") const {
    auto specs = parse_tiers({server.url("some/prefix", options)}).value();
    specs.front().late = true;
    return make_tier(specs.front(), clock_).value();
  }

  RealClock clock_;
};

// Errs `times` times, where `wanted`, and then never again.
inline auto errs(int times, std::function<bool(const S3Asked&)> wanted, std::function<S3Answer(S3Answer)> how) {
  const auto left = std::make_shared<std::atomic<int>>(times);
  return [=](const S3Asked& asked, S3Answer right) {
    return wanted(asked) && (*left)-- > 0 ? how(std::move(right)) : right;
  };
}

inline auto method_is(std::string method) {
  return [method](const S3Asked& asked) { return asked.method == method; };
}

inline bool is_data(const S3Asked& asked) { return asked.method == "GET" && asked.headers.contains("range"); }

inline S3Answer slow_down(const S3Answer&) {
  return {503, "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"};
}

}  // namespace shale::testing
