// Several answers to one request: several prompts, several choices (`n`) of each, or both.
#include <gmock/gmock.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "server/server_fixture.h"
#include "support/eventually.h"

namespace shale {
namespace {

using namespace std::chrono_literals;
using testing::BusyServerTest;
using ::testing::HasSubstr;
using testing::ServerTest;

constexpr const char* kChats = "/v1/chat/completions";
constexpr const char* kCompletions = "/v1/completions";

class ServerChoicesTest : public ServerTest {
 protected:
  static Json completion(Json prompt, Json more = Json::object()) {
    Json body = {{"prompt", std::move(prompt)}, {"temperature", 0}, {"max_tokens", 8}, {"ignore_eos", true}};
    body.update(more);
    return body;
  }
  Json choices(const char* path, const Json& body) { return posted(path, body)["choices"]; }

  // In the order of their indices, which is that of the answer.
  static std::vector<std::string> texts(const Json& choices) {
    std::vector<std::string> all;
    for (const Json& choice : choices) {
      EXPECT_EQ(choice["index"], all.size());
      all.push_back((choice.contains("text") ? choice["text"] : choice["message"]["content"]).get<std::string>());
    }
    return all;
  }
  double computed() { return metric("vllm:request_prefill_kv_computed_tokens_sum{model_name=\"tiny\"}"); }
};

class BusyServerChoicesTest : public BusyServerTest {};

// As lm-evaluation-harness asks with a batch size.
TEST_F(ServerChoicesTest, AnswersSeveralPromptsAsItWouldEach) {
  start();
  const std::vector<std::string> prompts = {"Shale is", "Slate splits into layers", "Marl"};
  std::vector<std::string> alone;
  Json lists = Json::array();
  int tokens = 0;
  for (const std::string& prompt : prompts) {
    const Json answer = posted(kCompletions, completion(prompt));
    alone.push_back(answer["choices"][0]["text"]);
    tokens += answer["usage"]["prompt_tokens"].get<int>();
    lists.push_back(tokenizer_.tokenize(prompt, false));
  }
  const Json answer = posted(kCompletions, completion(prompts));
  EXPECT_EQ(texts(answer["choices"]), alone);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], tokens);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 3 * 8);
  EXPECT_EQ(answer["usage"]["total_tokens"], tokens + 3 * 8);
  EXPECT_EQ(choices(kCompletions, completion(lists)).size(), 3u);
  EXPECT_EQ(texts(choices(kCompletions, completion(prompts, {{"n", 2}}))),
            (std::vector<std::string>{alone[0], alone[0], alone[1], alone[1], alone[2], alone[2]}))
      << "choice j of prompt i has the index 2 * i + j";
}

TEST_F(ServerChoicesTest, ChoicesAreDrawnByTheirOwnSeeds) {
  start();
  const Json drawn = {{"temperature", 5}, {"seed", 11}};
  Json four = drawn;
  four["n"] = 4;
  const auto said = texts(choices(kCompletions, completion("Shale", four)));
  EXPECT_EQ(std::set(said.begin(), said.end()).size(), 4u);
  EXPECT_EQ(texts(choices(kCompletions, completion("Shale", four))), said);
  for (int i = 0; i < 4; ++i) {
    Json one = drawn;
    one["seed"] = 11 + i;
    EXPECT_EQ(texts(choices(kCompletions, completion("Shale", one))).front(), said[static_cast<std::size_t>(i)]);
  }
  const auto unseeded = texts(choices(kCompletions, completion({"Shale", "Shale"}, {{"temperature", 100}, {"n", 2}})));
  EXPECT_EQ(std::set(unseeded.begin(), unseeded.end()).size(), 4u) << "also to prompts that are alike";
  const auto greedy = texts(choices(kChats, chat("What is shale?", {{"n", 3}})));
  EXPECT_EQ(greedy, std::vector(3, greedy.front()));
}

// Text, reason and tokens of each by its index, usage once.
TEST_F(ServerChoicesTest, StreamsWhatItWouldSayAtOnce) {
  start();
  const Json usage = {{"stream_options", {{"include_usage", true}}}};
  for (const auto& [path, asked] :
       {std::pair(kCompletions, completion({"Shale is", "Slate"}, {{"n", 2}, {"temperature", 5}, {"seed", 3}})),
        std::pair(kChats, chat("What is shale?", {{"n", 3}, {"temperature", 5}, {"seed", 3}}))}) {
    const Json whole = posted(path, asked);
    Json body = asked;
    body.update(usage);
    std::map<std::size_t, std::string> said, reasons;
    std::vector<std::size_t> roles;
    std::set<std::string> ids;
    int usages = 0;
    for (const Json& event : streamed(path, body)) {
      ids.insert(event["id"].get<std::string>());
      if (event.contains("usage")) {
        ++usages;
        EXPECT_EQ(event["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
        EXPECT_TRUE(event["choices"].empty());
        continue;
      }
      ASSERT_EQ(event["choices"].size(), 1u);
      const Json& choice = event["choices"][0];
      const std::size_t index = choice["index"];
      EXPECT_FALSE(reasons.contains(index)) << "it has ended";
      if (choice.contains("text")) said[index] += choice["text"];
      if (choice.contains("delta")) said[index] += choice["delta"].value("content", "");
      if (choice.contains("delta") && choice["delta"].contains("role")) roles.push_back(index);
      if (!choice["finish_reason"].is_null()) reasons[index] = choice["finish_reason"].get<std::string>();
    }
    EXPECT_EQ(usages, 1);
    EXPECT_EQ(ids.size(), 1u);
    const std::vector<std::string> wanted = texts(whole["choices"]);
    ASSERT_EQ(said.size(), wanted.size());
    EXPECT_EQ(std::set(roles.begin(), roles.end()).size(), roles.size());
    EXPECT_EQ(roles.size(), path == kChats ? wanted.size() : 0);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(said[i], wanted[i]) << i;
      EXPECT_EQ(reasons[i], whole["choices"][i]["finish_reason"]) << i;
    }
  }
}

TEST_F(ServerChoicesTest, EventsSayWhatTheirOwnChoiceUsedSoFar) {
  start();
  const Json options = {{"include_usage", true}, {"continuous_usage_stats", true}};
  std::map<std::size_t, int> last;
  for (const Json& event : streamed(kCompletions, completion({"Shale is", "Slate"}, {{"stream_options", options}}))) {
    if (event["choices"].empty()) continue;
    int& before = last[event["choices"][0]["index"].get<std::size_t>()];
    EXPECT_GE(event["usage"]["completion_tokens"], before);
    before = event["usage"]["completion_tokens"];
    EXPECT_EQ(event["usage"]["prompt_tokens"], event["choices"][0]["index"] == 0 ? 9 : 6) << "with a BOS";
  }
  EXPECT_EQ(last, (std::map<std::size_t, int>{{0, 8}, {1, 8}}));
}

TEST_F(ServerChoicesTest, TellsOfEachChoicesTokens) {
  start();
  const Json more = {{"echo", true}, {"logprobs", 2}, {"prompt_logprobs", 1}, {"return_token_ids", true}};
  const std::vector<std::string> prompts = {"Shale is", "Slate"};
  const Json both = choices(kCompletions, completion(prompts, more));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Json alone = choices(kCompletions, completion(prompts[i], more))[0];
    for (const char* field : {"text", "token_ids", "prompt_token_ids", "prompt_logprobs", "finish_reason"}) {
      EXPECT_EQ(both[i][field], alone[field]) << i << field;
    }
    for (const char* field : {"tokens", "text_offset"}) {
      EXPECT_EQ(both[i]["logprobs"][field], alone["logprobs"][field]) << i << field;
    }
  }
  const Json answer =
      posted(kChats, chat("What is shale?", {{"n", 2}, {"logprobs", true}, {"return_token_ids", true}}));
  EXPECT_EQ(answer["prompt_token_ids"].size(), answer["usage"]["prompt_tokens"].get<std::size_t>());
  for (const Json& choice : answer["choices"]) {
    EXPECT_EQ(choice["logprobs"]["content"].size(), 12u);
    EXPECT_EQ(choice["token_ids"].size(), 12u);
  }
}

TEST_F(ServerChoicesTest, EachChoiceEndsByItself) {
  start();
  const Json drawn = {{"temperature", 5}, {"seed", 11}, {"max_tokens", 24}};
  const std::string first = choices(kCompletions, completion("Shale", drawn))[0]["text"];
  const auto letter = std::ranges::find_if(first, [](char c) { return c > ' ' && c <= '~'; });
  ASSERT_NE(letter, first.end()) << first;
  Json body = completion("Shale", drawn);
  body.update({{"n", 4}, {"stop", std::string(1, *letter)}});
  const Json all = choices(kCompletions, body);
  EXPECT_EQ(all[0]["text"], first.substr(0, static_cast<std::size_t>(letter - first.begin())));
  EXPECT_EQ(all[0]["finish_reason"], "stop");
  for (const Json& choice : all) {
    EXPECT_EQ(std::string(choice["text"]).find(*letter), std::string::npos);
  }
}

// The others take it from the pool; what is told of the request is told once.
TEST_F(ServerChoicesTest, ComputesAPromptOnceForAllOfItsChoices) {
  start();
  char letter = 'a';
  for (const Json& more : {Json::object(), Json{{"cache_salt", "a room"}}, Json{{"exact", true}},
                           Json{{"context", "Shale splits into thin layers. "}}}) {
    const double before = computed();
    Json body = completion(std::string(300, letter++), {{"n", 4}});
    body.update(more);
    const Json usage = posted(kCompletions, body)["usage"];
    const int tokens = usage["prompt_tokens"];
    EXPECT_GE(tokens, 301);
    EXPECT_EQ(usage["completion_tokens"], 4 * 8);
    const Json& details = usage["prompt_tokens_details"];
    EXPECT_EQ(details["cached_tokens"].get<int>() + details["computed_tokens"].get<int>(), tokens) << more;
    EXPECT_EQ(computed() - before, details["computed_tokens"].get<int>() + 3) << "the others' last token: " << more;
  }
  EXPECT_EQ(metric("vllm:request_max_num_generation_tokens_count{model_name=\"tiny\"}"), 4);
  EXPECT_EQ(metric("vllm:request_success_total{model_name=\"tiny\",finished_reason=\"length\"}"), 4 * 4)
      << "each choice is a request of the engine";
}

// Its log probabilities are told beside the choices.
TEST_F(ServerChoicesTest, AChatsPromptIsToldOnceAndComputedOnce) {
  start();
  const double before = computed();
  const Json answer = posted(kChats, chat(std::string(300, 's'), {{"n", 3}, {"prompt_logprobs", 1}}));
  const int tokens = answer["usage"]["prompt_tokens"];
  EXPECT_EQ(std::ssize(answer["prompt_logprobs"]), tokens);
  EXPECT_EQ(answer["choices"].size(), 3u);
  EXPECT_EQ(computed() - before, tokens + 2) << "the others' last token";
}

TEST_F(ServerChoicesTest, LogsALineForAllChoices) {
  std::mutex mutex;
  std::vector<Json> lines;
  const auto log = std::make_shared<RequestLog>(RequestLog::Form::kJson, LogLevel::kInfo, [&](std::string_view line) {
    const std::lock_guard lock(mutex);
    lines.push_back(Json::parse(line));
  });
  start({.api = {.log = log}});
  const Json answer = posted(kCompletions, completion({"Shale is", "Slate"}, {{"n", 2}}));
  streamed(kCompletions, completion({"Shale is", "Slate"}, {{"n", 2}}));
  posted(kCompletions, completion("Shale is"));
  server_.reset();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["request"], answer["id"]);
  EXPECT_EQ(lines[0]["outcome"], "length");
  EXPECT_EQ(lines[0]["choices"], 4);
  EXPECT_EQ(lines[0]["usage"], answer["usage"]);
  EXPECT_EQ(lines[1]["choices"], 4);
  EXPECT_FALSE(lines[2].contains("choices"));
}

TEST_F(ServerChoicesTest, RendersEveryPrompt) {
  start();
  const Json rendered = posted("/v1/completions/render", {{"prompt", {{5, 6}, {7}}}, {"n", 2}, {"seed", 3}});
  ASSERT_EQ(rendered.size(), 2u);
  EXPECT_EQ(rendered[1]["token_ids"], Json::array({7}));
  EXPECT_EQ(rendered[1]["sampling_params"]["n"], 2);
  EXPECT_NE(rendered[0]["request_id"], rendered[1]["request_id"]);
}

// By the first that is refused, and the places of the others are free again.
TEST_F(ServerChoicesTest, RefusesAllForOne) {
  start({.loop = {.queue_max = 0}});
  for (int i = 0; i < 5; ++i) {
    const auto unknown = post(kCompletions, completion({{5, 6}, {7, 8}, {100000}}));
    ASSERT_EQ(unknown->status, 400) << unknown->body;
    EXPECT_THAT(unknown->body, HasSubstr("vocabulary"));
  }
  const auto too_long = post(kCompletions, completion({"Shale", std::string(3000, 'x')}));
  EXPECT_EQ(too_long->status, 400);
  EXPECT_THAT(too_long->body, HasSubstr("prompt 1 has"));
  EXPECT_EQ(choices(kCompletions, completion("Shale", {{"n", 4}})).size(), 4u);
}

TEST_F(ServerChoicesTest, BoundsWhatOneRequestBrings) {
  start({.loop = {.queue_max = 2000}});
  const std::vector<std::string> most(1024, "a");
  Json body = completion(most, {{"context", std::string(1100, 's')}});
  const auto tokens = post(kCompletions, body);
  EXPECT_EQ(tokens->status, 400);
  EXPECT_THAT(tokens->body, HasSubstr("tokens together"));
  EXPECT_EQ(metric("vllm:request_prompt_tokens_count{model_name=\"tiny\"}"), 0);
  const auto renders = [&](const char* path, Json asked, const Json& more) {
    asked.update(more);
    return post(path + std::string("/render"), asked)->status;
  };
  body = completion(std::vector<std::string>(50, "a"), {{"context", std::string(1100, 's')}});
  EXPECT_EQ(renders(kCompletions, body, Json::object()), 200);
  EXPECT_EQ(renders(kCompletions, body, {{"prompt_logprobs", 20}}), 400) << "each with the likeliest in its place";
  EXPECT_EQ(renders(kChats, chat(std::string(1100, 's')), {{"n", 50}, {"prompt_logprobs", 20}}), 200) << "told once";
}

// More than may ever run and wait at once are sent in vain; others may come again, whole.
TEST_F(BusyServerChoicesTest, AllHavePlacesInTheQueueOrNone) {
  start({.loop = {.queue_max = 2}});
  const auto refused = [&](const char* path, const Json& body) {
    const auto result = post(path, body);
    return Json{result->status, Json::parse(result->body)["error"]["param"]};
  };
  EXPECT_EQ(refused(kChats, chat("x", {{"n", 7}})), (Json{400, "n"}));
  EXPECT_EQ(refused(kCompletions, {{"prompt", {"a", "b", "c", "d"}}, {"n", 2}}), (Json{400, "prompt"}));
  std::vector<std::jthread> asking;
  for (int i = 0; i < 2; ++i)
    asking.emplace_back([&] { post(kChats, chat("Go on.", {{"max_tokens", 700}, {"n", 2}})); });
  ASSERT_TRUE(comes_to("vllm:num_requests_running{model_name=\"tiny\"}", 4));
  const auto busy = post(kChats, chat("x", {{"n", 3}}));
  EXPECT_EQ(busy->status, 429);
  EXPECT_EQ(Json::parse(busy->body)["error"]["code"], "rate_limit_exceeded");
  EXPECT_GE(std::stoi(busy->get_header_value("Retry-After")), 1);
  asking.emplace_back([&] { post(kChats, chat("And we?", {{"n", 2}})); });
  EXPECT_TRUE(comes_to("vllm:num_requests_waiting{model_name=\"tiny\"}", 2)) << "nothing of the other three";
  server_->stop(0ms);
}

TEST_F(BusyServerChoicesTest, ChoicesTakePlacesOfTheirTenant) {
  start({.api = {.api_key = "operator", .tenants = two_tenants("requests=3")}});
  const auto status = [&](const Json& more) {
    const auto result =
        client().Post(kChats, {{"Authorization", "Bearer secret"}}, chat("Go on.", more).dump(), "application/json");
    return result ? result->status : 0;
  };
  EXPECT_EQ(status({{"n", 4}}), 400);
  EXPECT_EQ(status({{"n", 3}}), 200);
  const std::jthread asking([&] { status({{"n", 2}, {"max_tokens", 700}}); });
  ASSERT_TRUE(testing::eventually([&] {
    return client()
        .Get("/metrics", {{"Authorization", "Bearer operator"}})
        ->body.contains("shale_tenant_requests_running{model_name=\"tiny\",tenant=\"ann\"} 2\n");
  }));
  EXPECT_EQ(status({{"n", 2}}), 429) << "one place is left";
  EXPECT_EQ(status({{"max_tokens", 1}}), 200);
  server_->stop(0ms);
}

TEST_F(BusyServerChoicesTest, AClientThatLeavesCancelsAll) {
  start();
  httplib::Client leaving("127.0.0.1", server_->port());
  httplib::Request request;
  request.method = "POST";
  request.path = kChats;
  request.body = chat("Go on.", {{"max_tokens", 700}, {"n", 3}, {"stream", true}}).dump();
  request.set_header("Content-Type", "application/json");
  request.content_receiver = [](const char*, std::size_t, std::uint64_t, std::uint64_t) { return false; };
  leaving.send(request);
  EXPECT_TRUE(comes_to("vllm:request_success_total{model_name=\"tiny\",finished_reason=\"abort\"}", 3));
  EXPECT_TRUE(comes_to("shale_pool_bytes{model_name=\"tiny\",state=\"held\"}", 0));
}

// Here each has one, as the server ends.
TEST_F(BusyServerChoicesTest, TheFirstErrorIsTheEndOfAll) {
  start();
  std::string stream;
  int status = 0;
  const Json asked = chat("Go on.", {{"max_tokens", 700}, {"n", 2}});
  const auto heard = [&](bool streaming) {
    Json body = asked;
    body["stream"] = streaming;
    const auto result = post(kChats, body);
    if (!result) return;
    if (streaming) stream = result->body;
    if (!streaming) status = result->status;
  };
  {
    const std::jthread whole(heard, false), events(heard, true);
    ASSERT_TRUE(comes_to("vllm:num_requests_running{model_name=\"tiny\"}", 4));
    server_->stop(0ms);
  }
  EXPECT_EQ(status, 503);
  const std::size_t error = stream.find("{\"error\":");
  ASSERT_NE(error, std::string::npos) << stream;
  EXPECT_EQ(stream.find("data:", error), std::string::npos) << "nothing comes after it";
}

}  // namespace
}  // namespace shale
