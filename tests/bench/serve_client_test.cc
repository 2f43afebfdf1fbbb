#include "loadtest/serve/serve_client.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "http/http_server.h"

namespace shale {
namespace {

// Answers every request with one stream of events.
class StreamingService final : public HttpService {
 public:
  explicit StreamingService(std::string events) : events_(std::move(events)) {}
  std::optional<HttpResponse> answer_head(const HttpRequest&) override { return std::nullopt; }
  HttpAnswer answer(const HttpRequest&, HttpWake) override {
    return HttpResponse{.status = 200, .type = "text/event-stream", .body = events_};
  }
  HttpResponse refusal(const HttpFailure& failure) override { return {.status = failure.status, .type = "text/plain"}; }

 private:
  const std::string events_;
};

ServedAnswer answer_of(std::string events) {
  auto server = HttpServer::listen({.port = 0});
  EXPECT_TRUE(server) << server.error().message;
  StreamingService service(std::move(events));
  (*server)->serve(service);
  const RealClock clock;
  ServedAnswer answer = ask_server((*server)->port(), "{}", clock, clock.now_s(), 60);
  (*server)->stop();
  return answer;
}

TEST(AskServer, TakesAnAnswerWithoutTextAsOnePieceAtItsEnd) {
  const std::string text = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
  const std::string usage =
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1,\"prompt_tokens_details\":"
      "{\"computed_tokens\":7,\"lossy\":false,\"expected_quality\":1,\"compressed\":[],\"cached_from\":{}}}}\n\n";
  const std::string done = "data: [DONE]\n\n";
  const ServedAnswer without_text = answer_of(usage + done);
  EXPECT_EQ(without_text.error, "");
  EXPECT_EQ(without_text.prompt_tokens, 7u);
  ASSERT_EQ(without_text.pieces_s.size(), 1u);
  EXPECT_EQ(without_text.pieces_s.front(), without_text.end_s);
  const ServedAnswer with_text = answer_of(text + usage + done);
  EXPECT_EQ(with_text.error, "");
  EXPECT_EQ(with_text.pieces_s.size(), 1u);
  EXPECT_EQ(with_text.text, "a");
  EXPECT_NE(answer_of(text + done).error, "");
  EXPECT_NE(answer_of(text + usage).error, "") << "it breaks off";
}

}  // namespace
}  // namespace shale
