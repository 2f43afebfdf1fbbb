#include "engine/chat_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace shale {
namespace {

// Stands for a message's content where the template's own text is told from what was said: no template contains it.
constexpr std::string_view kMarker = "[[shale-message-7d1f-", kMarkerEnd = "]]";

void append(std::vector<Token>& to, std::span<const Token> tokens) {
  to.insert(to.end(), tokens.begin(), tokens.end());
}

Result<std::string> render(const Tokenizer& tokenizer, std::span<const Tokenizer::ChatMessage> messages) {
  auto rendered = tokenizer.render_chat(messages, true);
  if (rendered || rendered.error().code != ErrorCode::kUnsupported) return rendered;
  std::string text;
  for (const auto& message : messages) text += message.content + "\n\n";
  return text;
}

// The template's text before a message's content, and what it writes there of the content.
struct Piece {
  std::string_view frame;
  const ChatMessage* message = nullptr;  // null: the end
  std::string_view content = {};
};

std::vector<Piece> pieces_of(std::string_view marked, std::span<const ChatMessage> messages) {
  std::vector<Piece> pieces;
  for (;;) {
    const std::size_t at = marked.find(kMarker);
    pieces.push_back({marked.substr(0, at)});
    if (at == std::string_view::npos) return pieces;
    marked.remove_prefix(at + kMarker.size());
    std::size_t index = 0;
    std::from_chars(marked.data(), marked.data() + marked.size(), index);
    marked.remove_prefix(marked.find(kMarkerEnd) + kMarkerEnd.size());
    pieces.back().message = &messages[index];
    pieces.back().content = messages[index].content;
  }
}

// Between the quotes of a string of JSON, as templates' `tojson` writes it.
std::string json_escaped(std::string_view text) {
  constexpr std::string_view kLetters = "\"\\\b\f\n\r\t", kEscapes = "\"\\bfnrt";
  std::string escaped;
  for (const char c : text) {
    if (const std::size_t at = kLetters.find(c); at != std::string_view::npos) {
      escaped += {'\\', kEscapes[at]};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      escaped += fmt::format("\\u{:04x}", c);
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// The beginning of `text` that is `content` as templates write it, where `next` follows: all of it, or what an answer
// has after its reasoning, with or without the blanks around it; or as JSON.
std::optional<std::string_view> written(std::string_view text, std::string_view content, const Piece& next) {
  constexpr std::string_view kBlanks = " \t\n\r\v\f", kReasoningEnd = "</think>";
  const auto is = [&](std::string_view form) {
    if (!text.starts_with(form)) return false;
    const std::string_view after = text.substr(form.size());
    return next.message ? after.starts_with(next.frame) : after == next.frame;
  };
  const std::size_t reasoning = content.rfind(kReasoningEnd);
  const std::string_view fronts[] = {"", "\n", kBlanks};
  const std::size_t begins[] = {0, reasoning == content.npos ? 0 : reasoning + kReasoningEnd.size()};
  for (const std::size_t begin : begins) {
    const std::string_view whole = content.substr(begin);
    for (const std::string_view front : fronts) {
      const std::string_view left = whole.substr(std::min(whole.find_first_not_of(front), whole.size()));
      for (const std::string_view form : {left, left.substr(0, left.find_last_not_of(kBlanks) + 1)}) {
        if (is(form)) return text.substr(0, form.size());
      }
    }
  }
  const std::string escaped = json_escaped(content);
  return is(escaped) ? std::optional(text.substr(0, escaped.size())) : std::nullopt;
}

// Finds the contents in the chat as the template renders it. From one on that it writes in a way of its own, they stay
// as they were sent.
void find_contents(std::string_view text, std::span<Piece> pieces) {
  for (std::size_t i = 0; i + 1 < pieces.size() && text.starts_with(pieces[i].frame); ++i) {
    text.remove_prefix(pieces[i].frame.size());
    const auto found = written(text, pieces[i].content, pieces[i + 1]);
    if (!found) return;
    pieces[i].content = *found;
    text.remove_prefix(found->size());
  }
}

// Other prompts begin with what ends here.
bool ends_span(const ChatMessage& message) { return message.role == "system" || message.role == "assistant"; }

}  // namespace

ChatMessage spoken(const Response& response) {
  ChatMessage message{.role = "assistant", .content = response.text};
  const bool says_more = response.stop == StopReason::kStopString || response.unspoken;  // in tokens than in its text
  if (says_more) return message;
  message.tokens = response.tokens;
  message.last_uncomputed = !response.end_token;
  return message;
}

Result<std::vector<PrefixSpan>> chat_prompt(const Tokenizer& tokenizer, std::span<const ChatMessage> messages,
                                            std::size_t span_tokens_min) {
  std::vector<Tokenizer::ChatMessage> sent, marks;
  for (const ChatMessage& message : messages) {
    sent.push_back({message.role, message.content});
    marks.push_back({message.role, fmt::format("{}{}{}", kMarker, marks.size(), kMarkerEnd)});
  }
  SHALE_ASSIGN(const std::string text, render(tokenizer, sent));
  SHALE_ASSIGN(const std::string marked, render(tokenizer, marks));
  std::vector<Piece> pieces = pieces_of(marked, messages);
  find_contents(text, pieces);
  std::vector<PrefixSpan> spans;
  std::vector<Token> tokens;
  for (const Piece& piece : pieces) {
    append(tokens, tokenizer.tokenize(piece.frame, true));
    if (!piece.message) break;
    const ChatMessage& message = *piece.message;
    const bool drawn = !message.tokens.empty() && piece.content == message.content;
    append(tokens, drawn ? message.tokens : tokenizer.tokenize(piece.content, false));
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
