#include "cli/conversation.h"

namespace shale {

Conversation::Conversation(const Tokenizer& tokenizer, std::string_view system) : tokenizer_(tokenizer) {
  if (!system.empty()) messages_.push_back({"system", std::string(system)});
}

Result<std::vector<Segment>> Conversation::ask(std::string_view message) {
  messages_.push_back({"user", std::string(message)});
  auto rendered = render();
  if (!rendered) {
    messages_.pop_back();
    return std::unexpected(std::move(rendered).error());
  }
  if (!turns_.empty() && !rendered->starts_with(text_)) {
    turns_.clear();
    text_.clear();
    ++rewritten_;
  }
  std::vector<Token> tokens = tokenize(std::string_view(*rendered).substr(text_.size()), message, turns_.empty());

  std::vector<Segment> segments;
  for (const auto& turn : turns_) segments.push_back({turn, true, "chat"});
  segments.push_back({tokens, false, "chat"});
  turns_.push_back(std::move(tokens));
  text_ = std::move(*rendered);
  return segments;
}

void Conversation::answered(const Response& response) {
  messages_.push_back({"assistant", response.text});
  text_ += response.text;
  // A stop string may end within the last token, which then says more than the text.
  const std::vector<Token> tokens =
      response.stop == StopReason::kStopString ? tokenizer_.tokenize(response.text, false) : response.tokens;
  turns_.back().insert(turns_.back().end(), tokens.begin(), tokens.end());
}

// Without a template: messages as paragraphs.
Result<std::string> Conversation::render() const {
  auto rendered = tokenizer_.render_chat(messages_, true);
  if (rendered || rendered.error().code != ErrorCode::kUnsupported) return rendered;
  std::string text;
  for (const auto& message : messages_) text += message.content + "\n\n";
  return text;
}

// Control tokens are recognised in the template's text alone, not in the message, where it can be told apart.
std::vector<Token> Conversation::tokenize(std::string_view rendered, std::string_view message, bool starts) const {
  const std::size_t at = rendered.rfind(message);
  std::vector<Token> tokens;
  const auto add = [&](std::string_view text, bool special) {
    const std::vector<Token> more = tokenizer_.tokenize(text, special);
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  if (at == std::string_view::npos) {
    add(rendered, true);
  } else {
    add(rendered.substr(0, at), true);
    add(message, false);
    add(rendered.substr(at + message.size()), true);
  }
  const bool has_bos = !tokens.empty() && tokens.front() == tokenizer_.bos();  // templates usually write it themselves
  if (starts && tokenizer_.adds_bos() && !has_bos) tokens.insert(tokens.begin(), tokenizer_.bos());
  return tokens;
}

}  // namespace shale
