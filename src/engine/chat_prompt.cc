#include "engine/chat_prompt.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

namespace shale {
namespace {

// Stands for a message's content while the template is rendered: no template changes or contains it.
constexpr std::string_view kMarker = "[[shale-message-7d1f-", kMarkerEnd = "]]";

void append(std::vector<Token>& to, std::span<const Token> tokens) {
  to.insert(to.end(), tokens.begin(), tokens.end());
}

Result<std::string> render(const Tokenizer& tokenizer, std::span<const ChatMessage> messages) {
  std::vector<Tokenizer::ChatMessage> marked;
  for (const ChatMessage& message : messages) {
    marked.push_back({message.role, fmt::format("{}{}{}", kMarker, marked.size(), kMarkerEnd)});
  }
  auto rendered = tokenizer.render_chat(marked, true);
  if (rendered || rendered.error().code != ErrorCode::kUnsupported) return rendered;
  std::string text;
  for (const auto& message : marked) text += message.content + "\n\n";
  return text;
}

// Other prompts begin with what ends here.
bool ends_span(const ChatMessage& message) { return message.role == "system" || message.role == "assistant"; }

}  // namespace

ChatMessage spoken(const Response& response) {
  ChatMessage message{.role = "assistant", .content = response.text};
  const bool says_more = response.stop == StopReason::kStopString || response.unspoken;  // in tokens than in its text
  if (says_more) return message;
  message.tokens = response.tokens;
  message.last_uncomputed = response.stop != StopReason::kEndOfTurn;
  return message;
}

Result<std::vector<PrefixSpan>> chat_prompt(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                            std::size_t span_tokens_min) {
  SHALE_ASSIGN(const std::string text, render(tokenizer, messages));
  std::vector<PrefixSpan> spans;
  std::vector<Token> tokens;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t at = rest.find(kMarker);
    append(tokens, tokenizer.tokenize(rest.substr(0, at), true));
    if (at == std::string_view::npos) break;
    rest.remove_prefix(at + kMarker.size());
    std::size_t index = 0;
    std::from_chars(rest.data(), rest.data() + rest.size(), index);
    rest.remove_prefix(rest.find(kMarkerEnd) + kMarkerEnd.size());

    const ChatMessage& message = messages[index];
    const bool drawn = !message.tokens.empty();
    append(tokens, drawn ? message.tokens : tokenizer.tokenize(message.content, false));
    const bool carries = drawn && message.last_uncomputed;
    if (!ends_span(message) || tokens.size() < span_tokens_min + carries) continue;
    std::vector<Token> next;
    if (carries) {
      next = {tokens.back()};
      tokens.pop_back();
    }
    spans.push_back({std::exchange(tokens, std::move(next)), true, "chat"});
  }
  spans.push_back({std::move(tokens), false, "chat"});

  std::vector<Token>& first = spans.front().tokens;  // templates usually write the first token themselves
  if (tokenizer.adds_bos() && (first.empty() || first.front() != tokenizer.bos())) {
    first.insert(first.begin(), tokenizer.bos());
  }
  std::erase_if(spans, [&](const PrefixSpan& span) { return span.tokens.empty(); });
  return spans;
}

}  // namespace shale
