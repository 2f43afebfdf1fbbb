// How Api reads requests for answers.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "core/random.h"
#include "server/api.h"
#include "server/prompt_length.h"

namespace shale {
namespace {

// Tokens that one request may bring, over all of its choices, with the likeliest that are told in their place: each
// choice holds its own while it runs or waits.
constexpr std::size_t kTokensTogetherMax = std::size_t{1} << 20;

// `context`: tokens before it that are stored; empty: none.
void give_spans(const Tokenizer& tokenizer, const std::vector<Token>& context, bool echo, AnswerPrompt& prompt) {
  const bool whole = !prompt.tokens.empty() && context.empty();
  if (echo && prompt.text.empty()) prompt.text = tokenizer.text(prompt.tokens, true);
  if (!context.empty()) prompt.spans.push_back({context, true, "context"});
  std::vector<Token> tokens = prompt.tokens.empty() ? tokenizer.tokenize(prompt.text, true) : std::move(prompt.tokens);
  prompt.spans.push_back({std::move(tokens), false, "completion"});
  std::vector<Token>& first = prompt.spans.front().tokens;
  if (whole || !tokenizer.adds_bos() || (!first.empty() && first.front() == tokenizer.bos())) return;
  first.insert(first.begin(), tokenizer.bos());
  prompt.bos_added = true;
}

}  // namespace

// The body, with its prompts as spans.
ApiResult<AnswerRequest> Api::read(Endpoint endpoint, const std::string& body, int tenant) const {
  auto request = parse_answer_request(
      endpoint, body, {.max_tokens = options_.max_tokens, .seed = random_number(), .budget = options_.budget});
  if (!request) return request;
  std::string& salt = request->request.policy.salt;
  salt = salt_of(options_.shared_cache ? std::string_view() : name_of(tenant), salt);
  if (tenant >= 0) {
    request->request.tenant = tenants_.at(tenant).name;
    request->request.tenant_weight = tenants_.at(tenant).weight;
  }
  if (!request->model.empty() && request->model != options_.model_name) {
    return std::unexpected(
        ApiError{.status = 404,
                 .message = fmt::format("model {} is not served here, {} is", request->model, options_.model_name),
                 .param = "model",
                 .code = "model_not_found"});
  }
  auto error = check_choices(*request, tenant);
  if (!error) error = endpoint == Endpoint::kChat ? read_chat(*request) : read_completions(*request);
  if (error) return std::unexpected(std::move(*error));
  if (request->request.policy.named() && !request->prompts.front().spans.front().store) {
    return std::unexpected(ApiError{
        .message = "a method is applied to what comes before the question, and there is nothing: give a chat a system "
                   "message or earlier turns, a completion a `context`",
        .param = "method"});
  }
  return request;
}

// Whether so many can ever be taken.
std::optional<ApiError> Api::check_choices(const AnswerRequest& request, int tenant) const {
  const std::uint32_t own = tenant < 0 ? 0 : places_of(tenants_.at(tenant), options_.tenant_requests);
  const std::uint32_t all = loop_.requests_max(), most = own > 0 ? std::min(own, all) : all;
  if (request.choices() <= most) return std::nullopt;
  return ApiError{
      .message = fmt::format("the request asks for {} answers (prompts: {}, n: {}), and no more than {} may "
                             "run and wait at once: send it in parts",
                             request.choices(), request.prompts.size(), request.n, most),
      .param = request.prompts.size() > 1 ? "prompt" : "n"};
}

// Before they are tokenized.
std::optional<ApiError> Api::check_texts(const AnswerRequest& request, std::span<const std::string_view> texts,
                                         std::size_t prompt) const {
  const bool special = request.endpoint == Endpoint::kCompletions;
  const auto excess = excess_of(texts, special, model_.context_max + request.request.prompt_only, tokenizer_);
  return excess ? std::optional(too_long(request, prompt, *excess)) : std::nullopt;
}

// `together`: what all choices of the prompts before bring, to which it adds this one's.
std::optional<ApiError> Api::check_length(const AnswerRequest& request, std::size_t prompt,
                                          std::size_t& together) const {
  const std::uint32_t tokens = request.prompts[prompt].length();
  if (tokens >= model_.context_max + request.request.prompt_only) {
    return too_long(request, prompt, fmt::format("{} tokens", tokens));
  }
  const std::size_t likeliest = request.request.prompt_logprobs.value_or(0);
  const std::size_t tell = request.endpoint == Endpoint::kChat ? 1 : request.n;  // choices, of the prompt
  together += tokens * (request.n + tell * likeliest);
  const std::size_t most = std::max(kTokensTogetherMax, model_.context_max * (1 + likeliest));
  if (together <= most) return std::nullopt;
  return ApiError{
      .message = fmt::format("the prompts of all choices{} have more than {} tokens together, which is what one "
                             "request may bring: send it in parts",
                             likeliest > 0 ? ", with the likeliest that are told of them," : "", most),
      .param = "prompt"};
}

ApiError Api::too_long(const AnswerRequest& request, std::size_t prompt, std::string_view what) const {
  const std::string which = request.prompts.size() > 1 ? fmt::format("prompt {}", prompt) : "the prompt";
  // In words by which clients know it (LiteLLM reads no code).
  return {
      .message = fmt::format("this model's maximum context length is {} tokens, the answer included, and {} has {}: "
                             "shorten it",
                             model_.context_max, which, what),
      .param = request.endpoint == Endpoint::kChat ? "messages" : "prompt",
      .code = "context_length_exceeded"};
}

std::optional<ApiError> Api::read_chat(AnswerRequest& request) const {
  std::vector<std::string_view> texts;
  for (const ChatMessage& message : request.messages) texts.push_back(message.content);
  if (auto error = check_texts(request, texts, 0)) return error;
  // An exact answer depends on what was sent, not on what is kept.
  if (!request.request.policy.exact) answer_tokens_.recall(request.messages, request.request.policy.salt);
  auto spans = chat_prompt(tokenizer_, request.messages);
  if (!spans) {
    ApiError error = shale::refusal(spans.error());
    error.param = "messages";
    return error;
  }
  request.prompts.front().spans = std::move(*spans);
  std::size_t together = 0;
  return check_length(request, 0, together);
}

std::optional<ApiError> Api::read_completions(AnswerRequest& request) const {
  std::vector<Token> context;
  std::size_t together = 0;
  for (std::size_t i = 0; i < request.prompts.size(); ++i) {
    AnswerPrompt& prompt = request.prompts[i];
    const std::string_view texts[] = {request.context, prompt.text};
    const auto unread = std::span(texts).subspan(i == 0 ? 0 : 1);  // the context was looked at with the first
    if (auto error = check_texts(request, unread, i)) return error;
    if (i == 0 && !request.context.empty()) context = tokenizer_.tokenize(request.context, true);
    give_spans(tokenizer_, context, request.details.echo, prompt);
    if (auto error = check_length(request, i, together)) return error;
  }
  return std::nullopt;
}

}  // namespace shale
