#include "server/answer_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "server/json_fields.h"

namespace shale {
namespace {

constexpr std::size_t kMessagesMax = 2048;  // as OpenAI has it; templates take a tenth of a millisecond for each
constexpr std::size_t kPromptsMax = 1024;   // as many as the engine lets wait where nothing else is configured
constexpr std::uint32_t kChoicesMax = 128;  // of a prompt, as OpenAI has it
constexpr std::size_t kStopsMax = 16, kStopBytesMax = 1024, kStopTokensMax = 256;
constexpr std::size_t kSaltBytesMax = 1024;  // as vLLM has it
constexpr std::uint32_t kLogprobsMax = 20;   // as vLLM has it where nothing else is configured
constexpr int kPriorityMax = 1 << 20;
constexpr std::uint32_t kTokensMax = std::uint32_t{1} << 24;

constexpr auto kRoles = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"system", "system"}, {"developer", "system"}, {"user", "user"}, {"assistant", "assistant"}, {"tool", "tool"}});

void read_stop(JsonFields& fields, std::vector<std::string>& stop) {
  const Json* field = fields.find("stop");
  if (!field) return;
  const Json list = field->is_string() ? Json::array({*field}) : *field;
  const auto usable = [](const Json& text) {
    return text.is_string() && !text.get_ref<const std::string&>().empty() &&
           text.get_ref<const std::string&>().size() <= kStopBytesMax;
  };
  if (!list.is_array() || list.size() > kStopsMax || !std::ranges::all_of(list, usable)) {
    return fields.fail(
        "stop", fmt::format("must be a text or a list of at most {}, each of 1 to {} bytes", kStopsMax, kStopBytesMax));
  }
  stop = list.get<std::vector<std::string>>();
}

bool is_token(const Json& json) {
  return json.is_number_unsigned() && json.get<std::uint64_t>() <= std::numeric_limits<Token>::max();
}

void read_stop_tokens(JsonFields& fields, std::vector<Token>& tokens) {
  const Json* field = fields.find("stop_token_ids");
  if (!field) return;
  if (!field->is_array() || field->size() > kStopTokensMax || !std::ranges::all_of(*field, is_token)) {
    return fields.fail("stop_token_ids", fmt::format("must be a list of at most {} tokens", kStopTokensMax));
  }
  tokens = field->get<std::vector<Token>>();
}

void read_sampling(JsonFields& fields, SamplingOptions& sampling) {
  fields.number("temperature", sampling.temperature, 0, 100);
  fields.number("top_p", sampling.top_p, 0, 1);
  // -1 is vLLM's word for all.
  if (const Json* k = fields.find("top_k"); !k || *k != -1) fields.whole("top_k", sampling.top_k, 0u, kTokensMax);
  fields.number("min_p", sampling.min_p, 0, 1);
  fields.number("frequency_penalty", sampling.frequency_penalty, -2, 2);
  fields.number("presence_penalty", sampling.presence_penalty, -2, 2);
  fields.number("repetition_penalty", sampling.repetition_penalty, 0.01, 100);
}

// Where nothing ends an answer before `max_tokens` it asks for nothing more.
void read_min_tokens(JsonFields& fields, const Request& request) {
  std::uint32_t tokens = 0;
  fields.whole("min_tokens", tokens, 0u, kTokensMax);
  if (tokens == 0) return;
  if (request.max_tokens && tokens > *request.max_tokens) return fields.fail("min_tokens", "is above `max_tokens`");
  if (request.ignore_end && request.stop.empty() && request.stop_tokens.empty()) return;
  fields.fail("min_tokens", "is supported beside `ignore_eos` alone, without `stop`: an answer has `max_tokens` then");
}

void read_logprobs(JsonFields& fields, bool chat, std::optional<std::uint32_t>& logprobs) {
  bool wanted = false;
  std::uint32_t top = 0;
  if (chat) {
    fields.flag("logprobs", wanted);
    fields.whole("top_logprobs", top, 0u, kLogprobsMax);
    if (top > 0 && !wanted) return fields.fail("top_logprobs", "is beside `logprobs`: set it to true");
  } else {
    const Json* field = fields.find("logprobs");
    wanted = field && *field != false;
    if (wanted) fields.whole("logprobs", top, 0u, kLogprobsMax);
    fields.refuse("top_logprobs", 0, "is for chats: `logprobs` says how many");
  }
  if (wanted) logprobs = top;
}

// What a completion's `echo` repeats has log probabilities where its answer has.
void read_prompt_logprobs(JsonFields& fields, bool chat, AnswerRequest& request) {
  TokenDetails& details = request.details;
  if (chat) {
    fields.refuse("echo", false, "is for completions: a chat's answer does not repeat its messages");
  } else {
    fields.flag("echo", details.echo);
  }
  std::uint32_t top = 0;
  fields.whole("prompt_logprobs", top, 0u, kLogprobsMax);
  if (fields.find("prompt_logprobs")) {
    if (request.stream) {
      return fields.fail("prompt_logprobs",
                         "is not for streams: leave `stream` out, or, of a completion, set `echo` and "
                         "`logprobs`, which are streamed");
    }
    details.prompt_logprobs = top;
  }
  const std::optional<std::uint32_t> echoed = details.echo ? details.logprobs : std::nullopt;
  request.request.prompt_logprobs = std::max(details.prompt_logprobs, echoed);
}

void read_length(JsonFields& fields, bool echo, Request& request) {
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    if (!fields.find(name)) continue;
    std::uint32_t tokens = 0;
    fields.whole(name, tokens, 0u, kTokensMax);
    request.max_tokens = tokens;
    if (tokens == 0 && !echo) {
      return fields.fail(name, "is 0, which is for completions with `echo`: ask for at least one token");
    }
  }
  request.prompt_only = request.max_tokens == 0;
}

void read_stream_options(JsonFields& fields, AnswerRequest& request) {
  const Json* options = fields.find("stream_options");
  if (!options) return;
  if (!request.stream) return fields.fail("stream_options", "is for streams: set `stream`");
  if (!options->is_object()) return fields.fail("stream_options", "must be an object");
  JsonFields inner(*options);
  inner.flag("include_usage", request.include_usage);
  inner.flag("continuous_usage_stats", request.running_usage);
  request.running_usage = request.running_usage && request.include_usage;
  if (inner.error()) return fields.fail("stream_options", inner.error()->message);
  request.warning = inner.misspelt();
}

// -1 is vLLM's word for none.
void read_seed(JsonFields& fields, std::optional<std::int64_t>& seed) {
  const Json* field = fields.find("seed");
  if (!field || *field == -1) return;
  if (!field->is_number_integer()) return fields.fail("seed", "must be a whole number");
  seed =
      field->is_number_unsigned() ? static_cast<std::int64_t>(field->get<std::uint64_t>()) : field->get<std::int64_t>();
}

// As vLLM has it: the smaller goes first.
void read_priority(JsonFields& fields, int& priority) {
  const Json* field = fields.find("priority");
  if (!field) return;
  const bool whole =
      field->is_number_integer() && field->get<double>() >= -kPriorityMax && field->get<double>() <= kPriorityMax;
  if (!whole)
    return fields.fail("priority", fmt::format("must be a whole number from {} to {}", -kPriorityMax, kPriorityMax));
  priority = -field->get<int>();
}

void read_policy(JsonFields& fields, RequestPolicy& policy) {
  fields.text("cache_salt", policy.salt, kSaltBytesMax);
  if (fields.find("cache_salt") && policy.salt.empty()) fields.fail("cache_salt", "must not be empty: leave it out");
  fields.flag("exact", policy.exact);
  fields.number("keep", policy.keep, 0, 1);
  fields.number("min_quality", policy.quality_min, 0, 1);
  std::string method;
  fields.text("method", method);
  if (method.empty()) {
    if (fields.find("keep")) fields.fail("keep", "says how much of the context a `method` keeps: name one");
    return;
  }
  if (policy.exact) return fields.fail("method", "excludes `exact`");
  if (policy.quality_min > 0) return fields.fail("min_quality", "is for what the server chooses: `method` excludes it");
  const auto parsed = Method::parse(method);
  const Status known = parsed ? parsed->check() : std::unexpected(parsed.error());
  if (!known) return fields.fail("method", "is not one that contexts can be stored by: " + known.error().message);
  policy.method = *parsed;
}

// Fields that had another name. One that is not read would change the answer unnoticed.
constexpr std::array<std::pair<const char*, const char*>, 5> kRenamedFields = {{
    {"page_budget", "kv_budget"},
    {"evict", "kv_eviction"},
    {"evict_full_layers", "kv_eviction_full_layers"},
    {"evict_interval", "kv_eviction_interval"},
    {"evict_prefill", "kv_eviction_prefill"},
}};

void refuse_renamed(JsonFields& fields) {
  for (const auto& [old_name, new_name] : kRenamedFields) {
    if (fields.find(old_name)) return fields.fail(old_name, fmt::format("is called `{}` now", new_name));
  }
}

void read_budget(JsonFields& fields, const RequestPolicy& policy, std::optional<KvBudgetOptions>& budget) {
  KvBudgetOptions options = budget.value_or(KvBudgetOptions());
  options.tokens = budget && !policy.exact && !policy.method ? budget->tokens : 0;
  std::string compaction(to_string(options.compaction)), prefill(to_string(options.prefill));
  fields.whole("kv_budget", options.tokens, 0u, kTokensMax);
  fields.text("kv_eviction", options.method);
  fields.flag("kv_eviction_full_layers", options.full_layers);
  fields.flag("keep_first_page", options.keep_first_page);
  fields.whole("kv_eviction_interval", options.interval, 1u, kTokensMax);
  fields.text("compaction", compaction);
  fields.text("kv_eviction_prefill", prefill);
  const auto cut = parse_budget_prefill(prefill);
  if (!cut) return fields.fail("kv_eviction_prefill", "is unknown: " + cut.error().message);
  options.prefill = *cut;
  const auto closed = parse_compaction(compaction);
  if (!closed) return fields.fail("compaction", "is unknown: " + closed.error().message);
  options.compaction = *closed;
  if (options.tokens && policy.exact) return fields.fail("kv_budget", "excludes `exact`: tokens are dropped");
  budget = options.tokens ? std::optional(options) : std::nullopt;
}

// Refuses what OpenAI or vLLM has and this server has not.
void refuse_unsupported(JsonFields& fields, bool chat) {
  fields.refuse("suffix", "", "is not supported: there is no infilling");
  fields.refuse("logit_bias", Json::object(), "is not supported");
  fields.refuse("response_format", {{"type", "text"}}, "is not supported: answers are text");
  fields.refuse("tools", Json::array(), "is not supported: put descriptions of tools into the system message");
  fields.refuse("functions", Json::array(), "is not supported");
  fields.refuse("modalities", Json::array({"text"}), "is not supported: answers are text");
  for (const char* name : {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"}) {
    fields.refuse(name, nullptr, "is not supported: answers have no grammar");
  }
  fields.refuse("use_beam_search", false, "is not supported");
  fields.refuse("bad_words", Json::array(), "is not supported");
  fields.refuse("allowed_token_ids", nullptr, "is not supported");
  fields.refuse("skip_special_tokens", true, "is not supported: control tokens have no text");
  fields.refuse("return_tokens_as_token_ids", false, "is not supported: `return_token_ids` tells them");
  fields.refuse("logprob_token_ids", Json::array(), "is not supported");
  fields.refuse("return_prompt_text", false, "is not supported: `/render` gives the prompt's tokens");
  fields.refuse("return_token_offsets", false, "is not supported");
  fields.refuse("include_reasoning", true, "is not supported: reasoning is part of the content");
  fields.refuse("watermarking", false, "is not supported");
  fields.refuse("vllm_xargs", Json::object(), "is not supported");
  fields.refuse("truncate_prompt_tokens", nullptr, "is not supported: prompts are read whole");
  fields.refuse("add_special_tokens", !chat, "is not supported: give the prompt as a list of tokens");
  fields.refuse("prompt_embeds", nullptr, "is not supported: prompts are texts or tokens");
  fields.refuse("chat_template", nullptr, "is not supported: chats are rendered by the model's own");
  fields.refuse("chat_template_kwargs", Json::object(), "is not supported: the template gets messages alone");
  fields.refuse("documents", Json::array(), "is not supported: the template gets messages alone");
  fields.refuse("reasoning_effort", nullptr, "is not supported: the template gets messages alone");
  fields.refuse("thinking_token_budget", nullptr, "is not supported: `max_tokens` bounds the whole answer");
  fields.refuse("repetition_detection", nullptr, "is not supported");
  fields.refuse("continue_final_message", false, "is not supported: complete a rendered prompt instead");
  fields.refuse("add_generation_prompt", true, "is not supported: complete a rendered prompt instead");
}

// Parts are joined as vLLM joins them.
std::optional<std::string> content_text(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return std::nullopt;
  std::string text;
  for (const Json& part : content) {
    if (!part.is_object() || part.value("type", Json()) != "text") return std::nullopt;
    const Json piece = part.value("text", Json());
    if (!piece.is_string()) return std::nullopt;
    const auto& words = piece.get_ref<const std::string&>();
    if (!text.empty() && !words.empty()) text += '\n';
    text += words;
  }
  return text;
}

void read_messages(JsonFields& fields, std::vector<ChatMessage>& messages) {
  const Json* field = fields.find("messages");
  if (!field || !field->is_array() || field->empty()) return fields.fail("messages", "must be a list of messages");
  if (field->size() > kMessagesMax) {
    return fields.fail("messages", fmt::format("has {} messages, at most {} are read", field->size(), kMessagesMax));
  }
  for (const Json& message : *field) {
    const Json role = message.is_object() ? message.value("role", Json()) : Json();
    const auto known = std::ranges::find_if(kRoles, [&](const auto& pair) { return role == pair.first; });
    if (known == kRoles.end()) {
      return fields.fail("messages",
                         fmt::format("[{}] needs a role: system, developer, user, assistant or tool", messages.size()));
    }
    for (const char* name : {"tool_calls", "function_call", "reasoning", "reasoning_content"}) {
      const Json given = message.value(name, Json());
      if (given.empty() || given == "") continue;
      return fields.fail("messages", fmt::format("[{}] has {}, which is not supported: write it into its content",
                                                 messages.size(), name));
    }
    auto text = content_text(message.value("content", Json()));
    if (!text) {
      return fields.fail("messages", fmt::format("[{}] needs content that is a text, or a list of parts of type text",
                                                 messages.size()));
    }
    messages.push_back({std::string(known->second), std::move(*text)});
  }
}

// A text or a list of tokens.
void read_prompt(JsonFields& fields, const Json& given, std::vector<AnswerPrompt>& prompts) {
  AnswerPrompt& prompt = prompts.emplace_back();
  if (given.is_string()) {
    prompt.text = given.get<std::string>();
  } else if (given.is_array() && std::ranges::all_of(given, is_token)) {
    prompt.tokens = given.get<std::vector<Token>>();
  } else {
    return fields.fail("prompt", "must be a text, a list of tokens, or a list of such prompts");
  }
  if (prompt.text.empty() && prompt.tokens.empty()) fields.fail("prompt", "is empty");
}

void read_prompts(JsonFields& fields, AnswerRequest& request) {
  fields.text("context", request.context, std::string::npos);
  const Json* field = fields.find("prompt");
  if (!field) return fields.fail("prompt", "must be given: a text, a list of tokens, or a list of such prompts");
  const bool several = field->is_array() && !field->empty() && !field->front().is_number();
  if (!several) return read_prompt(fields, *field, request.prompts);
  if (field->size() > kPromptsMax) {
    return fields.fail("prompt", fmt::format("has {} prompts, at most {} are read", field->size(), kPromptsMax));
  }
  for (const Json& each : *field) read_prompt(fields, each, request.prompts);
}

void read_choices(JsonFields& fields, std::uint32_t& n) {
  fields.whole("n", n, 1u, kChoicesMax);
  fields.refuse("best_of", n, "must be as `n`, or left out: all answers that are drawn are told");
}

}  // namespace

std::vector<Token> AnswerPrompt::rendered() const {
  std::vector<Token> all;
  for (const PrefixSpan& span : spans) all.insert(all.end(), span.tokens.begin(), span.tokens.end());
  return all;
}

std::uint32_t AnswerPrompt::length() const {
  std::size_t sum = 0;
  for (const PrefixSpan& span : spans) sum += span.tokens.size();
  return static_cast<std::uint32_t>(sum);
}

ApiResult<AnswerRequest> parse_answer_request(Endpoint endpoint, std::string_view body,
                                              const AnswerDefaults& defaults) {
  auto object = parse_json(body);
  if (!object) return std::unexpected(std::move(object).error());
  if (!object->is_object()) return std::unexpected(ApiError{.message = "the body must be a JSON object"});

  const bool chat = endpoint == Endpoint::kChat;
  AnswerRequest result;
  result.endpoint = endpoint;
  Request& request = result.request;
  request.sampling = {.temperature = 1, .seed = defaults.seed};
  request.budget = defaults.budget;
  request.max_tokens = chat ? defaults.max_tokens : std::optional<std::uint32_t>(16);
  request.store_answer = true;

  JsonFields fields(*object);
  fields.text("model", result.model);
  fields.flag("stream", result.stream);
  read_stream_options(fields, result);
  read_sampling(fields, request.sampling);
  read_seed(fields, result.seed);
  if (result.seed) request.sampling.seed = static_cast<std::uint64_t>(*result.seed);
  read_choices(fields, result.n);
  read_priority(fields, request.priority);
  read_stop(fields, request.stop);
  read_stop_tokens(fields, request.stop_tokens);
  fields.flag("include_stop_str_in_output", request.include_stop);
  read_policy(fields, request.policy);
  result.cache_salt = request.policy.salt;
  refuse_renamed(fields);
  read_budget(fields, request.policy, request.budget);
  fields.flag("ignore_eos", request.ignore_end);
  read_logprobs(fields, chat, request.logprobs);
  result.details.logprobs = request.logprobs;
  read_prompt_logprobs(fields, chat, result);
  read_length(fields, result.details.echo, request);
  read_min_tokens(fields, request);
  fields.flag("return_token_ids", result.details.ids);
  refuse_unsupported(fields, chat);
  if (chat) {
    result.prompts.resize(1);
    read_messages(fields, result.messages);
  } else {
    read_prompts(fields, result);
  }
  if (fields.error()) return std::unexpected(*fields.error());
  if (result.warning.empty()) result.warning = fields.misspelt();
  return result;
}

}  // namespace shale
