#include "cli/conversation.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

namespace shale {
namespace {

// Stands for a message's content while the template is rendered: no template changes or contains it.
constexpr std::string_view kMarker = "[[shale-message-7d1f-", kMarkerEnd = "]]";

std::string marker(std::size_t message) { return fmt::format("{}{}{}", kMarker, message, kMarkerEnd); }

void append(std::vector<Token>& to, const std::vector<Token>& tokens) {
  to.insert(to.end(), tokens.begin(), tokens.end());
}

}  // namespace

Conversation::Conversation(const Tokenizer& tokenizer, std::string_view system) : tokenizer_(tokenizer) {
  if (!system.empty()) said_.add_message("system", system);
}

void Conversation::Said::add_message(const char* role, std::string_view content) {
  messages.push_back({role, marker(messages.size())});
  contents.emplace_back(content);
}

Result<std::vector<Segment>> Conversation::ask(std::string_view message) {
  Said& next = asked_ = said_;
  next.add_message("user", message);
  SHALE_ASSIGN(std::string rendered, render(next));
  if (!rendered.starts_with(next.text)) {
    next.turns.clear();
    next.carried.clear();
    next.text.clear();
    ++next.rewritten;
  }
  std::vector<Token> tokens = std::exchange(next.carried, {});
  append(tokens, tokenize(next, std::string_view(rendered).substr(next.text.size()), next.text.empty()));

  std::vector<Segment> segments;
  for (const auto& turn : next.turns) segments.push_back({turn, true, "chat"});
  segments.push_back({tokens, false, "chat"});
  next.turns.push_back(std::move(tokens));
  next.text = std::move(rendered);
  return segments;
}

void Conversation::answered(const Response& response) {
  said_ = std::exchange(asked_, {});
  said_.add_message("assistant", response.text);
  said_.text += said_.messages.back().content;
  std::vector<Token> tokens = response.tokens;
  if (response.stop == StopReason::kStopString) {
    tokens = tokenizer_.tokenize(response.text, false);  // the tokens drawn say more than the text
  } else if (response.stop != StopReason::kEndOfTurn && !tokens.empty()) {
    said_.carried = {tokens.back()};
    tokens.pop_back();
  }
  append(said_.turns.back(), tokens);
}

// Without a template: messages as paragraphs.
Result<std::string> Conversation::render(const Said& said) const {
  auto rendered = tokenizer_.render_chat(said.messages, true);
  if (rendered || rendered.error().code != ErrorCode::kUnsupported) return rendered;
  std::string text;
  for (const auto& message : said.messages) text += (text.empty() ? "" : "\n\n") + message.content;
  return text + "\n\n";
}

std::vector<Token> Conversation::tokenize(const Said& said, std::string_view rendered, bool starts) const {
  std::vector<Token> tokens;
  while (!rendered.empty()) {
    const std::size_t at = rendered.find(kMarker);
    append(tokens, tokenizer_.tokenize(rendered.substr(0, at), true));
    if (at == std::string_view::npos) break;
    rendered.remove_prefix(at + kMarker.size());
    std::size_t message = 0;
    std::from_chars(rendered.data(), rendered.data() + rendered.size(), message);
    append(tokens, tokenizer_.tokenize(said.contents[message], false));
    rendered.remove_prefix(rendered.find(kMarkerEnd) + kMarkerEnd.size());
  }
  const bool has_bos = !tokens.empty() && tokens.front() == tokenizer_.bos();  // templates usually write it themselves
  if (starts && tokenizer_.adds_bos() && !has_bos) tokens.insert(tokens.begin(), tokenizer_.bos());
  return tokens;
}

}  // namespace shale
