#include "server/answer_request.h"

#include <gmock/gmock.h>

#include "server/answer_json.h"

namespace shale {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ApiResult<AnswerRequest> chat(std::string_view fields) {
  return parse_answer_request(Endpoint::kChat,
                              fmt::format(R"({{"messages": [{{"role": "user", "content": "Hello!"}}]{}{}}})",
                                          fields.empty() ? "" : ", ", fields),
                              {.max_tokens = 300, .seed = 7});
}

ApiResult<AnswerRequest> completion(std::string_view fields) {
  return parse_answer_request(Endpoint::kCompletions, fmt::format("{{{}}}", fields), {.max_tokens = 300, .seed = 7});
}

TEST(AnswerRequest, HasOpenAIsDefaults) {
  const auto request = chat("");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->messages.at(0).role, "user");
  EXPECT_EQ(request->messages.at(0).content, "Hello!");
  EXPECT_EQ(request->request.sampling.temperature, 1);
  EXPECT_EQ(request->request.sampling.top_p, 1);
  EXPECT_EQ(request->request.sampling.seed, 7u);
  EXPECT_EQ(request->request.max_tokens, 300u);
  EXPECT_FALSE(request->stream);
  EXPECT_FALSE(request->request.policy.exact || request->request.policy.method);
  EXPECT_EQ(completion(R"("prompt": "Once")")->request.max_tokens, 16u);
  EXPECT_EQ(chat(R"("seed": -1)")->request.sampling.seed, 7u) << "vLLM's word for none";
}

TEST(AnswerRequest, ReadsEveryField) {
  const auto request = chat(
      R"("model": "m", "stream": true, "stream_options": {"include_usage": true}, "temperature": 0.5, "top_p": 0.9,
         "top_k": 40, "min_p": 0.1, "max_completion_tokens": 20, "seed": -2, "stop": ["\n", "END"], "keep": 0.25,
         "stop_token_ids": [151643, 5], "include_stop_str_in_output": true,
         "method": "snapkv+int8", "user": "somebody", "n": 1, "logprobs": null, "frequency_penalty": 0.5,
         "presence_penalty": -1, "repetition_penalty": 1.25)");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->model, "m");
  EXPECT_TRUE(request->stream && request->include_usage);
  const Request& engine = request->request;
  EXPECT_FLOAT_EQ(engine.sampling.temperature, 0.5F);
  EXPECT_FLOAT_EQ(engine.sampling.top_p, 0.9F);
  EXPECT_EQ(engine.sampling.top_k, 40u);
  EXPECT_FLOAT_EQ(engine.sampling.min_p, 0.1F);
  EXPECT_FLOAT_EQ(engine.sampling.frequency_penalty, 0.5F);
  EXPECT_FLOAT_EQ(engine.sampling.presence_penalty, -1);
  EXPECT_FLOAT_EQ(engine.sampling.repetition_penalty, 1.25F);
  EXPECT_EQ(engine.max_tokens, 20u);
  EXPECT_EQ(engine.sampling.seed, ~std::uint64_t{1});
  EXPECT_THAT(engine.stop, ElementsAre("\n", "END"));
  EXPECT_THAT(engine.stop_tokens, ElementsAre(151643, 5));
  EXPECT_TRUE(engine.include_stop);
  EXPECT_EQ(engine.policy.method->text(), "snapkv+int8");
  EXPECT_EQ(engine.policy.keep, 0.25);
  EXPECT_TRUE(chat(R"("exact": true, "stop": "x")")->request.policy.exact);
}

TEST(AnswerRequest, HasTheServersKvBudgetUnlessItSaysOtherwise) {
  const auto budget = [](std::string_view fields) {
    const auto request = parse_answer_request(Endpoint::kCompletions, fmt::format(R"({{"prompt": "x"{}}})", fields),
                                              {.budget = KvBudgetOptions{.tokens = 512}});
    EXPECT_TRUE(request) << request.error().message;
    return request->request.budget;
  };
  EXPECT_EQ(budget("")->tokens, 512u);
  EXPECT_EQ(budget(R"(, "kv_budget": 256, "kv_eviction": "snapkv", "keep_first_page": true, "kv_eviction_interval": 1,
                      "compaction": "hole_fill")")
                ->tokens,
            256u);
  EXPECT_EQ(budget(R"(, "kv_eviction": "snapkv")")->method, "snapkv");
  EXPECT_TRUE(budget(R"(, "kv_eviction_full_layers": true)")->full_layers);
  EXPECT_EQ(budget(R"(, "kv_eviction_prefill": "chunked")")->prefill, BudgetPrefill::kChunked);
  EXPECT_EQ(budget(R"(, "compaction": "hole_fill")")->compaction, Compaction::kHoleFill);
  EXPECT_EQ(budget(R"(, "kv_budget": 0)"), std::nullopt);
  EXPECT_EQ(budget(R"(, "exact": true)"), std::nullopt);
  EXPECT_EQ(budget(R"(, "method": "int8")"), std::nullopt);
  EXPECT_EQ(completion(R"("prompt": "x", "kv_budget": 64)")->request.budget->method, "paged_eviction");
  EXPECT_TRUE(completion(R"("prompt": "x", "ignore_eos": true)")->request.ignore_end);
  EXPECT_EQ(completion(R"("prompt": "x", "priority": -3)")->request.priority, 3);  // the smaller first, as vLLM has it
}

TEST(AnswerRequest, ReadsWhatIsToldOfTokens) {
  EXPECT_FALSE(chat("")->details.of_answer());
  EXPECT_FALSE(chat(R"("logprobs": false, "top_logprobs": 0)")->details.of_answer());
  EXPECT_EQ(chat(R"("logprobs": true)")->request.logprobs, 0u);
  EXPECT_EQ(chat(R"("logprobs": true, "top_logprobs": 20)")->request.logprobs, 20u);
  EXPECT_TRUE(chat(R"("logprobs": true)")->details.logprobs);
  EXPECT_TRUE(chat(R"("return_token_ids": true)")->details.ids);
  EXPECT_EQ(completion(R"("prompt": "x", "logprobs": 0)")->request.logprobs, 0u);
  EXPECT_EQ(completion(R"("prompt": "x", "logprobs": 5)")->request.logprobs, 5u);
  EXPECT_EQ(completion(R"("prompt": "x", "logprobs": false)")->request.logprobs, std::nullopt);
  EXPECT_EQ(completion(R"("prompt": "x", "logprobs": true)").error().param, "logprobs");
  EXPECT_EQ(completion(R"("prompt": "x", "logprobs": 21)").error().param, "logprobs");
  EXPECT_EQ(completion(R"("prompt": "x", "logprobs": 2, "top_logprobs": 2)").error().param, "top_logprobs");
}

TEST(AnswerRequest, ReadsWhatIsToldOfPrompts) {
  const auto echo = completion(R"("prompt": "x", "echo": true, "logprobs": 1, "max_tokens": 0)");
  EXPECT_TRUE(echo->details.echo && echo->request.prompt_only);
  EXPECT_EQ(echo->request.prompt_logprobs, 1u);
  EXPECT_EQ(echo->details.prompt_logprobs, std::nullopt);
  EXPECT_EQ(completion(R"("prompt": "x", "echo": true)")->request.prompt_logprobs, std::nullopt);
  EXPECT_EQ(completion(R"("prompt": "x", "logprobs": 1)")->request.prompt_logprobs, std::nullopt);
  EXPECT_EQ(completion(R"("prompt": "x", "prompt_logprobs": 0)")->request.prompt_logprobs, 0u);
  EXPECT_EQ(chat(R"("prompt_logprobs": 20)")->details.prompt_logprobs, 20u);
  EXPECT_FALSE(chat("")->details.of_prompt());
  EXPECT_EQ(completion(R"("prompt": "x", "echo": true, "max_tokens": -1)").error().param, "max_tokens");
  EXPECT_EQ(completion(R"("prompt": "x", "max_tokens": 0)").error().param, "max_tokens");
}

TEST(AnswerRequest, ReadsSaltsAsLongAsVllms) {
  const auto salted = [](std::size_t bytes) {
    return chat(fmt::format(R"("cache_salt": "{}")", std::string(bytes, 's')));
  };
  EXPECT_EQ(salted(1024)->request.policy.salt.size(), 1024u);
  EXPECT_EQ(salted(1025).error().param, "cache_salt");
}

TEST(AnswerRequest, ReadsMessagesOfEachKind) {
  const auto request = parse_answer_request(Endpoint::kChat, R"({"messages": [
      {"role": "developer", "content": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": ""},
                                          {"type": "text", "text": "No lists."}]},
      {"role": "user", "content": ""}, {"role": "assistant", "content": "Hm."}]})",
                                            {});
  ASSERT_TRUE(request) << request.error().message;
  ASSERT_EQ(request->messages.size(), 3u);
  EXPECT_EQ(request->messages[0].role, "system");
  EXPECT_EQ(request->messages[0].content, "Be brief.\nNo lists.");
  EXPECT_EQ(request->messages[1].content, "");
  EXPECT_EQ(request->messages[2].role, "assistant");
}

TEST(AnswerRequest, ReadsPromptsOfEachKind) {
  const auto only = [](std::string_view prompt) {
    const auto request = completion(fmt::format(R"("prompt": {})", prompt));
    EXPECT_TRUE(request && request->prompts.size() == 1) << prompt;
    return request->prompts.front();
  };
  EXPECT_EQ(only(R"("Once")").text, "Once");
  EXPECT_EQ(only(R"(["Once"])").text, "Once");
  EXPECT_THAT(only("[5, 6]").tokens, ElementsAre(5, 6));
  EXPECT_THAT(only("[[5, 6]]").tokens, ElementsAre(5, 6));
  EXPECT_EQ(completion(R"("prompt": "Why?", "context": "Because.")")->context, "Because.");
  EXPECT_TRUE(completion(R"("prompt": "Once", "add_special_tokens": true)"));
  EXPECT_EQ(completion(R"("prompt": "Once", "add_special_tokens": false)").error().param, "add_special_tokens");
}

TEST(AnswerRequest, ReadsSeveralPromptsAndChoices) {
  const auto texts = completion(R"("prompt": ["Once", "Twice"], "n": 3, "best_of": 3, "seed": 5)");
  ASSERT_TRUE(texts) << texts.error().message;
  ASSERT_EQ(texts->prompts.size(), 2u);
  EXPECT_EQ(texts->prompts[1].text, "Twice");
  EXPECT_EQ(texts->choices(), 6u);
  const auto tokens = completion(R"("prompt": [[5, 6], [7]])");
  ASSERT_TRUE(tokens) << tokens.error().message;
  ASSERT_EQ(tokens->prompts.size(), 2u);
  EXPECT_THAT(tokens->prompts[1].tokens, ElementsAre(7));
  EXPECT_EQ(chat(R"("n": 128)")->choices(), 128u);
  std::string many = "\"a\"";
  for (int i = 1; i < 1024; ++i) many += ", \"a\"";
  EXPECT_TRUE(completion("\"prompt\": [" + many + "]"));
  EXPECT_EQ(completion("\"prompt\": [" + many + ", \"a\"]").error().param, "prompt");
}

// Alike whatever else the request asks for, where it gives a seed; else no two.
TEST(AnswerRequest, DrawsChoicesBySeedsOfTheirOwn) {
  const auto seeds = [](std::string_view more) {
    const auto request = completion(fmt::format(R"("prompt": ["Once", "Once"], "n": 2{})", more));
    std::vector<std::uint64_t> all;
    for (std::size_t choice = 0; choice < request->choices(); ++choice) all.push_back(request->seed_of(choice));
    return all;
  };
  EXPECT_THAT(seeds(R"(, "seed": 5)"), ElementsAre(5, 6, 5, 6));
  EXPECT_THAT(seeds(""), ElementsAre(7, 8, 9, 10));
}

// What clients of vLLM send to say what it does anyway.
TEST(AnswerRequest, ReadsWhatAsksForNothingMore) {
  const auto request = chat(
      R"("repetition_penalty": 1.0, "min_tokens": 0, "stop_token_ids": [], "include_stop_str_in_output": false,
         "bad_words": [], "guided_json": null, "prompt_logprobs": null, "chat_template_kwargs": {}, "top_k": -1,
         "documents": [], "reasoning_effort": null, "add_special_tokens": false,
         "skip_special_tokens": true, "add_generation_prompt": true, "modalities": ["text"], "use_beam_search": false,
         "messages": [{"role": "assistant", "content": "Hm.", "tool_calls": [], "function_call": null,
                       "reasoning": null, "reasoning_content": ""}],
         "include_reasoning": true, "watermarking": null, "vllm_xargs": {}, "return_prompt_text": false,
         "return_token_offsets": false, "logprob_token_ids": [], "stream": true,
         "stream_options": {"include_usage": false, "continuous_usage_stats": false})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->request.sampling.top_k, 0u) << "all";
  EXPECT_FALSE(request->request.sampling.penalizes());
}

// Benchmarks send all three.
TEST(AnswerRequest, TakesALeastLengthThatIsTheLengthAnyway) {
  const auto request = chat(R"("ignore_eos": true, "min_tokens": 20, "max_tokens": 20)");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->request.max_tokens, 20u);
  EXPECT_TRUE(chat(R"("ignore_eos": true, "min_tokens": 20)"));
}

TEST(AnswerRequest, BoundsNoChatOfItself) {
  const auto request = parse_answer_request(Endpoint::kChat, R"({"messages": [{"role": "user", "content": "x"}]})", {});
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->request.max_tokens, std::nullopt);
  EXPECT_EQ(render_json({}, *request)["sampling_params"]["max_tokens"], nullptr) << "vLLM's word for no bound";
}

// Usage that goes along is a stream's that ends with it.
TEST(AnswerRequest, TellsUsageAlongTheWayBesideThatAtTheEnd) {
  const auto running = [](const char* options) {
    return chat(fmt::format(R"("stream": true, "stream_options": {})", options).c_str())->running_usage;
  };
  EXPECT_TRUE(running(R"({"include_usage": true, "continuous_usage_stats": true})"));
  EXPECT_FALSE(running(R"({"include_usage": true})"));
  EXPECT_FALSE(running(R"({"continuous_usage_stats": true})"));
}

// What is wrong, with the field's name.
TEST(AnswerRequest, RefusesWithTheFieldsName) {
  for (const auto& [fields, param] : std::vector<std::pair<const char*, const char*>>{
           {R"("temperature": "hot")", "temperature"},
           {R"("temperature": -1)", "temperature"},
           {R"("temperature": true)", "temperature"},
           {R"("top_p": 1.5)", "top_p"},
           {R"("max_tokens": 0)", "max_tokens"},
           {R"("max_tokens": -5)", "max_tokens"},
           {R"("max_tokens": 2.5)", "max_tokens"},
           {R"("max_completion_tokens": 1e30)", "max_completion_tokens"},
           {R"("seed": 1.5)", "seed"},
           {R"("priority": "high")", "priority"},
           {R"("priority": 1e12)", "priority"},
           {R"("kv_eviction_prefill": "soon")", "kv_eviction_prefill"},
           {R"("stop": [1])", "stop"},
           {R"("stop": [""])", "stop"},
           {R"("stream": 1)", "stream"},
           {R"("stream_options": {"include_usage": true})", "stream_options"},
           {R"("stream": true, "stream_options": [])", "stream_options"},
           {R"("stream": true, "stream_options": {"include_usage": 1})", "stream_options"},
           {R"("stream": true, "stream_options": {"continuous_usage_stats": 1})", "stream_options"},
           {R"("n": 0)", "n"},
           {R"("n": 129)", "n"},
           {R"("n": 1.5)", "n"},
           {R"("best_of": 2)", "best_of"},
           {R"("n": 2, "best_of": 1)", "best_of"},
           {R"("logprobs": 5)", "logprobs"},
           {R"("top_logprobs": 5)", "top_logprobs"},
           {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs"},
           {R"("return_tokens_as_token_ids": true)", "return_tokens_as_token_ids"},
           {R"("tools": [{}])", "tools"},
           {R"("response_format": {"type": "json_object"})", "response_format"},
           {R"("presence_penalty": 2.5)", "presence_penalty"},
           {R"("frequency_penalty": -2.5)", "frequency_penalty"},
           {R"("modalities": ["text", "audio"])", "modalities"},
           {R"("guided_json": {"type": "object"})", "guided_json"},
           {R"("guided_regex": "a+")", "guided_regex"},
           {R"("guided_choice": ["a", "b"])", "guided_choice"},
           {R"("guided_grammar": "a")", "guided_grammar"},
           {R"("structured_outputs": {"regex": "a+"})", "structured_outputs"},
           {R"("repetition_penalty": 0)", "repetition_penalty"},
           {R"("use_beam_search": true)", "use_beam_search"},
           {R"("min_tokens": 20)", "min_tokens"},
           {R"("min_tokens": 21, "max_tokens": 20, "ignore_eos": true)", "min_tokens"},
           {R"("min_tokens": 20, "max_tokens": 20, "ignore_eos": true, "stop": "x")", "min_tokens"},
           {R"("min_tokens": 20, "max_tokens": 20, "ignore_eos": true, "stop_token_ids": [7])", "min_tokens"},
           {R"("stop_token_ids": 151643)", "stop_token_ids"},
           {R"("stop_token_ids": [-1])", "stop_token_ids"},
           {R"("include_stop_str_in_output": 1)", "include_stop_str_in_output"},
           {R"("bad_words": ["x"])", "bad_words"},
           {R"("allowed_token_ids": [5])", "allowed_token_ids"},
           {R"("skip_special_tokens": false)", "skip_special_tokens"},
           {R"("prompt_logprobs": 21)", "prompt_logprobs"},
           {R"("prompt_logprobs": -1)", "prompt_logprobs"},
           {R"("prompt_logprobs": 1, "stream": true)", "prompt_logprobs"},
           {R"("echo": true)", "echo"},
           {R"("max_completion_tokens": 0)", "max_completion_tokens"},
           {R"("logprob_token_ids": [5])", "logprob_token_ids"},
           {R"("return_prompt_text": true)", "return_prompt_text"},
           {R"("return_token_offsets": true)", "return_token_offsets"},
           {R"("include_reasoning": false)", "include_reasoning"},
           {R"("watermarking": true)", "watermarking"},
           {R"("vllm_xargs": {"x": 1})", "vllm_xargs"},
           {R"("truncate_prompt_tokens": 100)", "truncate_prompt_tokens"},
           {R"("add_special_tokens": true)", "add_special_tokens"},
           {R"("documents": [{"text": "x"}])", "documents"},
           {R"("reasoning_effort": "low")", "reasoning_effort"},
           {R"("thinking_token_budget": 100)", "thinking_token_budget"},
           {R"("repetition_detection": {})", "repetition_detection"},
           {R"("prompt_embeds": "AAAA")", "prompt_embeds"},
           {R"("chat_template": "{{ messages }}")", "chat_template"},
           {R"("chat_template_kwargs": {"enable_thinking": false})", "chat_template_kwargs"},
           {R"("continue_final_message": true)", "continue_final_message"},
           {R"("add_generation_prompt": false)", "add_generation_prompt"},
           {R"("top_k": -2)", "top_k"},
           {R"("keep": 0.5)", "keep"},
           {R"("min_quality": 1.5)", "min_quality"},
           {R"("min_quality": 0.9, "method": "int8")", "min_quality"},
           {R"("method": "nonsense")", "method"},
           {R"("method": "int8", "exact": true)", "method"},
           {R"("kv_budget": 64, "exact": true)", "kv_budget"},
           {R"("kv_budget": "64")", "kv_budget"},
           {R"("kv_budget": 64, "compaction": "magic")", "compaction"},
           {R"("kv_budget": 64, "kv_eviction_prefill": "never")", "kv_eviction_prefill"},
           {R"("messages": [])", "messages"},
           {R"("messages": [{"role": "wizard", "content": "x"}])", "messages"},
           {R"("messages": [{"role": "user"}])", "messages"},
           {R"("messages": ["x"])", "messages"},
           {R"("messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}])", "messages"},
           {R"("messages": [{"role": "assistant", "content": "", "function_call": {"name": "f"}}])", "messages"},
           {R"("messages": [{"role": "assistant", "content": "", "reasoning": "Hm."}])", "messages"},
           {R"("messages": [{"role": "assistant", "content": "", "reasoning_content": "Hm."}])", "messages"},
           {R"("messages": [{"role": "user", "content": [{"type": "image_url"}]}])", "messages"}}) {
    const auto request = chat(fields);
    ASSERT_FALSE(request) << fields;
    EXPECT_EQ(request.error().status, 400) << fields;
    EXPECT_EQ(request.error().param, param) << fields;
    EXPECT_THAT(request.error().message, HasSubstr(param)) << fields;
  }
  for (const char* fields : {"", R"("prompt": 5)", R"("prompt": "")", R"("prompt": [])", R"("prompt": ["a", ""])",
                             R"("prompt": [[5], []])", R"("prompt": ["a", 5])", R"("prompt": [["a"]])",
                             R"("prompt": [5, "a"])", R"("prompt": [-1])", R"("prompt": [99999999999])"}) {
    const auto request = completion(fields);
    ASSERT_FALSE(request) << fields;
    EXPECT_EQ(request.error().param, "prompt") << fields;
  }
}

TEST(AnswerRequest, RefusesWhatIsNoJsonOrTooDeep) {
  for (const std::string& body : std::vector<std::string>{
           "", "{", "[]", R"({"prompt": "x", "temperature": 1e999})", R"({"prompt": "x", "temperature": NaN})", "5",
           "{\"prompt\": \"\xff\"}", "nul", std::string(100000, '['), std::string(33, '{')}) {
    const auto request = parse_answer_request(Endpoint::kCompletions, body, {});
    ASSERT_FALSE(request);
    EXPECT_EQ(request.error().status, 400);
    EXPECT_THAT(request.error().message, HasSubstr("the body"));
  }
  // Brackets in strings are no depth.
  EXPECT_TRUE(completion("\"prompt\": \"\\\"" + std::string(100, '[') + "\""));
}

}  // namespace
}  // namespace shale
