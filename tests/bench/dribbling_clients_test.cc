#include "loadtest/serve/dribbling_clients.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "http/http_server.h"
#include "support/eventually.h"

namespace shale {
namespace {

using namespace std::chrono_literals;

// Answers every whole head, and counts the refusals of those that took too long to send one.
class CountingService final : public HttpService {
 public:
  std::optional<HttpResponse> answer_head(const HttpRequest& head) override {
    return HttpResponse{.status = head.path == "/health" ? 200 : 404, .type = "text/plain"};
  }
  HttpAnswer answer(const HttpRequest&, HttpWake) override { return HttpResponse{}; }
  HttpResponse refusal(const HttpFailure& failure) override {
    timed_out += failure.status == 408;
    return {.status = failure.status, .type = "text/plain", .body = failure.message};
  }
  std::atomic<std::size_t> timed_out = 0;
};

TEST(DribblingClients, ComeAgainAndNeverToAnEndWhileHealthIsTimed) {
  constexpr std::size_t kConnections = 8;
  HttpOptions options{.port = 0};
  options.limits.head = 500ms;
  auto server = HttpServer::listen(options);
  ASSERT_TRUE(server) << server.error().message;
  CountingService service;
  (*server)->serve(service);
  const DribblingClients clients((*server)->port(), kConnections);
  EXPECT_TRUE(testing::eventually_beside_others([&] { return service.timed_out > 2 * kConnections; }))
      << "each was cut off more than once";
  EXPECT_TRUE(testing::eventually_beside_others([&] { return clients.health().seconds.size() > 2; }));
  EXPECT_EQ(clients.health().failed, 0u);
  (*server)->stop();
  EXPECT_TRUE(testing::eventually_beside_others([&] { return clients.health().failed > 0; }));
}

}  // namespace
}  // namespace shale
