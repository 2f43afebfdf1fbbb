// The server over real connections, as a client sees it.
#include <gmock/gmock.h>

#include "server/server_fixture.h"

namespace shale {
namespace {

using namespace std::chrono_literals;
using testing::BusyServerTest;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ServerTest;
using ::testing::StartsWith;

TEST_F(ServerTest, AnswersAChatAndKnowsItAgain) {
  start();
  const Json first = posted("/v1/chat/completions", chat("What is shale?"));
  EXPECT_EQ(first["object"], "chat.completion");
  EXPECT_EQ(first["model"], "tiny");
  EXPECT_THAT(first["id"].get<std::string>(), StartsWith("chatcmpl-"));
  EXPECT_EQ(first["usage"]["completion_tokens"], 12);
  EXPECT_EQ(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(first["choices"][0]["finish_reason"], "length");

  const Json again = posted("/v1/chat/completions", chat("What is shale?"));
  EXPECT_EQ(again["choices"], first["choices"]);
  EXPECT_EQ(again["usage"]["prompt_tokens_details"]["cached_tokens"], first["usage"]["prompt_tokens"].get<int>() - 1);
  EXPECT_EQ(again["usage"]["prompt_tokens_details"]["lossy"], false);

  // The next turn finds the whole of the one before, the answer less its last token included.
  Json turn = chat("What is shale?");
  turn["messages"].push_back(first["choices"][0]["message"]);
  turn["messages"].push_back({{"role", "user"}, {"content", "Why?"}});
  EXPECT_EQ(posted("/v1/chat/completions", turn)["usage"]["prompt_tokens_details"]["cached_tokens"],
            first["usage"]["prompt_tokens"].get<int>() + 11);
}

TEST_F(ServerTest, StreamsWhatItWouldSayAtOnce) {
  start();
  const Json whole = posted("/v1/chat/completions", chat("What is shale?"));
  const auto events =
      streamed("/v1/chat/completions", chat("What is shale?", {{"stream_options", {{"include_usage", true}}}}));
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
  std::string text;
  for (const Json& event : events) {
    if (event["choices"].empty()) continue;
    text += event["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(text, whole["choices"][0]["message"]["content"]);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(events.back()["choices"].empty());
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 12);
}

// GuideLLM asks for it.
TEST_F(ServerTest, TellsUsageWithEveryEventWhereThatIsAskedFor) {
  start();
  const Json options = {{"include_usage", true}, {"continuous_usage_stats", true}};
  const auto events = streamed("/v1/chat/completions", chat("What is shale?", {{"stream_options", options}}));
  ASSERT_GE(events.size(), 4u);
  int before = 0;
  for (const Json& event : events) {
    const Json& usage = event["usage"];
    EXPECT_GE(usage["completion_tokens"], before);
    before = usage["completion_tokens"];
    EXPECT_EQ(usage["prompt_tokens"], events.back()["usage"]["prompt_tokens"]);
    EXPECT_EQ(usage["total_tokens"], usage["prompt_tokens"].get<int>() + before);
  }
  EXPECT_EQ(events.front()["usage"]["completion_tokens"], 0) << "the role";
  EXPECT_EQ(before, 12);
}

TEST_F(ServerTest, CompletesTextWithAndWithoutAContext) {
  start();
  const Json body = {{"prompt", "Shale is"}, {"temperature", 0}, {"max_tokens", 8}};
  const Json whole = posted("/v1/completions", body);
  EXPECT_EQ(whole["object"], "text_completion");
  std::string text;
  for (const Json& event : streamed("/v1/completions", body)) text += event["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(text, whole["choices"][0]["text"]);
  EXPECT_EQ(posted("/v1/completions", {{"prompt", "Shale is"}})["usage"]["completion_tokens"], 16);

  Json with = {{"context", std::string(100, 'c')}, {"prompt", "What?"}, {"method", "knorm+int8"}, {"keep", 0.5}};
  EXPECT_EQ(posted("/v1/completions", with)["usage"]["prompt_tokens_details"]["lossy"], true);
  with.erase("context");
  EXPECT_EQ(post("/v1/completions", with)->status, 400);
}

TEST_F(ServerTest, TheSameSeedSaysTheSame) {
  start();
  const auto choices_of = [&](int seed) {
    return posted("/v1/chat/completions", chat("Say.", {{"temperature", 5}, {"seed", seed}}))["choices"];
  };
  EXPECT_EQ(choices_of(1), choices_of(1));
  EXPECT_NE(choices_of(1), choices_of(2));
}

TEST_F(ServerTest, AStopStringEndsTheAnswer) {
  start();
  Json body = {{"prompt", "Shale"}, {"temperature", 5}, {"seed", 3}, {"max_tokens", 40}};
  const std::string text = posted("/v1/completions", body)["choices"][0]["text"];
  const auto letter = std::ranges::find_if(text, [](char c) { return c > ' ' && c <= '~'; });
  ASSERT_NE(letter, text.end()) << text;
  body["stop"] = std::string(1, *letter);
  const Json cut = posted("/v1/completions", body)["choices"][0];
  EXPECT_EQ(cut["text"], text.substr(0, static_cast<std::size_t>(letter - text.begin())));
  EXPECT_EQ(cut["finish_reason"], "stop");
}

TEST_F(ServerTest, ErrorsAreOpenAIs) {
  start();
  const auto error = [&](const httplib::Result& result, int status) {
    EXPECT_EQ(result->status, status);
    EXPECT_EQ(result->get_header_value("Content-Type"), "application/json");
    return Json::parse(result->body)["error"];
  };
  EXPECT_THAT(error(client().Post("/v1/chat/completions", "{", "application/json"), 400)["message"].get<std::string>(),
              HasSubstr("not JSON"));
  EXPECT_THAT(error(client().Post("/v1/completions", "{\"prompt\": \"a secret\n\"}", "application/json"), 400).dump(),
              Not(HasSubstr("secret")))
      << "the log says it, too";
  EXPECT_EQ(error(post("/v1/chat/completions", chat("x", {{"model", "gpt-9"}})), 404)["code"], "model_not_found");
  EXPECT_EQ(error(post("/v1/chat/completions", chat("x", {{"n", 0}})), 400)["param"], "n");
  const Json too_long = error(post("/v1/chat/completions", chat(std::string(3000, 'x'))), 400);
  EXPECT_EQ(too_long["code"], "context_length_exceeded");
  EXPECT_THAT(too_long["message"].get<std::string>(), HasSubstr("maximum context length is"))
      << "LiteLLM goes by the words";
  EXPECT_EQ(error(post("/v1/completions", {{"prompt", {100000}}}), 400)["type"], "invalid_request_error");
  EXPECT_EQ(error(client().Get("/v1/completions"), 405)["type"], "invalid_request_error");
  EXPECT_EQ(error(client().Get("/v2"), 404)["type"], "invalid_request_error");
  EXPECT_THAT(error(post("/v1/responses", {{"input", "x"}}), 404)["message"].get<std::string>(),
              HasSubstr("/v1/chat/completions"));
  EXPECT_EQ(error(client().Post("/v1/completions", "prompt=x", "application/x-www-form-urlencoded"), 415)["code"],
            nullptr);
  EXPECT_EQ(
      error(client().Post("/v1/completions", {{"Content-Encoding", "gzip"}}, "{}", "application/json"), 415)["code"],
      nullptr);
  EXPECT_EQ(error(client().Get("/v1/models/other"), 404)["param"], "model");
  EXPECT_EQ(posted("/v1/completions", {{"prompt", "still there"}})["object"], "text_completion");
}

TEST_F(ServerTest, RefusesBodiesThatAreTooLong) {
  start({.http = {.limits = {.body_bytes = 1000}}});
  const auto result = post("/v1/completions", {{"prompt", std::string(2000, 'x')}});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 413);
  EXPECT_THAT(result->body, HasSubstr("too long"));
}

TEST_F(ServerTest, ListsItsModelAndItsHealth) {
  start();
  const Json models = Json::parse(client().Get("/v1/models")->body);
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "tiny");
  EXPECT_EQ(Json::parse(client().Get("/v1/models/tiny")->body), models["data"][0]);
  EXPECT_EQ(client().Get("/health")->status, 200);
}

TEST_F(ServerTest, WantsItsKey) {
  start({.api = {.api_key = "secret"}});
  EXPECT_EQ(client().Get("/health")->status, 200);
  for (const char* given : {"", "Bearer ", "Bearer secre", "Bearer secrets", "secret"}) {
    const auto result = client().Post("/v1/completions", {{"Authorization", given}}, "{}", "application/json");
    ASSERT_TRUE(result) << given;
    EXPECT_EQ(result->status, 401) << given;
    EXPECT_EQ(Json::parse(result->body)["error"]["code"], "invalid_api_key");
    EXPECT_EQ(result->get_header_value("WWW-Authenticate"), "Bearer");
  }
  EXPECT_EQ(client().Get("/metrics")->status, 401);
  for (const char* given : {"Bearer secret", "bearer secret", "BEARER  secret"}) {
    EXPECT_EQ(client().Get("/v1/models", {{"Authorization", given}})->status, 200) << given;
  }
}

TEST_F(ServerTest, ReadsJsonBySomeNameOfIt) {
  start();
  const auto status = [&](const char* type) { return client().Post("/v1/completions", "{", type)->status; };
  for (const char* type : {"application/json", "Application/JSON", "application/json ; charset=utf-8"}) {
    EXPECT_EQ(status(type), 400) << type << ": it is read, and broken";
  }
  for (const char* type : {"text/plain", "application/jsonl", "application"}) EXPECT_EQ(status(type), 415) << type;
}

TEST_F(ServerTest, SaysWhichFieldMayHaveBeenMeant) {
  start();
  const auto warning = [&](const Json& more) {
    return post("/v1/chat/completions", chat("x", more))->get_header_value("Shale-Warning");
  };
  EXPECT_EQ(warning({{"exat", true}}), "unknown field 'exat' (did you mean 'exact'?)");
  EXPECT_THAT(warning({{"stpo", "x"}}), HasSubstr("'stop'"));
  EXPECT_THAT(warning({{"max_token", 3}}), HasSubstr("'max_tokens'"));
  EXPECT_EQ(warning({{"stream", true}, {"stream_options", {{"include_usge", true}}}}),
            "unknown field 'include_usge' (did you mean 'include_usage'?)");
  for (const char* other : {"user", "store", "metadata", "see", "exact\n"})
    EXPECT_EQ(warning({{other, "x"}}), "") << other;
}

TEST_F(ServerTest, LogsALineARequest) {
  std::vector<Json> lines;
  const auto log = std::make_shared<RequestLog>(RequestLog::Form::kJson, LogLevel::kInfo,
                                                [&](std::string_view line) { lines.push_back(Json::parse(line)); });
  start({.api = {.log = log}});
  const Json answer = posted("/v1/chat/completions", chat("What is shale?"));
  streamed("/v1/chat/completions", chat("What is shale?"));
  const auto refused = post("/v1/chat/completions", chat("x", {{"n", 0}}));
  EXPECT_EQ(refused->status, 400);
  EXPECT_EQ(post("/v1/completions", {{"prompt", {1'000'000}}})->status, 400) << "the engine refuses it";
  server_.reset();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[3]["outcome"], "refused");
  EXPECT_EQ(lines[3]["peer"], "127.0.0.1");
  EXPECT_EQ(lines[0]["request"], answer["id"]);
  EXPECT_EQ(lines[0]["outcome"], "length");
  EXPECT_EQ(lines[0]["usage"], answer["usage"]);
  EXPECT_GT(lines[0]["ttft_seconds"], 0);
  EXPECT_GT(lines[0]["seconds"], 0);
  EXPECT_EQ(lines[1]["status"], 200);
  EXPECT_EQ(lines[2]["status"], 400);
  EXPECT_EQ(lines[2]["outcome"], "refused");
  EXPECT_THAT(lines[2]["why"].get<std::string>(), HasSubstr("n"));
  EXPECT_EQ(lines[2]["request"], refused->get_header_value("X-Request-Id"));
  EXPECT_EQ(lines[2]["peer"], "127.0.0.1");
  EXPECT_EQ(lines[0]["level"], "info");
  EXPECT_EQ(lines[2]["level"], "warn");
}

TEST_F(ServerTest, EveryAnswerToARequestHasItsId) {
  start();
  const auto id_of = [](const httplib::Result& result) { return result->get_header_value("X-Request-Id"); };
  const auto whole = post("/v1/chat/completions", chat("What is shale?"));
  EXPECT_EQ(id_of(whole), Json::parse(whole->body)["id"]);
  const auto stream = post("/v1/chat/completions", chat("What is shale?", {{"stream", true}}));
  EXPECT_THAT(stream->body, HasSubstr("\"id\":\"" + id_of(stream) + "\""));
  for (const auto& refused : {post("/v1/completions", {{"prompt", 1.5}}), client().Get("/nowhere"),
                              client().Get("/health", {{"Expect", "much"}})}) {
    EXPECT_NE(id_of(refused), "") << refused->status;
  }
}

TEST(RequestLogTest, LeavesOutWhatConcernsFewerThanItsLevel) {
  const auto logged = [](RequestLog::Form form, LogLevel level) {
    std::string text;
    RequestLog log(form, level, [&](std::string_view line) { text += line; });
    log.add({.id = "good", .tenant = {}, .outcome = "length"});
    log.add({.id = "left", .tenant = {}, .status = 499, .outcome = "gone"});
    log.add({.id = "misspelt", .tenant = {}, .outcome = "length", .why = "unknown field 'exat'"});
    log.add({.id = "refused", .tenant = {}, .status = 429, .outcome = "refused", .why = "too many"});
    log.add({.id = "failed", .tenant = {}, .status = 500, .outcome = "failed", .why = "the engine"});
    log.note(LogLevel::kWarn, "tier disk: gone");
    return text;
  };
  const auto lines = [](const std::string& text) { return std::ranges::count(text, '\n'); };
  const std::string errors = logged(RequestLog::Form::kText, LogLevel::kError);
  EXPECT_EQ(lines(errors), 1);
  EXPECT_THAT(errors, HasSubstr("failed"));
  EXPECT_EQ(lines(logged(RequestLog::Form::kText, LogLevel::kWarn)), 4);
  EXPECT_THAT(logged(RequestLog::Form::kText, LogLevel::kWarn), HasSubstr("warn: tier disk: gone"));
  std::istringstream all(logged(RequestLog::Form::kJson, LogLevel::kInfo));
  int count = 0;
  for (std::string line; std::getline(all, line); ++count) EXPECT_TRUE(Json::parse(line).contains("level")) << line;
  EXPECT_EQ(count, 6);
}

TEST(RequestLogTest, WhatOthersSayMakesNoLinesOfItsOwn) {
  for (const auto form : {RequestLog::Form::kText, RequestLog::Form::kJson}) {
    std::string text;
    RequestLog log(form, LogLevel::kInfo, [&](std::string_view line) { text += line; });
    log.note(LogLevel::kWarn, "tier s3: status 503\n2030-01-01 all is well \x1b[2J" + std::string(100'000, 'x'));
    log.add({.id = {}, .tenant = {}, .status = 404, .outcome = "refused", .why = "there is no GET /\xc2\x9b\x9b"});
    EXPECT_EQ(std::ranges::count(text, '\n'), 2);
    EXPECT_LT(text.size(), 3000u);
    for (const char* control : {"\x1b", "\xc2", "\x9b"}) EXPECT_THAT(text, Not(HasSubstr(control)));
  }
}

TEST_F(ServerTest, CountsWhatItDoes) {
  start();
  posted("/v1/chat/completions", chat("What is shale?"));
  const Json second = posted("/v1/chat/completions", chat("What is shale?"));
  EXPECT_EQ(metric("vllm:request_success_total{model_name=\"tiny\",finished_reason=\"length\"}"), 2);
  EXPECT_EQ(metric("vllm:generation_tokens_total{model_name=\"tiny\"}"), 24);
  EXPECT_EQ(metric("vllm:time_to_first_token_seconds_count{model_name=\"tiny\"}"), 2);
  EXPECT_EQ(metric("shale_cached_tokens_total{model_name=\"tiny\",source=\"pool\"}"),
            second["usage"]["prompt_tokens_details"]["cached_tokens"]);
  EXPECT_EQ(metric("vllm:request_prefill_kv_computed_tokens_sum{model_name=\"tiny\"}"),
            second["usage"]["prompt_tokens"].get<int>() + 1)
      << "all of the first prompt, the last token of the second";
  EXPECT_EQ(metric("vllm:num_requests_running{model_name=\"tiny\"}"), 0);
  EXPECT_TRUE(comes_to("shale_pool_bytes{model_name=\"tiny\",state=\"held\"}", 0));  // once all is stored
  EXPECT_GT(metric("shale_tier_capacity_bytes{model_name=\"tiny\",tier=\"memory\"}"), 0);
  EXPECT_GT(metric("shale_cache_extents{model_name=\"tiny\"}"), 0);
  EXPECT_GT(metric("shale_cache_encoded_bytes_total{model_name=\"tiny\"}"), 0);
  EXPECT_EQ(metric("shale_cache_moves_total{model_name=\"tiny\",tier=\"memory\",move=\"removed\"}"), 0);
  EXPECT_GT(metric("shale_cache_background_seconds_total{model_name=\"tiny\"}"), 0);
  EXPECT_GT(metric("shale_cache_planning_seconds_total{model_name=\"tiny\"}"), 0);
}

TEST_F(BusyServerTest, AClientThatLeavesIsCancelledAndItsPagesComeBack) {
  start();
  for (const bool stream : {true, false}) {
    Json body = endless();
    body["stream"] = stream;
    httplib::Client leaving("127.0.0.1", server_->port());
    if (stream) {  // in the middle of its answer
      httplib::Request request;
      request.method = "POST";
      request.path = "/v1/chat/completions";
      request.body = body.dump();
      request.set_header("Content-Type", "application/json");
      request.content_receiver = [](const char*, std::size_t, std::uint64_t, std::uint64_t) { return false; };
      leaving.send(request);
    } else {  // while it waits
      const std::jthread asking([&] { leaving.Post("/v1/chat/completions", body.dump(), "application/json"); });
      EXPECT_TRUE(comes_to("vllm:num_requests_running{model_name=\"tiny\"}", 1));
      leaving.stop();
    }
    EXPECT_TRUE(comes_to("vllm:request_success_total{model_name=\"tiny\",finished_reason=\"abort\"}", stream ? 1 : 2));
    EXPECT_TRUE(comes_to("shale_pool_bytes{model_name=\"tiny\",state=\"held\"}", 0));
  }
  server_->stop(0ms);
  drain();
  EXPECT_TRUE(cache_->evict_until_free(pool_->blocks_total()));
}

TEST_F(BusyServerTest, OverloadIsToComeAgain) {
  start({.loop = {.queue_max = 0}});
  std::vector<std::jthread> asking;
  for (int i = 0; i < 4; ++i) {
    asking.emplace_back([&] { post("/v1/chat/completions", endless()); });
  }
  ASSERT_TRUE(comes_to("vllm:num_requests_running{model_name=\"tiny\"}", 4));
  const auto result = post("/v1/chat/completions", chat("And me?"));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 429);
  EXPECT_GE(std::stoi(result->get_header_value("Retry-After")), 1);
  EXPECT_EQ(Json::parse(result->body)["error"]["code"], "rate_limit_exceeded");
  EXPECT_EQ(client().Get("/health")->status, 200);
  server_->stop(0ms);
}

TEST_F(BusyServerTest, AnswersWhatIsInFlightBeforeItStops) {
  start();
  std::vector<Json> events;
  std::jthread streaming([&] { events = streamed("/v1/chat/completions", endless()); });
  ASSERT_TRUE(comes_to("vllm:num_requests_running{model_name=\"tiny\"}", 1));
  std::jthread stopping([&] { server_->stop(60s); });
  int health = 200;
  while (health == 200) {
    const auto result = client().Get("/health");
    health = result ? result->status : 0;
  }
  EXPECT_EQ(health, 503) << "no more requests are to be sent to it";
  stopping.join();
  streaming.join();
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "length");
  EXPECT_FALSE(client().Get("/health"));
}

TEST_F(ServerTest, SaysWhenItCannotListen) {
  start();
  const auto second = Server::start({.http = {.port = server_->port()}}, *engine_, clock_);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("cannot listen on 127.0.0.1"));
}

}  // namespace
}  // namespace shale
