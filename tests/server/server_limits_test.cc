// What clients that mean no good can make the server do.
#include <gmock/gmock.h>

#include <atomic>

#include "http/raw_client.h"
#include "server/server_fixture.h"

namespace shale {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using testing::ServerTest;

// Each of these took seconds or minutes, for what it took hundreds of megabytes, some of them for good.
TEST_F(ServerTest, RefusesCostlyRequestsBeforeTheyCostAndGivesTheirMemoryBack) {
  start();
  [[maybe_unused]] const std::size_t peak_before = testing::peak_bytes();
  constexpr std::size_t kBytes = std::size_t{12} << 20;
  const auto repeated = [](std::string_view piece) {
    std::string text;
    while (text.size() < kBytes) text += piece;
    return text;
  };
  std::string keys = "{";
  for (int i = 0; keys.size() < kBytes; ++i) keys += fmt::format("\"{}\":0,", i);
  const std::string tiny = R"({"role":"user","content":"a"},)";
  const auto refused = [&](const char* path, const std::string& body) {
    const auto result = client().Post(path, body, "application/json");
    ASSERT_TRUE(result);
    EXPECT_EQ(result->status, 400);
    EXPECT_LT(result->body.size(), 1000u);
  };
  const auto all = [&] {
    refused("/v1/chat/completions", "{\"messages\":[" + repeated(tiny) + "0]}");
    refused("/v1/chat/completions", "{\"messages\":[" + repeated(tiny).substr(0, tiny.size() * 5000) + "0]}");
    refused("/v1/chat/completions", keys + "\"x\":0}");
    refused("/v1/completions", "{\"prompt\":[" + repeated("[],") + "0]}");
    refused("/v1/completions", "{\"prompt\":\"" + repeated("<turn>") + "\"}");
    refused("/v1/completions", "{\"context\":\"" + repeated(" ") + "\",\"prompt\":\"x\"}");
    refused("/v1/completions", "{\"model\":\"" + repeated("m") + "\"}");
    refused("/v1/completions", "{\"prompt\":\"" + repeated("p"));
  };
  all();
  const std::size_t before = testing::resident_bytes();
  all();
  for (int i = 0; i < 200 && testing::resident_bytes() > before + (1 << 20); ++i) std::this_thread::sleep_for(10ms);
#ifndef __SANITIZE_ADDRESS__  // which keeps what is freed for a while
  EXPECT_LT(testing::resident_bytes(), before + (8 << 20));
  EXPECT_LT(testing::peak_bytes(), peak_before + 16 * kBytes) << "some copies of a body, here and at the client";
#endif
}

// Counts the bytes that it is given.
class MeteredTokenizer final : public testing::ByteTokenizer {
 public:
  std::vector<Token> tokenize(std::string_view text, bool special) const override {
    bytes += text.size();
    return ByteTokenizer::tokenize(text, special);
  }
  mutable std::atomic<std::size_t> bytes = 0;
};

// Of a model that reads long prompts.
class LongPromptsTest : public ServerTest {
 protected:
  LongPromptsTest() : ServerTest({.context = 32768}) {
    engine_ = std::make_unique<Engine>(EngineOptions{}, *model_, metered_, *cache_, slow_);
  }
  void TearDown() override {
    server_.reset();
    engine_.reset();
  }

  MeteredTokenizer metered_;
};

// Once to see that it is not too long, and once whole, however many prompts are behind it.
TEST_F(LongPromptsTest, TokenizesAContextOfSeveralPromptsOnce) {
  start();
  std::string context;
  while (context.size() < 120'000) context += "<turn>";  // many bytes and few tokens
  const std::vector<std::string> prompts(12, "a");
  EXPECT_EQ(posted("/v1/completions/render", {{"context", context}, {"prompt", prompts}}).size(), prompts.size());
  EXPECT_LT(metered_.bytes, 3 * context.size());
}

// They would for as long as the test may take.
TEST_F(ServerTest, ConnectionsThatDribbleHoldNobodyUp) {
  start({.http = {.limits = {.head = 1h, .body = 1h, .idle = 1h}}});
  std::vector<testing::RawClient> dribbling;
  for (int i = 0; i < 100; ++i) {
    dribbling.emplace_back(server_->port());
    dribbling.back().send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n");
    if (i % 2) dribbling.back().send("Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{");
  }
  const auto health = client().Get("/health");
  ASSERT_TRUE(health);
  EXPECT_EQ(health->status, 200);
  EXPECT_EQ(posted("/v1/completions", {{"prompt", "Shale"}})["object"], "text_completion");
}

TEST_F(ServerTest, WithoutAKeyItServesThisMachineAlone) {
  const auto started = [&](ServerOptions options) {
    options.http.host = "0.0.0.0";
    options.http.port = 0;
    return Server::start(options, *engine_, clock_);
  };
  const auto open = started({});
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(open.error().message, HasSubstr("--no-auth"));
  EXPECT_TRUE(started({.api = {.api_key = "secret"}}));
  EXPECT_TRUE(started({.no_auth = true}));
}

TEST_F(ServerTest, AnswersNoForeignPages) {
  start();
  const auto foreign = client().Get("/v1/models", {{"Host", "rebound.example"}});
  EXPECT_EQ(foreign->status, 403);
  EXPECT_THAT(Json::parse(foreign->body)["error"]["message"].get<std::string>(), HasSubstr("rebound.example"));
  EXPECT_EQ(client().Get("/v1/models", {{"Origin", "https://evil.example"}})->status, 403);
  EXPECT_EQ(client().Get("/v1/models", {{"Origin", "http://localhost:3000"}})->status, 200);
}

// As a browser asks: whether the page may send JSON and a key, and whether it may read the answer.
TEST_F(ServerTest, AnswersPagesOfAllowedOrigins) {
  start({.http = {.allowed_hosts = {"app.example"}}, .api = {.api_key = "secret"}});
  constexpr const char* kAllowed = "Access-Control-Allow-Origin";
  const auto preflight = [&](const char* origin) {
    return client().Options("/v1/chat/completions", {{"Origin", origin},
                                                     {"Access-Control-Request-Method", "POST"},
                                                     {"Access-Control-Request-Headers", "authorization,content-type"}});
  };
  for (const char* origin : {"http://localhost:3000", "https://app.example"}) {
    const auto asked = preflight(origin);
    ASSERT_TRUE(asked);
    EXPECT_EQ(asked->status, 200);
    EXPECT_EQ(asked->get_header_value(kAllowed), origin);
    EXPECT_EQ(asked->get_header_value("Vary"), "Origin");
    EXPECT_THAT(asked->get_header_value("Access-Control-Allow-Methods"), HasSubstr("POST"));
    EXPECT_EQ(asked->get_header_value("Access-Control-Allow-Headers"), "authorization,content-type");
    const httplib::Headers page = {{"Origin", origin}, {"Authorization", "Bearer secret"}};
    EXPECT_EQ(client().Get("/v1/models", page)->get_header_value(kAllowed), origin);
    const auto refused = client().Get("/v1/models", {{"Origin", origin}});
    EXPECT_EQ(refused->status, 401);
    EXPECT_EQ(refused->get_header_value(kAllowed), origin) << "the page may read why";
  }
  const auto foreign = preflight("https://evil.example");
  EXPECT_EQ(foreign->status, 403);
  EXPECT_FALSE(foreign->has_header(kAllowed));
  httplib::Client kept("127.0.0.1", server_->port());
  kept.set_keep_alive(true);
  EXPECT_TRUE(kept.Get("/health", {{"Origin", "http://localhost"}})->has_header(kAllowed));
  EXPECT_FALSE(kept.Get("/health")->has_header(kAllowed));
  EXPECT_EQ(client().Options("/v1/models", {{"Authorization", "Bearer secret"}})->status, 405);
}

}  // namespace
}  // namespace shale
