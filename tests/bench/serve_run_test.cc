// Chats with a server that answers at once.
#include "loadtest/serve/serve_run.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/interrupt.h"
#include "http/http_server.h"

namespace shale {
namespace {

using ::testing::ElementsAre;

// Answers by "heard" and the number of messages; refuses the question "fail".
class TalkingService final : public HttpService {
 public:
  std::optional<HttpResponse> answer_head(const HttpRequest&) override { return std::nullopt; }
  HttpAnswer answer(const HttpRequest& request, HttpWake) override {
    const Json messages = Json::parse(request.body)["messages"];
    if (messages.back()["content"] == "fail") return HttpResponse{.status = 429, .type = "text/plain", .body = "no"};
    const std::string piece = R"({"choices":[{"delta":{"content":"heard )" + std::to_string(messages.size()) + "\"}}]}";
    const std::string usage =
        R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1,"prompt_tokens_details":{"computed_tokens":7,)"
        R"("lossy":false,"expected_quality":1,"compressed":[],"cached_from":{}}}})";
    return HttpResponse{.status = 200,
                        .type = "text/event-stream",
                        .body = "data: " + piece + "\n\ndata: " + usage + "\n\ndata: [DONE]\n\n"};
  }
  HttpResponse refusal(const HttpFailure& failure) override { return {.status = failure.status, .type = "text/plain"}; }
};

class RunLoad : public ::testing::Test {
 protected:
  RunLoad() {
    auto listening = HttpServer::listen({.port = 0});
    EXPECT_TRUE(listening) << listening.error().message;
    server_ = std::move(*listening);
    server_->serve(service_);
  }
  ~RunLoad() override { server_->stop(); }

  // Two chats of three turns about `context_`.
  static std::vector<LoadRequest> two_chats(double pause_s) {
    std::vector<LoadRequest> load;
    for (std::size_t i = 0; i < 6; ++i) {
      load.push_back({.chat = i / 3, .turn = i % 3 + 1, .pause_s = i % 3 > 0 ? pause_s : 0, .question = i});
    }
    return load;
  }
  std::string body_of(std::span<const LoadRequest> turns, const std::vector<std::string>& answers) {
    const std::vector<std::string> said = dialogue_of(context_, turns, answers);
    const std::lock_guard lock(mutex_);
    dialogues_[turns.back().question] = said;
    return chat_body("a context", said, 4, false);
  }
  LoadHooks hooks() {
    return {.body = [this](const auto& turns, const auto& answers) { return body_of(turns, answers); },
            .progress = [this](std::size_t answered) { answered_ = answered; },
            .give_up = [] {}};
  }

  TalkingService service_;
  std::unique_ptr<HttpServer> server_;
  std::mutex mutex_;
  std::map<std::size_t, std::vector<std::string>> dialogues_;  // by question
  LoadContext context_{.id = "a", .questions = {"0", "1", "2", "3", "4", "5"}};
  std::size_t answered_ = 0;
};

TEST_F(RunLoad, LaterTurnsComeAPauseAfterTheAnswerBeforeWithTheChatSoFar) {
  const auto served = run_load(server_->port(), two_chats(0.02), hooks());
  ASSERT_TRUE(served) << served.error().message;
  ASSERT_EQ(served->load.size(), 6u);
  EXPECT_EQ(answered_, 6u);
  EXPECT_TRUE(std::ranges::is_sorted(served->load, {}, &LoadRequest::at_s));
  std::map<std::pair<std::size_t, std::size_t>, double> end_s;
  for (std::size_t i = 0; i < 6; ++i) {
    const LoadRequest& request = served->load[i];
    const ServedAnswer& answer = served->answers[i];
    EXPECT_EQ(answer.error, "");
    EXPECT_EQ(answer.text, "heard " + std::to_string(2 * request.turn));
    EXPECT_GE(answer.pieces_s.front(), 0) << "none is asked before its time";
    if (request.turn > 1) {
      EXPECT_DOUBLE_EQ(request.at_s, end_s.at({request.chat, request.turn - 1}) + 0.02);
    }
    end_s[{request.chat, request.turn}] = request.at_s + answer.end_s;
  }
  EXPECT_THAT(dialogues_[0], ElementsAre("0"));
  EXPECT_THAT(dialogues_[5], ElementsAre("3", "heard 2", "4", "heard 4", "5"));
}

TEST_F(RunLoad, AChatEndsWhereATurnFails) {
  context_.questions[1] = "fail";
  const auto served = run_load(server_->port(), two_chats(0), hooks());
  ASSERT_TRUE(served) << served.error().message;
  std::vector<std::size_t> asked, failed;
  for (std::size_t i = 0; i < served->load.size(); ++i) {
    asked.push_back(served->load[i].question);
    if (!served->answers[i].error.empty()) failed.push_back(served->load[i].question);
  }
  EXPECT_THAT(asked, ::testing::UnorderedElementsAre(0, 1, 3, 4, 5));
  EXPECT_THAT(failed, ElementsAre(1));
}

TEST_F(RunLoad, AnInterruptEndsPauses) {
  catch_interrupts();
  LoadHooks hooks = this->hooks();
  hooks.progress = [](std::size_t answered) {
    if (answered == 2 && !interrupted()) std::raise(SIGINT);
  };
  const auto served = run_load(server_->port(), two_chats(36'000), hooks);
  catch_interrupts();
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  ASSERT_FALSE(served);
  EXPECT_EQ(served.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace shale
