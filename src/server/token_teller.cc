#include "server/token_teller.h"

#include <algorithm>
#include <utility>

namespace shale {
namespace {

// JSON has no infinity; OpenAI says so for what could not have been drawn.
double told_logprob(float logprob) { return std::max(-9999.0, static_cast<double>(logprob)); }

Json chat_logprob(const std::string& name, float logprob) {
  return {{"token", name},
          {"logprob", told_logprob(logprob)},
          {"bytes", std::vector<std::uint8_t>(name.begin(), name.end())}};
}

// As UTF-8 counts them.
std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

// Control tokens have names as well.
std::string TokenTeller::name_of(Token token) const { return tokenizer_.text({&token, 1}, true); }

void TokenTeller::tell_prompt(Json& answer) {
  if (!details_.ids || prompt_.empty()) return;  // told already
  Json& place = endpoint_ == Endpoint::kChat ? answer : answer["choices"][0];
  place["prompt_token_ids"] = std::exchange(prompt_, {});
}

void TokenTeller::tell(Json& answer, std::span<const DrawnToken> tokens) {
  tell_prompt(answer);
  Json& choice = answer["choices"][0];
  if (details_.ids) {
    Json& ids = choice["token_ids"] = Json::array();
    for (const DrawnToken& drawn : tokens) ids.push_back(drawn.token);
  }
  if (!details_.logprobs || tokens.empty()) return;
  choice["logprobs"] = endpoint_ == Endpoint::kChat ? chat_logprobs(tokens) : completion_logprobs(tokens);
}

Json TokenTeller::chat_logprobs(std::span<const DrawnToken> tokens) const {
  Json content = Json::array();
  for (const DrawnToken& drawn : tokens) {
    Json token = chat_logprob(name_of(drawn.token), drawn.logprobs->drawn);
    Json& top = token["top_logprobs"] = Json::array();
    for (const auto& [likely, logprob] : drawn.logprobs->top) top.push_back(chat_logprob(name_of(likely), logprob));
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// The token drawn is among the likeliest in any case.
Json TokenTeller::completion_logprobs(std::span<const DrawnToken> tokens) {
  Json names = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  for (const DrawnToken& drawn : tokens) {
    const std::string name = name_of(drawn.token);
    offsets.push_back(characters_);
    characters_ += characters(name);
    logprobs.push_back(told_logprob(drawn.logprobs->drawn));
    Json top = {{name, told_logprob(drawn.logprobs->drawn)}};
    for (const auto& [likely, logprob] : drawn.logprobs->top) top.emplace(name_of(likely), told_logprob(logprob));
    tops.push_back(std::move(top));
    names.push_back(name);
  }
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace shale
