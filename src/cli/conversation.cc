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
  if (!system.empty()) add_message("system", system);
}

void Conversation::add_message(const char* role, std::string_view content) {
  messages_.push_back({role, marker(messages_.size())});
  contents_.emplace_back(content);
}

Result<std::vector<Segment>> Conversation::ask(std::string_view message) {
  add_message("user", message);
  SHALE_ASSIGN(std::string rendered, render());
  if (!rendered.starts_with(text_)) {
    turns_.clear();
    carried_.clear();
    text_.clear();
    ++rewritten_;
  }
  std::vector<Token> tokens = std::exchange(carried_, {});
  append(tokens, tokenize(std::string_view(rendered).substr(text_.size()), text_.empty()));

  std::vector<Segment> segments;
  for (const auto& turn : turns_) segments.push_back({turn, true, "chat"});
  segments.push_back({tokens, false, "chat"});
  turns_.push_back(std::move(tokens));
  text_ = std::move(rendered);
  return segments;
}

void Conversation::answered(const Response& response) {
  add_message("assistant", response.text);
  text_ += messages_.back().content;
  std::vector<Token> tokens = response.tokens;
  if (response.stop == StopReason::kStopString) {
    tokens = tokenizer_.tokenize(response.text, false);  // the tokens drawn say more than the text
  } else if (response.stop != StopReason::kEndOfTurn && !tokens.empty()) {
    carried_ = {tokens.back()};
    tokens.pop_back();
  }
  append(turns_.back(), tokens);
}

// Without a template: messages as paragraphs.
Result<std::string> Conversation::render() const {
  auto rendered = tokenizer_.render_chat(messages_, true);
  if (rendered || rendered.error().code != ErrorCode::kUnsupported) return rendered;
  std::string text;
  for (const auto& message : messages_) text += (text.empty() ? "" : "\n\n") + message.content;
  return text + "\n\n";
}

std::vector<Token> Conversation::tokenize(std::string_view rendered, bool starts) const {
  std::vector<Token> tokens;
  while (!rendered.empty()) {
    const std::size_t at = rendered.find(kMarker);
    append(tokens, tokenizer_.tokenize(rendered.substr(0, at), true));
    if (at == std::string_view::npos) break;
    rendered.remove_prefix(at + kMarker.size());
    std::size_t message = 0;
    std::from_chars(rendered.data(), rendered.data() + rendered.size(), message);
    append(tokens, tokenizer_.tokenize(contents_[message], false));
    rendered.remove_prefix(rendered.find(kMarkerEnd) + kMarkerEnd.size());
  }
  const bool has_bos = !tokens.empty() && tokens.front() == tokenizer_.bos();  // templates usually write it themselves
  if (starts && tokenizer_.adds_bos() && !has_bos) tokens.insert(tokens.begin(), tokenizer_.bos());
  return tokens;
}

}  // namespace shale
