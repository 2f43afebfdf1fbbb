#include "server/answer_json.h"

#include <gtest/gtest.h>

#include "server/metrics_text.h"

namespace shale {
namespace {

Response answer() {
  Response response;
  response.text = "A rock.";
  response.tokens = {1, 2, 3};
  response.prompt_tokens = 40;
  for (const auto& [name, tokens] : {std::pair{"pool", 16}, {"memory", 0}, {"disk", 10}, {"remote", 2}}) {
    response.cached.add(name, static_cast<std::uint64_t>(tokens));
  }
  response.lossy = true;
  response.stop = StopReason::kEndOfTurn;
  return response;
}

AnswerHead head(Endpoint endpoint) {
  return {.endpoint = endpoint, .id = "id-1", .model = "m", .fingerprint = "fp_1", .created = 5};
}

// Of choices that ended, so many of each prompt.
Json used_by(const std::vector<Response>& responses, std::size_t of_prompt = 1) {
  std::vector<const Response*> all;
  for (const Response& response : responses) all.push_back(&response);
  return usage_json(usage_of(all, of_prompt));
}

Json whole(Endpoint endpoint, const Response& response) {
  Json json = answer_json(head(endpoint));
  json["choices"].push_back(choice_json(head(endpoint), 0, response));
  return json;
}

TEST(AnswerJson, SaysWhatWasUsedAndWhereFrom) {
  const Json usage = used_by({answer()});
  EXPECT_EQ(usage["prompt_tokens"], 40);
  EXPECT_EQ(usage["completion_tokens"], 3);
  EXPECT_EQ(usage["total_tokens"], 43);
  const Json& details = usage["prompt_tokens_details"];
  EXPECT_EQ(details["cached_tokens"], 28);
  EXPECT_EQ(details["computed_tokens"], 12);
  EXPECT_EQ(details["cached_from"], (Json{{"pool", 16}, {"memory", 0}, {"disk", 10}, {"remote", 2}}));
  EXPECT_EQ(details["lossy"], true);
  EXPECT_TRUE(details["expected_quality"].is_null()) << "a KV budget's loss, say, was never measured";
  EXPECT_EQ(details["quality_metric"], "agreement");
  EXPECT_TRUE(details["compressed"].empty());
}

TEST(AnswerJson, CountsTheTokenThatEndedTheAnswer) {
  Response response = answer();
  response.end_token = 9;
  EXPECT_EQ(used_by({response})["completion_tokens"], 4);
  EXPECT_EQ(used_by({response})["total_tokens"], 44);
  response.tokens.clear();
  RequestMetrics metrics;
  metrics.finish(response, 1);
  EXPECT_EQ(metrics.generated_tokens, 1u);
  EXPECT_EQ(metrics.answer_lengths.sum(), 1);
  EXPECT_EQ(metrics.ttft_seconds.count(), 1u) << "it was waited for like any other";
  EXPECT_EQ(metrics.tpot_seconds.count(), 0u);
}

TEST(AnswerJson, CountsNothingAsComputedThatNeverBegan) {
  Response response;
  response.prompt_tokens = 40;
  response.begun = false;
  const Json usage = used_by({response});
  EXPECT_EQ(usage["prompt_tokens"], 40);
  EXPECT_EQ(usage["prompt_tokens_details"]["computed_tokens"], 0);
}

TEST(AnswerJson, SaysWhichFormsServedAndWhatIsExpectedOfThem) {
  Response response = answer();
  response.sources = {{.where = "pool", .tokens = 16},
                      {.where = "disk", .method = {.scorer = "knorm", .quantizer = "int8"}, .keep = 0.5, .tokens = 10},
                      {.where = "remote", .method = {.scorer = "", .quantizer = "kivi4"}, .tokens = 2}};
  response.metric = "f1";
  response.sources[1].quality = 0.9;
  response.sources[2].quality = 0.97;
  const Json details = used_by({response})["prompt_tokens_details"];
  EXPECT_EQ(details["expected_quality"], 0.9) << "of the least";
  EXPECT_EQ(details["quality_metric"], "f1");
  ASSERT_EQ(details["compressed"].size(), 2u);
  EXPECT_EQ(
      details["compressed"][0],
      (Json{{"from", "disk"}, {"tokens", 10}, {"method", "knorm+int8"}, {"keep", 0.5}, {"expected_quality", 0.9}}));
  response.sources[2].quality.reset();
  EXPECT_TRUE(used_by({response})["prompt_tokens_details"]["expected_quality"].is_null()) << "one is not known";
  response.lossy = false;
  EXPECT_EQ(used_by({response})["prompt_tokens_details"]["expected_quality"], 1);
}

// A prompt counts once, as of the choice that computed it; answers all count, and no loss is kept quiet.
TEST(AnswerJson, SumsUpWhatChoicesUsed) {
  Response first = answer(), second = answer(), other = answer();
  first.lossy = second.lossy = other.lossy = false;
  first.cached = {};  // it computed what the second found
  first.cached.add("pool", 0);
  second.cached = {};
  second.cached.add("pool", 39);
  const Json usage = used_by({first, second, other, other}, 2);
  EXPECT_EQ(usage["prompt_tokens"], 80);
  EXPECT_EQ(usage["completion_tokens"], 12);
  EXPECT_EQ(usage["total_tokens"], 92);
  const Json& details = usage["prompt_tokens_details"];
  EXPECT_EQ(details["cached_tokens"], 28) << "of the other prompt";
  EXPECT_EQ(details["computed_tokens"], 40 + 12);
  EXPECT_EQ(details["lossy"], false);
  EXPECT_EQ(details["expected_quality"], 1);

  second.lossy = true;
  second.sources = {
      {.where = "disk", .method = {.scorer = "knorm", .quantizer = "int8"}, .keep = 0.5, .tokens = 10, .quality = 0.9}};
  const Json lossy = used_by({first, second}, 2)["prompt_tokens_details"];
  EXPECT_EQ(lossy["lossy"], true);
  EXPECT_EQ(lossy["expected_quality"], 0.9);
  EXPECT_EQ(lossy["compressed"].size(), 1u);
}

TEST(AnswerUsage, HasTheTimesOfWhoWasFirstAndTheLongestGap) {
  Response early = answer(), late = answer();
  early.queue_seconds = 1;
  early.ttft_seconds = 2;
  early.tpot_seconds = 0.5;
  early.gaps_seconds = {0.5F, 0.5F};
  late.queue_seconds = 3;
  late.ttft_seconds = 4;
  late.tokens = {1, 2, 3, 4, 5};
  late.tpot_seconds = 2;
  late.gaps_seconds = {1, 1, 5, 1};
  const Response* const both[] = {&late, &early};
  const AnswerUsage usage = usage_of(both, 2);
  EXPECT_EQ(usage.choices, 2u);
  EXPECT_EQ(usage.queue_seconds, 1);
  EXPECT_EQ(usage.ttft_seconds, 2);
  EXPECT_EQ(usage.tpot_seconds, (2 * 0.5 + 4 * 2) / 6);
  EXPECT_EQ(usage.longest_gap_seconds, 5);
}

TEST(AnswerJson, IsOpenAIs) {
  const Json chat = whole(Endpoint::kChat, answer());
  EXPECT_EQ(chat["object"], "chat.completion");
  EXPECT_EQ(chat["choices"][0]["message"]["content"], "A rock.");
  EXPECT_EQ(chat["choices"][0]["finish_reason"], "stop");
  const Json completion = whole(Endpoint::kCompletions, answer());
  EXPECT_EQ(completion["object"], "text_completion");
  EXPECT_EQ(completion["choices"][0]["text"], "A rock.");

  EXPECT_EQ(role_chunk(head(Endpoint::kChat), 0)["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(text_chunk(head(Endpoint::kChat), 0, "A")["choices"][0]["delta"]["content"], "A");
  EXPECT_TRUE(text_chunk(head(Endpoint::kChat), 0, "A")["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(text_chunk(head(Endpoint::kCompletions), 0, "A")["choices"][0]["text"], "A");
  EXPECT_EQ(end_chunk(head(Endpoint::kChat), 0, answer())["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(usage_chunk(head(Endpoint::kChat), {})["choices"].empty());
}

TEST(AnswerJson, RendersWhatDecidesAnAnswerElsewhere) {
  const auto rendered = [](std::string_view fields) {
    auto request = parse_answer_request(Endpoint::kCompletions, fmt::format(R"({{"prompt": "x"{}}})", fields), {});
    EXPECT_TRUE(request) << request.error().message;
    request->request.policy.salt = "a tenant's, of that";
    return render_json(head(Endpoint::kCompletions), *request)[0];
  };
  const Json plain = rendered(""), other = rendered(R"(, "seed": -5, "cache_salt": "s")");
  EXPECT_FALSE(plain.contains("cache_salt") || plain["sampling_params"].contains("seed"));
  EXPECT_EQ(other["sampling_params"]["seed"], -5);
  EXPECT_EQ(other["cache_salt"], "s") << "as it was sent";
}

TEST(AnswerJson, CallsACutAnswerOne) {
  Response cut = answer();
  for (const StopReason stop : {StopReason::kLength, StopReason::kContextFull}) {
    cut.stop = stop;
    EXPECT_EQ(whole(Endpoint::kChat, cut)["choices"][0]["finish_reason"], "length");
  }
}

TEST(AnswerJson, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(event(Json{{"text", "\xe2\x82"}}), "data: {\"text\":\"\xef\xbf\xbd\"}\n\n");
}

TEST(ApiErrors, HaveStatusesThatClientsUnderstand) {
  EXPECT_EQ(refusal({ErrorCode::kInvalidArgument, "x"}).status, 400);
  EXPECT_EQ(refusal({ErrorCode::kFull, "x"}).status, 400);
  EXPECT_EQ(refusal({ErrorCode::kBusy, "x"}).status, 429);
  EXPECT_EQ(refusal({ErrorCode::kCancelled, "x"}).status, 503);
  EXPECT_EQ(failure({ErrorCode::kFull, "x"}).status, 503);
  EXPECT_EQ(failure({ErrorCode::kIo, "x"}).status, 500);
  const Json json = to_json(ApiError{.status = 429, .message = "later", .code = "rate_limit_exceeded"});
  EXPECT_EQ(json["error"]["type"], "rate_limit_error");
  EXPECT_EQ(json["error"]["code"], "rate_limit_exceeded");
  EXPECT_TRUE(json["error"]["param"].is_null());
}

TEST(Metrics, AreLinesThatPrometheusReads) {
  ServerMetrics metrics;
  metrics.pages_total = 10;
  metrics.pages_free = 4;
  metrics.pages_evictable = 1;
  metrics.page_bytes = 100;
  metrics.tiers.push_back({.name = "disk", .capacity_bytes = 1000, .used_bytes = 30, .stats = {}, .speed = {}});
  metrics.store.saves_left = 2;
  metrics.store.moves_left = 3;
  metrics.requests.finish(answer(), 2.0);
  const std::string text = metrics_text(metrics, "a \"model\"");
  for (const char* line : {
           "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"a \\\"model\\\"\"} 0\n",
           "vllm:kv_cache_usage_perc{model_name=\"a \\\"model\\\"\"} 0.5\n",
           "shale_pool_bytes{model_name=\"a \\\"model\\\"\",state=\"kept\"} 100\n",
           "shale_cache_saves_left{model_name=\"a \\\"model\\\"\"} 2\n",
           "shale_cache_moves_left{model_name=\"a \\\"model\\\"\"} 3\n",
           "vllm:prompt_tokens_total{model_name=\"a \\\"model\\\"\"} 40\n",
           "vllm:request_success_total{model_name=\"a \\\"model\\\"\",finished_reason=\"stop\"} 1\n",
           "shale_cached_tokens_total{model_name=\"a \\\"model\\\"\",source=\"disk\"} 10\n",
           "shale_tier_used_bytes{model_name=\"a \\\"model\\\"\",tier=\"disk\"} 30\n",
           "vllm:e2e_request_latency_seconds_bucket{model_name=\"a \\\"model\\\"\",le=\"1.5\"} 0\n",
           "vllm:e2e_request_latency_seconds_bucket{model_name=\"a \\\"model\\\"\",le=\"2\"} 1\n",
           "vllm:e2e_request_latency_seconds_bucket{model_name=\"a \\\"model\\\"\",le=\"+Inf\"} 1\n",
           "vllm:e2e_request_latency_seconds_sum{model_name=\"a \\\"model\\\"\"} 2\n",
           "vllm:e2e_request_latency_seconds_count{model_name=\"a \\\"model\\\"\"} 1\n",
       }) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

// Those that vLLM's own dashboard shows.
TEST(Metrics, TellHowLongRequestsTookWhere) {
  Response response = answer();
  response.queue_seconds = 1;
  response.ttft_seconds = 4;
  response.tpot_seconds = 0.5;
  ServerMetrics metrics;
  metrics.requests.finish(response, 5);
  metrics.requests.longest_answers.observe(3);
  const std::string text = metrics_text(metrics, "m");
  for (const char* line : {"vllm:request_prefill_time_seconds_sum{model_name=\"m\"} 3\n",
                           "vllm:request_decode_time_seconds_sum{model_name=\"m\"} 1\n",
                           "vllm:request_max_num_generation_tokens_sum{model_name=\"m\"} 3\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

TEST(Histogram, PutsBoundsIntoTheirOwnBucket) {
  static constexpr std::array kBounds = {1.0, 2.0};
  Histogram histogram(kBounds);
  for (const double value : {0.5, 1.0, 1.5, 9.0}) histogram.observe(value);
  EXPECT_EQ(std::vector<std::uint64_t>(histogram.counts().begin(), histogram.counts().end()),
            (std::vector<std::uint64_t>{2, 1, 1}));
  EXPECT_EQ(histogram.count(), 4u);
  EXPECT_EQ(histogram.sum(), 12);
}

}  // namespace
}  // namespace shale
