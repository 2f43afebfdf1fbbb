#include "server/token_teller.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/utf8.h"

namespace shale {
namespace {

// JSON has no infinity; OpenAI says so for what could not have been drawn.
double told_logprob(float logprob) { return std::max(-9999.0, static_cast<double>(logprob)); }

Json chat_logprob(const std::string& name, float logprob) {
  return {{"token", name},
          {"logprob", told_logprob(logprob)},
          {"bytes", std::vector<std::uint8_t>(name.begin(), name.end())}};
}

// Parts of characters are told by their bytes, as OpenAI tells them: as text all would be U+FFFD, and one of them.
std::string told_name(const std::string& name) {
  if (find_invalid_utf8(name) == std::string::npos) return name;
  std::string told = "bytes:";
  for (const char c : name) told += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return told;
}

// As UTF-8 counts them.
std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

// Takes a token off the text that begins with it; how many characters that is. Vocabularies of SentencePiece begin what
// they tokenize with a space that the text has not.
std::size_t take_off(std::string_view& text, std::string_view name) {
  if (name.starts_with(' ') && !text.starts_with(name) && text.starts_with(name.substr(1))) name.remove_prefix(1);
  text.remove_prefix(std::min(name.size(), text.size()));
  return characters(name);
}

}  // namespace

// Control tokens have names as well.
std::string TokenTeller::name_of(Token token) const { return tokenizer_.text({&token, 1}, true); }

void TokenTeller::tell_prompt(Json& answer) {
  if (!std::exchange(owes_ids_, false)) return;
  Json& place = endpoint_ == Endpoint::kChat ? answer : answer["choices"].back();
  place["prompt_token_ids"] = prompt_.tokens;
}

void TokenTeller::tell(Json& answer, std::span<const DrawnToken> tokens, const PromptLogprobs& prompt) {
  tell_prompt(answer);
  Json& choice = answer["choices"].back();
  if (details_.ids) {
    Json& ids = choice["token_ids"] = Json::array();
    for (const DrawnToken& drawn : tokens) ids.push_back(drawn.token);
  }
  if (details_.prompt_logprobs && !prompt.empty()) {
    (endpoint_ == Endpoint::kChat ? answer : choice)["prompt_logprobs"] = prompt_logprobs(prompt);
  }
  const bool repeats = std::exchange(owes_echo_, false);
  if (repeats) choice["text"] = prompt_.text + choice["text"].get<std::string>();
  if (!details_.logprobs || (tokens.empty() && !repeats)) return;
  if (endpoint_ == Endpoint::kChat) {
    choice["logprobs"] = chat_logprobs(tokens);
    return;
  }
  std::vector<Rated> rated;
  std::string_view text = prompt_.text;
  for (std::size_t i = 0; repeats && i < prompt.size(); ++i) {
    const bool silent = i == 0 && prompt_.bos_added;
    const std::size_t told = silent ? 0 : take_off(text, name_of(prompt_.tokens[i]));
    rated.push_back({prompt_.tokens[i], prompt[i] ? &*prompt[i] : nullptr, told});
  }
  for (const DrawnToken& drawn : tokens) {
    rated.push_back({drawn.token, &*drawn.logprobs, characters(name_of(drawn.token))});
  }
  choice["logprobs"] = completion_logprobs(rated);
}

// As vLLM has them: by token, the prompt's own and the likeliest.
Json TokenTeller::prompt_logprobs(const PromptLogprobs& prompt) const {
  Json all = Json::array();
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    Json& likely = all.emplace_back(nullptr);
    if (!prompt[i]) continue;
    const auto add = [&](Token token, float logprob, std::size_t rank) {
      likely[std::to_string(token)] = {
          {"logprob", told_logprob(logprob)}, {"rank", rank}, {"decoded_token", name_of(token)}};
    };
    add(prompt_.tokens[i], prompt[i]->drawn, prompt[i]->rank);
    const auto& top = prompt[i]->top;
    for (std::size_t k = 0; k < std::min<std::size_t>(top.size(), *details_.prompt_logprobs); ++k) {
      add(top[k].first, top[k].second, k + 1);
    }
  }
  return all;
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

// The token itself is among the likeliest in any case.
Json TokenTeller::completion_logprobs(std::span<const Rated> tokens) {
  Json names = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  for (const auto& [token, rated, in_text] : tokens) {
    const std::string name = name_of(token);
    names.push_back(told_name(name));
    offsets.push_back(characters_);
    characters_ += in_text;
    Json& logprob = logprobs.emplace_back(nullptr);
    Json& top = tops.emplace_back(nullptr);
    if (!rated) continue;
    logprob = told_logprob(rated->drawn);
    top = {{names.back(), logprob}};
    for (const auto& [likely, its] :
         std::span(rated->top).first(std::min<std::size_t>(rated->top.size(), *details_.logprobs))) {
      top.emplace(told_name(name_of(likely)), told_logprob(its));
    }
  }
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace shale
