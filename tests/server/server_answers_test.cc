// What clients of OpenAI's and vLLM's servers ask of answers beside text, over real connections.
#include <gmock/gmock.h>

#include <thread>

#include "http/raw_client.h"
#include "server/server_fixture.h"

namespace shale {
namespace {

using namespace std::chrono_literals;
using testing::BusyServerTest;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ServerTest;
using ::testing::StartsWith;

// Whoever measures the time to the first token takes the first event for it.
TEST_F(BusyServerTest, AChatsStreamBeginsAtOnceAndItsEventsWithWhatIsSaid) {
  start();
  std::vector<std::jthread> running;
  for (int i = 0; i < 4; ++i) running.emplace_back([&] { post("/v1/chat/completions", endless()); });
  ASSERT_TRUE(comes_to("vllm:num_requests_running{model_name=\"tiny\"}", 4));
  testing::RawClient waiting(server_->port());
  const std::string body = chat("And me?", {{"stream", true}}).dump();
  waiting.send(
      fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                  "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                  body.size(), body));
  std::string came = waiting.receive_until("\r\n\r\n");
  EXPECT_THAT(came, StartsWith("HTTP/1.1 200"));
  ASSERT_TRUE(comes_to("vllm:num_requests_waiting{model_name=\"tiny\"}", 1));
  came += waiting.receive(1ms);
  EXPECT_THAT(came, Not(HasSubstr("data:")));
  server_->stop(0ms);
}

TEST_F(ServerTest, AStopTokenEndsTheAnswer) {
  start();
  Json body = {{"prompt", "Shale"}, {"temperature", 5}, {"seed", 3}, {"max_tokens", 40}, {"ignore_eos", true}};
  const std::string text = posted("/v1/completions", body)["choices"][0]["text"];
  const auto letter = std::ranges::find_if(text, [](char c) { return c > ' ' && c <= '~'; });
  ASSERT_NE(letter, text.end()) << text;
  const auto before = static_cast<std::size_t>(letter - text.begin());
  body["stop_token_ids"] = tokenizer_.tokenize({&*letter, 1}, false);
  const Json cut = posted("/v1/completions", body)["choices"][0];
  EXPECT_EQ(cut["text"], text.substr(0, before));
  EXPECT_EQ(cut["finish_reason"], "stop");
  body["include_stop_str_in_output"] = true;
  EXPECT_EQ(posted("/v1/completions", body)["choices"][0]["text"], text.substr(0, before + 1));
  EXPECT_EQ(metric("vllm:request_success_total{model_name=\"tiny\",finished_reason=\"stop\"}"), 2);
}

// All of them once, in the answer's order, streamed as at once; also the one that ends the answer.
TEST_F(ServerTest, TellsOfTheAnswersTokensWhereAsked) {
  start();
  const Json asked = {{"return_token_ids", true}, {"logprobs", true}, {"top_logprobs", 3}};
  const Json body = chat("What is shale?", asked);
  const Json whole = posted("/v1/chat/completions", body);
  const Json& choice = whole["choices"][0];
  const Json& told = choice["logprobs"]["content"];
  ASSERT_EQ(choice["token_ids"].size(), whole["usage"]["completion_tokens"].get<std::size_t>());
  ASSERT_EQ(told.size(), choice["token_ids"].size());
  EXPECT_EQ(whole["prompt_token_ids"].size(), whole["usage"]["prompt_tokens"].get<std::size_t>());
  for (const Json& token : told) {
    ASSERT_EQ(token["top_logprobs"].size(), 3u);
    EXPECT_LE(token["logprob"], 0);
    EXPECT_EQ(token["top_logprobs"][0]["logprob"], token["logprob"]) << "of a greedy answer";
  }
  const auto events = streamed("/v1/chat/completions", body);
  EXPECT_EQ(events.front()["prompt_token_ids"], whole["prompt_token_ids"]);
  Json ids = Json::array(), content = Json::array();
  for (const Json& event : events) {
    const Json& part = event["choices"][0];
    if (part.contains("token_ids")) ids.insert(ids.end(), part["token_ids"].begin(), part["token_ids"].end());
    if (part["logprobs"].is_null()) continue;
    content.insert(content.end(), part["logprobs"]["content"].begin(), part["logprobs"]["content"].end());
  }
  EXPECT_EQ(ids, choice["token_ids"]);
  EXPECT_EQ(content.size(), told.size());

  Json stopped = body;
  stopped["stop_token_ids"] = {ids[2]};
  const Json cut = posted("/v1/chat/completions", stopped)["choices"][0];
  EXPECT_EQ(cut["token_ids"].back(), ids[2]);
  EXPECT_EQ(cut["logprobs"]["content"].size(), cut["token_ids"].size());

  const Json completion = posted("/v1/completions", {{"prompt", "Shale"}, {"logprobs", 2}, {"return_token_ids", true}});
  const Json& of = completion["choices"][0];
  EXPECT_EQ(of["logprobs"]["tokens"].size(), of["token_ids"].size());
  EXPECT_EQ(of["prompt_token_ids"].size(), completion["usage"]["prompt_tokens"].get<std::size_t>());
  const Json plain = posted("/v1/chat/completions", chat("What is shale?"))["choices"][0];
  EXPECT_TRUE(plain["logprobs"].is_null());
  EXPECT_FALSE(plain.contains("token_ids"));
}

}  // namespace
}  // namespace shale
